"""The look for a query's ledger under another job name, where ledgers cannot be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eo_kafka.core.transaction import Decision, DecisionState
from eo_kafka.errors import (
    CorruptLedger,
    EnvironmentRefused,
    EoKafkaError,
    ForeignLedger,
    OutcomeUnknown,
    ReadTimeout,
    Unreachable,
)
from eo_kafka.sinks.batches import renamed
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.state.ledger.ledger import Ledger

OLD, OTHER = "__eo_kafka.old.ledger", "__eo_kafka.other.ledger"


class Kafka:
    """Has two ledgers: another query's, and the one that this query has written its batch 1 into;
    of one of them the end is not to be had."""

    ledger = Ledger()  # of the new name, which the coordinator has read

    def __init__(self, topic: str = "", error: EoKafkaError | None = None) -> None:
        self._topic, self._error = topic, error

    def topics(self) -> list[str]:
        return [OTHER, OLD]

    def end_offset(self, topic: str, *_: object, **__: object) -> int:
        if topic == self._topic and self._error is not None:
            raise self._error
        return 240


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "1").write_text("v1\n{}\n{}")
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "jobName": "new"}
    options = SinkOptions.parse(given, streaming=True)
    known = {"query_id": "q", "checkpoint": str(tmp_path)}
    done = Decision(
        "main", 1, 0, DecisionState.DONE, 1, 5, 1, 0, participants=(), target=options.target
    )

    class Memory:
        def __init__(self, _: object, topic: str) -> None:
            self._owner = "q" if topic == OLD else "another"

        def read_to(self, _: int) -> Ledger:
            return Ledger(owner=self._owner, decisions={("main", 1): done})

    monkeypatch.setattr(renamed, "LedgerMemory", Memory)

    def run(kafka: Any, **more: Any) -> None:
        renamed.check_not_renamed(replace(options, **known, **more), kafka, kafka)

    return run


def test_the_old_ledger_is_found(check: Any) -> None:
    with pytest.raises(ForeignLedger, match=f"job 'old'.*{OLD}"):
        check(Kafka())


@pytest.mark.parametrize(
    "error", [OutcomeUnknown("no leader"), Unreachable("no broker"), ReadTimeout("silence")]
)
@pytest.mark.parametrize("topic", [OLD, OTHER])
def test_an_outage_is_not_taken_for_another_querys_ledger(
    check: Any, error: EoKafkaError, topic: str
) -> None:
    with pytest.raises(OutcomeUnknown, match=f"batch 1 by another job name .*'{topic}'"):
        check(Kafka(topic, error))


@pytest.mark.parametrize("error", [EnvironmentRefused("Not authorized."), CorruptLedger("Odd.")])
def test_a_ledger_that_may_not_be_read_is_told_of(
    check: Any, error: EoKafkaError, caplog: pytest.LogCaptureFixture
) -> None:
    check(Kafka(OLD, error))
    (told,) = caplog.messages
    assert OLD in told
    assert OTHER not in told
    assert str(error) in told
    assert "written again" in told
    with pytest.raises(ForeignLedger):  # the others are looked at all the same
        check(Kafka(OTHER, error))


def test_a_job_that_begins_where_another_ended_is_told(
    check: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a rename that is as it should be; not of a second job that took the first one's checkpoint
    with its project."""
    (tmp_path / "offsets" / "2").write_text("v1\n{}\n{}")
    check(Kafka())
    (told,) = caplog.messages
    assert "begins with batch 2" in told
    assert "job 'old' has written its batches up to 1" in told
    assert "'other'" not in told
    check(Kafka(), may_pass_batches=True)  # one of two jobs of a function of foreachBatch
    assert len(caplog.messages) == 1
