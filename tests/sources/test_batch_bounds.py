"""Where a batch read begins and ends, if that is asked of brokers, which may answer anew."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from test_planner import Cluster, Written, planner

from eo_kafka.core.offsets import EARLIEST, LATEST, OffsetRange, Offsets, TopicPartition
from eo_kafka.errors import DataLossError, SourceError
from eo_kafka.sources.late_bound import bound

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TIMES = {"startingTimestamp": "50", "startingOffsetsByTimestampStrategy": "latest"}


def found(cluster: Cluster, **options: str) -> list[OffsetRange]:
    return planner(cluster, streaming=False, **options).batch_ranges()


def anew(cluster: Cluster, opened: OffsetRange, **options: str) -> list[OffsetRange]:
    """As a task of a stream finds it."""
    plan = planner(cluster, streaming=False, **options)
    return bound(plan._options, plan._lookup, [opened], planned=True)


FROM_18, TO_13 = '{"t":{"0":18}}', '{"t":{"0":13}}'
TO_TIME = '{"t":{"0":60}}'


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"startingOffsets": FROM_18, "endingTimestamp": "60"}, 18),
        ({"startingTimestamp": "80", "endingOffsets": TO_13}, 18),
        ({"startingTimestamp": "80", "endingOffsetsByTimestamp": TO_TIME}, 18),
        ({"startingOffsetsByTimestamp": '{"t":{"0":80}}', "endingTimestamp": "60"}, 18),
        ({**TIMES, "endingOffsets": TO_13}, 20),
    ],
)
@pytest.mark.parametrize("begin", [0, 13])
@pytest.mark.parametrize("cut", [{}, {"minPartitions": "2"}])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_start_behind_the_end_is_refused(
    begin: int, options: dict[str, str], start: int, cut: dict[str, str], fail: str
) -> None:
    """Whatever failOnDataLoss says: nothing was lost."""
    cluster = Cluster(p0=(begin, 20))
    cluster.times = {A: {60: 13, 80: 18}}
    first, last = [name for name in options if "Strategy" not in name]
    sentence = rf"t-0 .* at offset {start} \('{first}'\), .* 13, .* \('{last}'\)"
    with pytest.raises(SourceError, match=sentence) as told:
        found(cluster, failOnDataLoss=fail, **options, **cut)
    assert not isinstance(told.value, DataLossError)


@pytest.mark.parametrize("starts", [{}, {"startingTimestamp": "50"}])
def test_that_all_was_deleted_that_is_asked_for_is_data_loss(
    starts: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(p0=(10, 20))
    cluster.times = {A: {50: 10}}
    options = {**starts, "endingOffsets": '{"t":{"0":5}}'}
    with pytest.raises(DataLossError, match=r"t-0 before offset 5.*begins at 10"):
        found(cluster, **options)
    assert found(cluster, failOnDataLoss="false", **options) == [OffsetRange(A, 10, 5)]
    assert "before offset 5" in caplog.text
    assert found(cluster, failOnDataLoss="false", minPartitions="2", **options) == []


def test_a_start_that_is_the_end_reads_nothing() -> None:
    cluster = Cluster(p0=(5, 20))
    cluster.times = {A: {50: 5, 60: 13}}
    at = '{"t":{"0":%d}}'
    nothing = [OffsetRange(A, 5, 5)]
    assert found(cluster, endingOffsets=at % 5) == nothing, "all but what is gone"
    assert found(cluster, startingTimestamp="50", endingTimestamp="50") == nothing
    assert found(cluster, **TIMES, endingTimestamp="50") == nothing
    assert found(cluster, endingOffsets=at % 0) == [OffsetRange(A, 5, 0)], "it was empty"
    with pytest.raises(SourceError, match="offset 13 .* behind offset 0"):
        found(cluster, startingTimestamp="60", endingOffsets=at % 0)
    cluster.times = {}
    assert found(cluster, **TIMES, endingTimestamp="70") == [OffsetRange(A, 20, 20)]


def test_a_time_without_so_new_a_record_is_asked_for_again() -> None:
    cluster = Cluster(p0=(0, 10))
    ending = {"endingTimestamp": "50"}
    opened = OffsetRange(A, EARLIEST, LATEST)
    plan = planner(cluster, streaming=False, **ending)
    assert plan.batch_ranges() == [OffsetRange(A, 0, 10)]
    assert plan.open_ranges == {A: opened}
    assert anew(cluster, opened, **ending) == [OffsetRange(A, 0, 10)]
    cluster.logs[A], cluster.times = (0, 15), {A: {50: 12}}
    assert anew(cluster, opened, **ending) == [OffsetRange(A, 0, 12)]
    assert anew(cluster, opened) == [OffsetRange(A, 0, 15)], "no time was given"
    opened = OffsetRange(A, LATEST, LATEST)
    assert anew(cluster, opened, **TIMES) == [OffsetRange(A, 12, 15)]
    assert anew(cluster, opened, **TIMES, **ending) == [OffsetRange(A, 12, 12)]
    cluster.times = {}
    assert anew(cluster, opened, **TIMES) == [OffsetRange(A, 15, 15)]


def test_a_record_that_comes_between_two_questions_is_not_read() -> None:
    """It is as new as the time of the end, and was not there when the time was asked for first."""

    class Busy(Cluster):
        def at_times(self, times: Offsets) -> dict[TopicPartition, int | None]:
            answer = super().at_times(times)
            self.logs[A], self.times = (0, 15), {A: {50: 12}}
            return answer

    assert found(Busy(p0=(0, 10)), endingTimestamp="50") == [OffsetRange(A, 0, 12)]
    assert found(Busy(p0=(0, 10)), endingTimestamp="50", **TIMES) == [OffsetRange(A, 12, 12)]


def test_no_start_is_behind_the_newest_offset_that_is_the_end() -> None:
    class Busy(Cluster):
        def latest(
            self, partitions: Collection[TopicPartition], known: Offsets | None = None
        ) -> dict[TopicPartition, int]:
            answer = super().latest(partitions, known)
            self.logs[A], self.times = (0, 15), {A: {50: 12}}
            return answer

    assert found(Busy(p0=(0, 10)), **TIMES) == [OffsetRange(A, 10, 10)]
    assert found(Busy(p0=(0, 10)), endingTimestamp="50") == [OffsetRange(A, 0, 12)]


def test_what_a_stream_joins_may_be_gone_by_then() -> None:
    cluster = Cluster(p0=(10, 20))
    options = {"endingOffsets": '{"t":{"0":5}}'}
    with pytest.raises(DataLossError, match=r"t-0 before offset 5.*begins at 10"):
        anew(cluster, OffsetRange(A, EARLIEST, 5), **options)


def test_a_start_that_goes_behind_the_end_with_the_log_reads_nothing() -> None:
    """An older record came at the end: none is so new by now, either."""
    cluster = Cluster(p0=(0, 13))
    options = {**TIMES, "endingOffsets": TO_13}
    assert found(cluster, **options) == [OffsetRange(A, 13, 13)]
    cluster.logs[A] = (0, 20)
    ((_, start, end),) = anew(cluster, OffsetRange(A, LATEST, 13), **options)
    assert start >= end == 13
    with pytest.raises(SourceError, match="t-0 .* at offset 20 .* 13"):
        found(cluster, **options)
    cluster.times = {A: {50: 15}}
    ((_, start, end),) = anew(cluster, OffsetRange(A, LATEST, 13), **options)
    assert start >= end == 13


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_what_an_open_transaction_holds_back_may_be_so_new(level: str) -> None:
    cluster = Cluster(p0=(0, 10), p1=(0, 0))
    starts = {"startingTimestamp": "50", "kafka.isolation.level": level}
    cluster.written = Written({A: 10})
    with pytest.raises(SourceError, match=r"t-0 and timestamp 50: .* in 2 of 2 .*latest") as told:
        found(cluster, **starts)
    assert "transaction" not in str(told.value)
    cluster.written = Written({A: 10, B: 3})
    with pytest.raises(SourceError, match="No offset matched") as told:
        found(cluster, **starts)
    said = "In t-1 an open transaction" in str(told.value)
    assert said is (level == "read_committed")
    assert ("'eo-kafka txn list --topic t'" in str(told.value)) is said
