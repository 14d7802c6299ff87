"""Which topics there are, as most brokers say.

Each broker answers from a list that it has from the controllers. One that they cannot reach, and
clients can, goes on with an old one: it lacks a new topic, or has the id of one that was replaced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...core.errors import OutcomeUnknown
from .control_requests import check_known, ids_of

AGREE_TIMEOUT_S = 30.0
Answers = Mapping[Any, Mapping[str, str] | None]  # of each broker: topic -> id; None: no answer


async def of_each(admin: Any, names: list[str]) -> Answers:
    """What each broker says of the topics `names`. Private parts of kafka-python that this uses:
    see control_requests.py."""
    from kafka import errors
    from kafka.protocol.metadata import MetadataRequest

    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    manager = admin._manager
    manager.cluster.request_update()  # who is there, for the next time

    async def ask(node: Any) -> Mapping[str, str] | None:
        try:
            rows = (await manager.send(request, node_id=node)).to_dict()["topics"]
            check_known(rows)
        except (errors.KafkaError, OSError):
            return None
        return ids_of(rows)

    asked = {
        broker.node_id: manager.call_soon(ask, broker.node_id)
        for broker in manager.cluster.brokers()
    }
    return {node: await answer for node, answer in asked.items()}


def agreed(ask: Callable[[], Answers], names: Iterable[str], servers: str) -> Mapping[str, str]:
    """What the brokers say, once more than half of them answer and all of these say the same.
    Raises OutcomeUnknown after half a minute without that."""
    deadline = time.monotonic() + AGREE_TIMEOUT_S
    while True:
        answers = ask()
        given = [answer for answer in answers.values() if answer is not None]
        if 2 * len(given) > len(answers) and all(answer == given[0] for answer in given):
            return given[0]
        if time.monotonic() > deadline:
            raise OutcomeUnknown(
                f"The brokers of {servers} do not agree whether topics {sorted(names)} are the "
                f"ones that rows were written to: of {len(answers)}, {len(given)} answered. One "
                "may be cut off from the controllers. Nothing was changed; start the query again "
                "when all brokers see each other."
            )
        time.sleep(0.2)
