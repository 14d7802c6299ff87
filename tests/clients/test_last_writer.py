"""Who wrote to a partition last, as far as Kafka tells."""

from __future__ import annotations

from types import SimpleNamespace as Answer
from typing import Any, cast

import pytest

from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.clients.kafka.partition_transactions import last_writer
from eo_kafka.errors import EnvironmentRefused


class Brokers:
    """Producers by when they wrote, and the ids that the principal may Describe."""

    admin = Answer(describe_producers=None)

    def __init__(self, written: dict[int, int], ids: dict[int, str], refuses: bool) -> None:
        self._written, self._ids, self._refuses = written, ids, refuses

    def call(self, _: Any, places: list[Any]) -> dict[Any, Any]:
        if self._refuses:
            raise EnvironmentRefused("TopicAuthorizationFailed")
        found = [Answer(last_timestamp=at, producer_id=one) for at, one in self._written.items()]
        return {place: Answer(active_producers=found) for place in places}

    def ask(self, _: Any, *given: Any) -> Any:
        *_, ids, _may_lack = given
        return [
            Answer(producer_id=one, transactional_id=self._ids[one])
            for one in self._ids
            if one in ids
        ]


@pytest.mark.parametrize(
    ("written", "ids", "refuses", "told"),
    [
        ({}, {}, False, ""),
        ({5: 1, 9: 2, 7: 3}, {1: "a", 2: "b", 3: "c"}, False, "b"),
        # Who wrote before is not who wrote last
        ({5: 1, 9: 2}, {1: "a"}, False, ""),
        ({5: 1}, {1: "a"}, True, ""),
    ],
    ids=["forgotten", "the newest", "its id is hidden", "may not read"],
)
def test_the_newest_producer_is_the_last_writer(
    written: dict[int, int], ids: dict[int, str], refuses: bool, told: str
) -> None:
    control = cast(ControlPlane, Brokers(written, ids, refuses))
    assert last_writer(control, ("ledger", 0)) == told
