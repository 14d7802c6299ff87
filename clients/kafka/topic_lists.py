"""Which topics there are, as most brokers say.

Each broker answers from a list that it has from the controllers. One that they cannot reach, and
clients can, goes on with an old one: it lacks a new topic, or has the id of one that was replaced.
"""

from __future__ import annotations

import functools
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...core.errors import OutcomeUnknown
from .every_broker import ask_each

log = logging.getLogger(__name__)

AGREE_TIMEOUT_S = 30.0
_NO_ID = uuid.UUID(int=0)
# Of each broker: topic -> id; None: no answer, or one that lacks the id of a topic that is there.
Answers = Mapping[Any, Mapping[str, str] | None]
NO_IDS = (
    "Topics have no ids here (inter.broker.protocol.version below 2.8), so nobody can tell one "
    "from another that was made under its name later: rows that went with a topic are not written "
    "again, and eo-postgres and eo-target are refused. Raise it."
)


@functools.cache
def warn_of_no_ids(servers: str) -> None:
    """Once."""
    log.warning("Kafka at %s: %s", servers, NO_IDS)


async def of_each(admin: Any, names: list[str]) -> Answers:
    """What each broker says of the topics `names`. Private parts of kafka-python that this uses:
    see control_requests.py."""
    from kafka import errors
    from kafka.protocol.metadata import MetadataRequest

    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    admin._manager.cluster.request_update()  # who is gone, for the next time

    async def ask(node: Any) -> tuple[Mapping[str, str] | None, Iterable[Mapping[str, Any]]]:
        told: Mapping[str, Any] = {"brokers": ()}
        try:
            told = (await admin._manager.send(request, node_id=node)).to_dict()
            check_known(told["topics"])
        except (errors.KafkaError, OSError):
            return None, told["brokers"]
        there = {row["name"] for row in told["topics"] if row["error_code"] == 0}
        ids = ids_of(told["topics"])
        return (ids if ids.keys() == there else None), told["brokers"]

    return await ask_each(admin, ask)


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


def check_known(rows: Iterable[Mapping[str, Any]]) -> None:
    """Raise the error of a topic, but for one that is not there: a topic that we may not see, or
    that has no leader yet, is another thing than one that does not exist."""
    from kafka import errors

    for row in rows:
        error = errors.for_code(row["error_code"])
        if error not in (errors.NoError, errors.UnknownTopicOrPartitionError):
            raise error(row["name"])


def ids_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Topic -> its id, of those that exist, from an answer about topics. Brokers with an old
    inter.broker.protocol.version know none, and say 0, which kafka-python gives as None. Raises
    UnsupportedVersionError for an answer of a version that has none."""
    from kafka import errors

    asked = list(rows)
    if any("topic_id" not in row for row in asked):
        raise errors.UnsupportedVersionError("Metadata before version 10 has no ids of topics")
    return {
        row["name"]: str(topic_id)
        for row in asked
        if row["error_code"] == 0 and (topic_id := row["topic_id"]) not in (None, _NO_ID)
    }
