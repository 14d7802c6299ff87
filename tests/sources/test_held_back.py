"""A transaction that stays open is told of, once; one that only came just before is not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from eo_kafka.core.offsets import TopicPartition
from eo_kafka.errors import ReadTimeout
from eo_kafka.sources import held_back
from eo_kafka.sources.held_back import HeldBack

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Log:
    """Where partitions end; None: no broker answers."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] | None = {A: 10, B: 10}

    def written(self, partitions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if self.ends is None:
            raise ReadTimeout("nobody answers")
        return {at: self.ends[at] for at in partitions}


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr(held_back, "LOOK_EVERY_S", 0.0)
    return Log()


def test_what_is_held_back_in_two_looks_is_told_once(log, caplog) -> None:
    watch = HeldBack(log)
    for end_of_b in (4, 5, 6):  # transactions come and go there
        watch.look({A: 7, B: end_of_b})
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "in each of t-0: " in caplog.text
    assert "'eo-kafka txn list --topic t'" in caplog.text
    for end in (8, 8):  # the next one
        watch.look({A: end, B: 10})
    assert len(caplog.records) == 2


def test_a_topic_where_all_may_be_read_is_not(log, caplog) -> None:
    watch = HeldBack(log)
    for _ in range(3):
        watch.look({A: 10, B: 10})
    watch.look({A: 10, B: 9})
    assert not caplog.records


def test_the_query_does_not_end_by_it(log, caplog) -> None:
    watch = HeldBack(log)
    log.ends = None
    watch.look({A: 7})
    assert not caplog.records


def test_brokers_are_asked_now_and_then_only(log, monkeypatch) -> None:
    monkeypatch.setattr(held_back, "LOOK_EVERY_S", 60.0)
    log.written = None  # type: ignore[method-assign]
    HeldBack(log).look({A: 7})
