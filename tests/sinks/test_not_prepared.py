"""Which topics an error names whose transaction Kafka refused for a right that is missing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from eo_kafka.errors import OutcomeUnknown
from eo_kafka.sinks.transactions.not_prepared import not_prepared

MAY = {"name": "may", "authorized_operations": ["DESCRIBE", "WRITE"]}
READS = {"name": "reads", "authorized_operations": ["DESCRIBE", "READ"]}
HIDDEN = {"name": "ledger", "authorized_operations": []}
ALL = "topic 'may' and on topic 'reads' and on ledger 'ledger'"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([MAY, READS, HIDDEN], "topic 'reads' and on ledger 'ledger'"),
        ([MAY, READS, {**MAY, "name": "ledger"}], "topic 'reads'"),
        ([{**MAY, "name": name} for name in ("may", "reads", "ledger")], ALL),  # granted since
        ([{"name": "may"}, {"name": "reads"}, {"name": "ledger"}], ALL),  # an old broker
        (OutcomeUnknown("No answer."), ALL),
    ],
)
def test_only_those_are_named_that_lack_it_as_far_as_kafka_says(answer: Any, told: str) -> None:
    def call(_: Any, asked: list[str]) -> Any:
        assert asked == ["may", "reads", "ledger"]
        if isinstance(answer, Exception):
            raise answer
        return answer

    control: Any = SimpleNamespace(call=call, admin=SimpleNamespace(describe_topics=None))
    rows: Any = SimpleNamespace(failures="2 rows", first_code=0, acknowledged=0, rows=2)
    ended, topics = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), (None, "may", "reads", "may")
    error = not_prepared("Task 1", "", ended, rows, topics, None, "ledger", control)
    assert f"needs Write and Describe on {told}: grant it" in str(error)
