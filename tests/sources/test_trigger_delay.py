"""When a batch is put off, and for how long."""

from __future__ import annotations

from eo_kafka.core.offsets import TopicPartition
from eo_kafka.sources.trigger_delay import TriggerDelay

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_first_batch_is_never_put_off() -> None:
    delay = TriggerDelay(100, 60_000, Clock())
    assert delay.is_due({A: 0}, {A: 1})
    assert not delay.is_due({A: 1}, {A: 2})


def test_enough_offsets_over_all_partitions_end_the_wait() -> None:
    delay = TriggerDelay(10, 60_000, Clock())
    assert delay.is_due({}, {A: 0, B: 0})
    assert not delay.is_due({A: 5, B: 5}, {A: 9, B: 10})
    assert delay.is_due({A: 5, B: 5}, {A: 10, B: 10})


def test_time_ends_the_wait_and_begins_it_anew() -> None:
    clock = Clock()
    delay = TriggerDelay(10, 60_000, clock)
    assert delay.is_due({A: 0}, {A: 1})
    clock.now += 59.9
    assert not delay.is_due({A: 1}, {A: 2})
    clock.now += 0.1
    assert delay.is_due({A: 1}, {A: 2})
    clock.now += 1
    assert not delay.is_due({A: 2}, {A: 3})


def test_a_log_that_got_shorter_is_not_waited_for() -> None:
    """That it lost records is told when the batch is planned."""
    delay = TriggerDelay(10, 60_000, Clock())
    assert delay.is_due({A: 0, B: 0}, {A: 50, B: 50})
    assert not delay.is_due({A: 50, B: 50}, {A: 51, B: 50})
    assert delay.is_due({A: 50, B: 50}, {A: 51, B: 20})


def test_a_new_partition_counts_from_its_first_offset() -> None:
    delay = TriggerDelay(10, 60_000, Clock())
    assert delay.is_due({}, {A: 0})
    assert delay.is_due({A: 0}, {A: 0, B: 10})
