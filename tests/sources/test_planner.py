"""Which ranges a batch covers, with brokers that say what the test wants."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import nullcontext
from typing import cast

import pytest

from eo_kafka.core.offsets import EARLIEST, LATEST, OffsetRange, Offsets, Position, TopicPartition
from eo_kafka.errors import DataLossError, SourceError, UnknownTopic
from eo_kafka.sources import late_bound
from eo_kafka.sources.lookup import Ends, OffsetLookup, Topics
from eo_kafka.sources.planner import Planner
from eo_kafka.sources.settings.options import SourceOptions

A, B, C = (TopicPartition("t", number) for number in range(3))


class Written(dict[TopicPartition, int]):
    """How far logs were written that an open transaction holds back."""

    def __call__(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self.get(at, 0) for at in partitions}


class Cluster:
    """Stands in for the brokers: the first and the last offset of every partition."""

    def __init__(self, **logs: tuple[int, int]) -> None:
        self.logs = {TopicPartition("t", int(name[1:])): log for name, log in logs.items()}
        self.written: dict[TopicPartition, int] = Written()
        self.groups: dict[TopicPartition, int] = {}
        self.times: dict[TopicPartition, dict[int, int]] = {}
        self.made = {"t": "first"}

    def partitions(self) -> set[TopicPartition]:
        return set(self.logs)

    def look(self) -> Topics:
        return Topics(set(self.logs), dict(self.made))

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        if not set(topics) <= self.made.keys():
            raise UnknownTopic("it is not there")
        return {topic: self.made[topic] for topic in topics}

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self.logs[at][0] for at in partitions}

    def latest(
        self, partitions: Collection[TopicPartition], known: Offsets | None = None
    ) -> dict[TopicPartition, int]:
        ends, known = {at: self.logs[at][1] for at in partitions}, known or {}
        ahead = {at: known[at] for at in ends if self.written.get(at, 0) >= known.get(at, 0) > 0}
        return {at: max(end, ahead.get(at, 0)) for at, end in ends.items()}

    def ends(self, partitions: Collection[TopicPartition], known: Position) -> Ends:
        return Ends(self.latest(partitions, known.offsets), {})

    def committed(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        assert group == "Old App"
        return {at: self.groups[at] for at in partitions if at in self.groups}

    def close(self) -> None:
        pass

    def at_times(self, times: Offsets) -> dict[TopicPartition, int | None]:
        return {at: self.times.get(at, {}).get(time) for at, time in times.items()}


def planner(cluster: Cluster, *, streaming: bool = True, **options: str) -> Planner:
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", **options}
    read = SourceOptions.parse(given, streaming=streaming)
    return Planner(read, cast(OffsetLookup, cluster))


def started(plan: Planner) -> dict[TopicPartition, int]:
    """The end of what a new query can read."""
    return plan.newest(Position(plan.stored_start()), first=True)


def test_latest_stores_its_start_as_the_end_of_a_batch_that_reads_nothing() -> None:
    plan = planner(Cluster(p0=(0, 10), p1=(3, 20)))
    start = plan.stored_start()
    end = plan.end(start, plan.newest(Position(start)), None, first=True)

    assert start == {}
    assert end == {A: 10, B: 20}
    assert plan.ranges(start, Position(end), first=True) == []


def test_after_a_restart_latest_still_means_what_was_stored() -> None:
    grown = planner(Cluster(p0=(0, 99), p1=(3, 99), p2=(0, 5)))

    assert grown.ranges(grown.stored_start(), Position({A: 10, B: 20}), first=True) == []
    assert grown.ranges({A: 10, B: 20}, Position({A: 99, B: 99, C: 5}), first=False) == [
        OffsetRange(A, 10, 99),
        OffsetRange(B, 20, 99),
        OffsetRange(C, 0, 5),
    ]


def test_a_limit_does_not_hold_back_the_start_at_latest() -> None:
    plan = planner(Cluster(p0=(0, 10), p1=(3, 20)))

    assert plan.end({}, {A: 10, B: 20}, 1, first=True) == {A: 10, B: 20}


def test_explicit_offsets_are_read_at_once_and_latest_beside_them_is_not() -> None:
    plan = planner(
        Cluster(p0=(0, 10), p1=(3, 20), p2=(4, 30)),
        startingOffsets='{"t":{"0":7,"1":-1,"2":-2}}',
    )
    start = plan.stored_start()

    assert start == {A: 7, C: 4}
    assert plan.ranges(start, Position(plan.newest(Position(start))), first=True) == [
        OffsetRange(A, 7, 10),
        OffsetRange(C, 4, 30),
    ]


@pytest.mark.parametrize("starting", ["latest", '{"t":{"0":-1}}'])
def test_only_what_the_first_batch_finds_starts_at_latest(starting: str) -> None:
    """A batch that found nothing, of a pattern or of assigned partitions, stored nothing."""
    plan = planner(Cluster(p0=(0, 10)), startingOffsets=starting)

    assert plan.end({}, {A: 10}, 4, first=True) == {A: 10}
    assert plan.ranges({}, Position({A: 10}), first=True) == []
    assert plan.end({}, {A: 10}, 4, first=False) == {A: 4}
    assert plan.ranges({}, Position({A: 4}), first=False) == [OffsetRange(A, 0, 4)]


def test_earliest_is_where_each_log_begins() -> None:
    plan = planner(Cluster(p0=(0, 10), p1=(3, 20)), startingOffsets="earliest")

    assert plan.stored_start() == {A: 0, B: 3}


def test_a_batch_planned_before_a_partition_was_added_is_planned_again() -> None:
    plan = planner(Cluster(p0=(0, 10), p1=(0, 20)), startingOffsets="earliest")

    assert plan.ranges(plan.stored_start(), Position({A: 8}), first=True) == [OffsetRange(A, 0, 8)]


@pytest.mark.parametrize("starting", [{"startingOffsets": "earliest"}, {"startingTimestamp": "1"}])
def test_the_first_batch_begins_where_it_was_planned_to(
    starting: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(p0=(0, 10), p1=(3, 10))
    cluster.times = {A: {1: 0}, B: {1: 3}}
    plan = planner(cluster, **starting)
    begins = plan.begins(plan.stored_start(), {A: 10, B: 10})
    assert begins == {A: 0, B: 3}

    cluster.logs[A], cluster.times[A] = (6, 12), {1: 6}
    again = planner(cluster, **starting)
    planned = again.ranges(
        again.stored_start(), Position({A: 10, B: 10}, begins=begins), first=True
    )
    assert planned == [OffsetRange(A, 0, 10), OffsetRange(B, 3, 10)]
    (told,) = caplog.messages
    assert 'begins where it was planned to, at {"t":{"0":0}}' in told
    assert 'and not at {"t":{"0":6}}' in told


def test_a_batch_of_which_all_has_expired_is_planned_where_it_was() -> None:
    plan = planner(Cluster(p0=(15, 20)), startingOffsets="earliest")
    until = Position({A: 10}, begins={A: 0})
    assert plan.ranges(plan.stored_start(), until, first=True) == [OffsetRange(A, 0, 10)]


def test_a_later_batch_begins_where_the_one_before_ended() -> None:
    plan = planner(Cluster(p0=(0, 20)), startingOffsets="earliest")
    until = Position({A: 20}, begins={A: 0})
    assert plan.ranges({A: 10}, until, first=False) == [OffsetRange(A, 10, 20)]


def test_where_the_first_batch_begins_is_kept_also_of_what_starts_at_its_end() -> None:
    given = {"startingOffsets": '{"t":{"0":-1,"1":4}}'}
    plan = planner(Cluster(p0=(0, 10), p1=(0, 10)), **given)
    assert plan.begins(plan.stored_start(), {A: 10, B: 10}) == {A: 10, B: 4}
    for options in {"startingOffsets": "latest"}, {"startingOffsets": "group:Old App"}:
        cluster = Cluster(p0=(0, 10))
        cluster.groups = {A: 5}
        plan = planner(cluster, **options)
        begins = plan.begins(plan.stored_start(), {A: 5})
        assert begins == {A: 5}

        cluster.times = {A: {1: 2}}
        for changed in {"startingOffsets": "earliest"}, {"startingTimestamp": "1"}, options:
            again = planner(cluster, **changed)
            until = Position({A: 5}, begins=begins)
            assert again.ranges(again.stored_start(), until, first=True) == []


def test_a_beginning_behind_the_end_is_not_kept() -> None:
    """Records were deleted while it was planned: it is looked up again."""
    plan = planner(Cluster(p0=(12, 20)), startingOffsets="earliest")
    assert plan.begins(plan.stored_start(), {A: 10}) == {}


def test_what_a_first_batch_says_it_begins_with_was_not_added() -> None:
    """By the option of now, no start is given of it."""
    plan = planner(Cluster(p0=(0, 10), p1=(0, 10)), startingOffsets="earliest")
    until = Position({A: 10, B: 10}, begins={A: 0, B: 4})
    assert plan.ranges({A: 0}, until, first=True)[1:] == [OffsetRange(B, 4, 10)]


RESTARTS = [
    {"startingTimestamp": "50"},
    {"startingOffsetsByTimestamp": '{"t":{"0":50}}'},
    {"startingOffsets": '{"t":{"0":4}}'},
]


@pytest.mark.parametrize("given", RESTARTS, ids=["time", "times", "offsets"])
def test_a_first_batch_that_says_where_it_begins_needs_no_start(given: dict[str, str]) -> None:
    """Since it was planned its records have expired, and a partition was added."""
    cluster = Cluster(p0=(10, 12), p1=(0, 7))
    until = Position({A: 10}, begins={A: 4})
    again = planner(cluster, **given)
    assert again.ranges(again.stored_start(), until, first=True) == [OffsetRange(A, 4, 10)]
    assert again.newest(until) == {A: 12, B: 7}
    added = again.ranges(until.offsets, Position({A: 12, B: 7}), first=False)
    assert added == [OffsetRange(A, 10, 12), OffsetRange(B, 0, 7)]


@pytest.mark.parametrize("given", RESTARTS, ids=["time", "times", "offsets"])
def test_a_start_that_is_needed_and_not_found_is_told(given: dict[str, str]) -> None:
    plan = planner(Cluster(p0=(0, 10), p1=(0, 7)), **given)
    start, why = plan.stored_start(), r"must specify all|No offset matched"
    with pytest.raises(SourceError, match=why):
        plan.newest(Position(start), first=True)
    until = Position({A: 10, B: 7}, begins={A: 4})
    with pytest.raises(SourceError, match=why):
        plan.ranges(start, until, first=True)


def test_of_what_was_added_while_it_was_planned_it_is_kept_too() -> None:
    cluster = Cluster(p0=(0, 10))
    plan = planner(cluster, startingOffsets="earliest")
    start = plan.stored_start()
    cluster.logs[B] = (0, 5)
    assert plan.begins(start, {A: 10, B: 5}) == {A: 0, B: 0}


def test_a_limit_counts_an_added_partition_from_its_first_offset() -> None:
    plan = planner(Cluster(p0=(0, 100), p1=(0, 300)))

    assert plan.end({A: 0}, {A: 100, B: 300}, 40, first=False) == {A: 10, B: 30}


LOSSES = [
    ({A: 5, B: 7}, {A: 9}, "Partitions t-1 are gone", [OffsetRange(A, 5, 9)]),
    (
        {A: 5},
        {A: 9, B: 20},
        "Added partition t-1 starts from offset 3 instead of 0",
        [OffsetRange(A, 5, 9), OffsetRange(B, 3, 20)],
    ),
    ({A: 5, B: 7}, {A: 9, B: 2}, "t-1 was changed from 7 to 2", [OffsetRange(A, 5, 9)]),
]


@pytest.mark.parametrize(("start", "end", "sentence", "left"), LOSSES)
def test_data_loss_stops_the_query_or_is_logged(
    start: Offsets,
    end: Offsets,
    sentence: str,
    left: list[OffsetRange],
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(p0=(0, 10), p1=(3, 20))

    with pytest.raises(DataLossError, match=sentence):
        planner(cluster).ranges(start, Position(end), first=False)
    with caplog.at_level(logging.WARNING):
        assert (
            planner(cluster, failOnDataLoss="false").ranges(start, Position(end), first=False)
            == left
        )
    assert sentence in caplog.text


NUMBERS = {"startingOffsets": '{"t":{"0":99,"1":3}}'}
BY_TOPIC = {"startingOffsets": '{"t":{"0":99,"1":3},"u":"latest"}', "subscribe": "t,u"}


@pytest.mark.parametrize("given", [NUMBERS, BY_TOPIC, {**NUMBERS, "failOnDataLoss": "false"}])
@pytest.mark.parametrize("limit", [None, 5])
def test_a_start_beyond_the_end_is_refused_before_an_end_is_stored(
    given: dict[str, str], limit: int | None
) -> None:
    """Stored, the end would be below the start, and the next batch would begin at it."""
    cluster = Cluster(p0=(0, 10), p1=(3, 20))
    if given is BY_TOPIC:
        cluster.logs[TopicPartition("u", 0)] = (0, 5)
    plan = planner(cluster, **given)
    start = plan.stored_start()
    with pytest.raises(SourceError, match="offset 99 of partition t-0, which ends at 10") as stop:
        plan.end(start, plan.newest(Position(start), first=True), limit, first=True)
    assert "t-1" not in str(stop.value) and "failOnDataLoss" not in str(stop.value)
    assert not isinstance(stop.value, DataLossError), "nothing was lost: one waits, or corrects it"

    cluster.logs[A] = (0, 99)
    again = planner(cluster, **given)
    start = again.stored_start()
    end = again.end(start, again.newest(Position(start), first=True), None, first=True)
    assert end[A] == start[A] == 99
    assert A not in {one.partition for one in again.ranges(start, Position(end), first=True)}
    assert again.ranges({A: 99}, Position({A: 101}), first=False) == [OffsetRange(A, 99, 101)]


def test_a_later_batch_may_find_that_the_log_is_shorter() -> None:
    plan = planner(Cluster(p0=(0, 10), p1=(3, 20)), **NUMBERS)
    assert plan.end({A: 99, B: 3}, {A: 10, B: 20}, None, first=False) == {A: 10, B: 20}
    with pytest.raises(DataLossError, match="t-0 was changed from 99 to 10"):
        plan.ranges({A: 99, B: 3}, Position({A: 10, B: 20}), first=False)


@pytest.mark.parametrize("given", [NUMBERS, BY_TOPIC, {**NUMBERS, "failOnDataLoss": "false"}])
def test_a_first_batch_that_is_stored_with_an_end_below_its_start_is_refused(
    given: dict[str, str],
) -> None:
    """By an older eo-kafka, or Spark's own connector; also when the log is long enough by now."""
    plan = planner(Cluster(p0=(0, 200), p1=(3, 20)), **given)
    with pytest.raises(SourceError, match="offset 99 of partition t-0, which ends at 10") as stop:
        plan.ranges({A: 99, B: 3}, Position({A: 10, B: 20}), first=True)
    assert "'startingOffsets'" in str(stop.value) and "new checkpoint" in str(stop.value)
    assert "set 'failOnDataLoss' to false" not in str(stop.value)


def test_an_earliest_start_that_is_behind_a_stored_end_is_data_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The records of the first batch expired before it was run again."""
    cluster, end = Cluster(p0=(50, 99)), Position({A: 40})
    with pytest.raises(DataLossError, match="t-0 was changed from 50 to 40") as loss:
        planner(cluster, startingOffsets="earliest").ranges({A: 50}, end, first=True)
    assert "startingOffsets" not in str(loss.value)
    lenient = planner(cluster, startingOffsets="earliest", failOnDataLoss="false")
    assert lenient.ranges({A: 50}, end, first=True) == []
    assert "t-0 was changed from 50 to 40" in caplog.text


BY_TIME = '{"t":{"0":50,"1":60}}'


def test_a_query_starts_at_the_first_record_that_is_not_older() -> None:
    cluster = Cluster(p0=(0, 10), p1=(3, 20))
    cluster.times = {A: {50: 4}, B: {60: 7}}
    plan = planner(cluster, startingOffsetsByTimestamp=BY_TIME, startingOffsets="latest")

    start = plan.stored_start()
    assert start == {A: 4, B: 7}
    assert plan.ranges(start, Position({A: 10, B: 20}), first=True) == [
        OffsetRange(A, 4, 10),
        OffsetRange(B, 7, 20),
    ]


def test_without_so_new_a_record_a_query_fails_or_starts_at_the_newest_offset() -> None:
    cluster = Cluster(p0=(0, 10), p1=(3, 20))
    cluster.times = {A: {50: 4}}
    with pytest.raises(SourceError, match="partition t-1 and timestamp 50"):
        started(planner(cluster, startingTimestamp="50"))
    latest = {"startingTimestamp": "50", "startingOffsetsByTimestampStrategy": "latest"}
    plan = planner(cluster, **latest)

    start = plan.stored_start()
    assert start == {A: 4, B: 20}
    assert plan.end(start, {A: 10, B: 20}, None, first=True) == {A: 10, B: 20}
    assert plan.ranges(start, Position({A: 10, B: 20}), first=True) == [OffsetRange(A, 4, 10)]
    assert planner(cluster, **latest).ranges(
        {A: 10, B: 20}, Position({A: 12, B: 25}), first=False
    ) == [
        OffsetRange(A, 10, 12),
        OffsetRange(B, 20, 25),
    ]


def test_what_is_written_while_it_is_asked_for_a_time_is_read() -> None:
    """It has no record so new yet, and has one before the batch's end is asked for."""

    class Busy(Cluster):
        def at_times(self, times: Offsets) -> dict[TopicPartition, int | None]:
            answer = super().at_times(times)
            self.logs[A], self.times = (0, 15), {A: {50: 12}}
            return answer

    times = {"startingTimestamp": "50", "startingOffsetsByTimestampStrategy": "latest"}
    cluster = Busy(p0=(0, 10))
    plan = planner(cluster, **times)
    start = plan.stored_start()
    end = plan.end(start, plan.newest(Position(start), first=True), None, first=True)
    until = Position(end, begins=plan.begins(start, end))
    read = [OffsetRange(A, 10, 15)]
    assert plan.ranges(start, until, first=True) == read
    again = planner(cluster, **times)
    assert again.ranges(again.stored_start(), until, first=True) == read


def test_a_record_that_came_since_batch_0_was_planned_does_not_change_it() -> None:
    """The driver died in batch 0, and the start is looked up again."""
    cluster = Cluster(p0=(0, 30))
    cluster.times = {A: {50: 25}}
    options = {"startingTimestamp": "50", "startingOffsetsByTimestampStrategy": "latest"}
    plan = planner(cluster, **options)

    assert plan.ranges(plan.stored_start(), Position({A: 20}), first=True) == []


def test_times_are_given_for_each_partition() -> None:
    plan = planner(Cluster(p0=(0, 10)), startingOffsetsByTimestamp=BY_TIME)
    with pytest.raises(SourceError, match="startingOffsetsByTimestamp .*all TopicPartitions"):
        started(plan)


def test_a_batch_between_two_times() -> None:
    cluster = Cluster(p0=(0, 10), p1=(3, 20))
    cluster.times = {A: {50: 4, 60: 6}, B: {50: 5}}
    plan = planner(cluster, startingTimestamp="50", streaming=False, endingTimestamp="60")
    assert plan.batch_ranges() == [OffsetRange(A, 4, 6), OffsetRange(B, 5, 20)]


def test_large_partitions_are_cut_into_tasks() -> None:
    plan = planner(Cluster(p0=(0, 10), p1=(0, 1)), maxRecordsPerPartition="5")
    assert plan.ranges({A: 0, B: 0}, Position({A: 10, B: 1}), first=False) == [
        OffsetRange(A, 0, 5),
        OffsetRange(A, 5, 10),
        OffsetRange(B, 0, 1),
    ]


def test_a_batch_is_resolved_once_when_it_is_planned() -> None:
    """Else an attempt of a task that is run again would read other rows than the first."""
    cluster = Cluster(p0=(2, 10))
    plan = planner(cluster, streaming=False)
    assert plan.batch_ranges() == [OffsetRange(A, 2, 10)]
    assert plan.open_ranges == {A: OffsetRange(A, EARLIEST, LATEST)}, "for a side of a stream"
    assert planner(cluster, streaming=False, maxPartitions="2").batch_ranges() == [
        OffsetRange(A, 2, 10)
    ]
    assert planner(cluster, streaming=False, minPartitions="2").batch_ranges() == [
        OffsetRange(A, 2, 6),
        OffsetRange(A, 6, 10),
    ]


def test_a_batch_whose_end_is_open_reads_what_is_added_to_its_topics() -> None:
    cluster = Cluster(p0=(2, 10))

    def known(**options: str) -> Topics | None:
        plan = planner(cluster, streaming=False, **options)
        plan.batch_ranges()
        return plan.to_be_added_to

    assert known() == Topics({A}, {"t": "first"})
    assert known(startingOffsets='{"t":{"0":3}}', endingOffsets='{"t":{"0":-1}}') == known()
    assert known(endingOffsets='{"t":{"0":9}}') is None
    assert known(minPartitions="2") is None, "it does not read on"
    del cluster.logs[A]
    assert known() == Topics(set(), {"t": "first"})


def test_what_was_added_must_be_of_the_topic_that_was_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(p0=(2, 10), p1=(0, 5))
    cluster.made = {"t": "second"}
    monkeypatch.setattr(late_bound, "OffsetLookup", lambda _options: cluster)
    monkeypatch.setattr(late_bound, "remember", lambda _servers: None)
    read = SourceOptions.parse(
        {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}, streaming=False
    )
    added = OffsetRange(B, EARLIEST, LATEST)
    assert late_bound.added_ranges(read, Topics({A}, {"t": "first"})) == ([added], {"t": "first"})
    assert late_bound.added_ranges(read, Topics({A}, {})) == ([added], {"t": "second"})
    assert late_bound.added_ranges(read, Topics({A, B}, {})) == ([], {})


def test_a_batch_that_is_cut_reads_nothing_of_a_partition_without_so_new_a_record() -> None:
    cluster = Cluster(p0=(0, 10), p1=(0, 10))
    cluster.times = {A: {50: 4}}
    times = {"startingTimestamp": "50", "startingOffsetsByTimestampStrategy": "latest"}
    plan = planner(cluster, streaming=False, minPartitions="3", **times)
    found = plan.batch_ranges()
    assert found == [OffsetRange(A, 4, 6), OffsetRange(A, 6, 8), OffsetRange(A, 8, 10)]


def test_topics_by_word_and_by_offset() -> None:
    cluster = Cluster(p0=(0, 10))
    other = TopicPartition("u", 0)
    cluster.logs[other] = (5, 20)
    options = {"subscribe": "t,u", "startingOffsets": '{"t":{"0":3},"u":"latest"}'}
    plan = planner(cluster, **options)

    start = plan.stored_start()
    assert start == {A: 3}
    assert plan.end(start, {A: 10, other: 20}, None, first=True) == {A: 10, other: 20}
    assert plan.ranges(start, Position({A: 10, other: 20}), first=True) == [OffsetRange(A, 3, 10)]
    again = planner(cluster, subscribe="t,u", startingOffsets='{"t":{"0":3},"u":"earliest"}')
    assert again.stored_start() == {A: 3, other: 5}


GROUP = {"startingOffsets": "group: Old App"}


def test_the_first_batch_ends_where_the_group_is_and_reads_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(p0=(0, 10), p1=(3, 20))
    cluster.groups = {A: 7}
    plan = planner(cluster, **GROUP)

    start = plan.stored_start()
    with caplog.at_level(logging.WARNING):
        end = plan.end(start, plan.newest(Position(start), first=True), 5, first=True)
    assert (start, end) == ({}, {A: 7, B: 3})
    assert "has committed nothing for t-1" in caplog.text
    assert plan.ranges(start, Position(end), first=True) == []
    cluster.groups = {A: 9, B: 20}  # the old application goes on: what was stored counts
    assert planner(cluster, **GROUP).ranges({}, Position(end), first=True) == []
    assert plan.end(end, {A: 10, B: 20}, None, first=False) == {A: 10, B: 20}
    assert plan.ranges(end, Position({A: 10, B: 20}), first=False) == [
        OffsetRange(A, 7, 10),
        OffsetRange(B, 3, 20),
    ]


def start_of(plan: Planner) -> dict[TopicPartition, int]:
    return plan.end({}, plan.newest(Position({}), first=True), None, first=True)


def test_a_batch_reads_from_where_the_group_is() -> None:
    cluster = Cluster(p0=(0, 10))
    cluster.groups = {A: 7}
    assert planner(cluster, streaming=False, **GROUP).batch_ranges() == [OffsetRange(A, 7, 10)]
    cluster.groups, cluster.written = {A: 15}, {A: 20}
    assert planner(cluster, streaming=False, **GROUP).batch_ranges() == [OffsetRange(A, 15, 15)]


@pytest.mark.parametrize(("position", "end"), [(1, 3), (21, 20)])
def test_a_group_that_is_where_no_records_are_is_data_loss(position: int, end: int) -> None:
    cluster = Cluster(p1=(3, 20))
    cluster.groups = {B: position}
    with pytest.raises(DataLossError, match=f"is at offset {position} of partition t-1"):
        start_of(planner(cluster, **GROUP))
    assert start_of(planner(cluster, failOnDataLoss="false", **GROUP)) == {B: end}


def test_a_group_may_be_ahead_of_what_may_be_read() -> None:
    cluster = Cluster(p0=(0, 10), p1=(3, 20))
    cluster.groups, cluster.written = {A: 15, B: 4}, {A: 15}
    plan = planner(cluster, **GROUP)
    assert plan.newest(Position({}), first=True) == {A: 15, B: 20}
    assert start_of(plan) == {A: 15, B: 4}


def test_a_group_may_go_on_while_the_query_starts() -> None:
    class Busy(Cluster):
        def committed(self, group: str, partitions: object) -> dict[TopicPartition, int]:
            self.logs[A] = (0, self.logs[A][1] + 10)
            return {A: self.logs[A][1]}

    assert start_of(planner(Busy(p0=(0, 10)), **GROUP)) == {A: 20}


def test_a_group_that_has_committed_nothing_at_all_is_refused() -> None:
    cluster = Cluster(p0=(0, 10), p1=(3, 20))
    with pytest.raises(
        SourceError, match=r"group 'Old App' has .* any partition of t\. .*earliest"
    ):
        start_of(planner(cluster, **GROUP))
    with pytest.raises(SourceError, match="group 'Old App' has committed nothing"):
        planner(cluster, streaming=False, **GROUP).batch_ranges()
    stored = planner(cluster, **GROUP)  # what Spark has stored counts
    assert stored.newest(Position({}), Position({A: 7}), first=True) == {A: 10, B: 20}
    assert start_of(planner(Cluster(), **GROUP)) == {}  # of a pattern that matches nothing yet


def test_a_topic_that_was_replaced_is_told_whatever_its_length() -> None:
    for length in (5, 10, 30):
        cluster = Cluster(p0=(0, 10))
        plan = planner(cluster)
        assert plan.newest(Position({A: 10})) == {A: 10}
        cluster.logs[A], cluster.made = (0, length), {"t": "second"}
        for _ in range(2):
            with pytest.raises(
                DataLossError, match=r"its id was first and is second now.*\"0\":10"
            ):
                plan.newest(Position({A: 10}))


def test_a_restart_knows_the_topics_by_what_its_position_says() -> None:
    for before, is_another in (({"t": "zero"}, True), ({"t": "first"}, False), ({}, False)):
        for is_replay in (True, False):
            plan = planner(Cluster(p0=(0, 30)))

            told = pytest.raises(DataLossError, match="was zero and is first now")
            with told if is_another else nullcontext():
                if is_replay:
                    plan.ranges({A: 10}, Position({A: 20}, ids=before), first=False)
                else:
                    plan.newest(Position({A: 10}, ids=before))


def test_a_batch_that_must_be_repeated_is_not_read_of_another_topic() -> None:
    lenient = {"kafka.bootstrap.servers": "localhost:9092", "failOnDataLoss": "false"}
    options = SourceOptions.parse({**lenient, "subscribe": "t"}, streaming=True)
    lookup = cast(OffsetLookup, Cluster(p0=(0, 30)))
    plan = Planner(options, lookup)
    with pytest.raises(DataLossError, match="cannot be; nothing was read"):
        plan.newest(Position({A: 10}), Position({A: 20}, ids={"t": "zero"}))


@pytest.mark.parametrize("looks", [1, 2, 9])
def test_partitions_that_one_broker_does_not_know_yet_are_not_taken_for_gone(
    monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """Brokers learn of new partitions one after the other, and each look may ask another one."""
    cluster = Cluster(p0=(0, 20), p1=(0, 5))
    answers = [Topics({A}, {"t": "first"})] * looks + [cluster.look()]
    monkeypatch.setattr(cluster, "look", lambda: answers.pop(0))
    plan = planner(cluster, **{"fetchOffset.retryIntervalMs": "1"})

    start = Position({A: 20, B: 3}, ids={"t": "first"})
    with nullcontext() if looks < 3 else pytest.raises(DataLossError, match="t-1 are gone"):
        assert plan.newest(start) == {A: 20, B: 5}


@pytest.mark.parametrize("still_read", ["t", "t,u"])
def test_what_is_gone_stops_the_query_before_spark_stores_an_end_without_it(
    still_read: str,
) -> None:
    """Or is left out of `subscribe` by mistake. Put back, it is read from where the query was."""
    cluster, other = Cluster(p0=(0, 20)), TopicPartition("u", 0)
    start = Position({A: 10, other: 3})
    quick = {"fetchOffset.retryIntervalMs": "1"}
    ways = r"u-0 are gone.*put the topic back into 'subscribe'.*'failOnDataLoss' to false"
    with pytest.raises(DataLossError, match=ways):
        planner(cluster, **quick, subscribe=still_read).newest(start)
    cluster.logs[other] = (0, 8)
    assert planner(cluster, **quick, subscribe="t,u").newest(start) == {A: 20, other: 8}


def test_what_was_gone_and_is_there_again_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    cluster, other = Cluster(p0=(0, 20)), TopicPartition("u", 0)
    plan = planner(
        cluster, subscribe="t,u", failOnDataLoss="false", **{"fetchOffset.retryIntervalMs": "1"}
    )
    start = Position({A: 10, other: 3})
    without = Position(plan.newest(start))
    assert plan.ranges(start.offsets, without, first=False) == [OffsetRange(A, 10, 20)]
    cluster.logs[other] = (0, 8)
    again = Position(plan.newest(without))
    with caplog.at_level(logging.WARNING):
        found = plan.ranges(without.offsets, again, first=False)
    assert found == [OffsetRange(other, 0, 8)]
    assert "u-0 is there again. It was read up to offset 3" in caplog.text


@pytest.mark.parametrize("asked_before", [False, True])
def test_a_restart_reads_nothing_of_a_deleted_topic_and_all_of_one_that_is_left_out(
    asked_before: bool,
) -> None:
    """The batch was planned by an earlier run: its end is all that is left of the topic. Spark
    asks for the partitions of where the batch begins first."""
    deleted, left_out = TopicPartition("deleted", 0), TopicPartition("left-out", 0)
    cluster = Cluster(p0=(0, 20))
    cluster.made["left-out"] = "other"
    start = {A: 10, deleted: 3, left_out: 1}
    end = Position({A: 20, deleted: 8, left_out: 2, TopicPartition("deleted", 1): 4})
    with pytest.raises(DataLossError, match=r"topics that were deleted since: \['deleted'\]"):
        planner(cluster).ranges(start, end, first=False)
    plan = planner(cluster, failOnDataLoss="false")
    if asked_before:
        assert plan.ranges(start, Position(start), first=False) == []
    assert plan.ranges(start, end, first=False) == [
        OffsetRange(left_out, 1, 2),
        OffsetRange(A, 10, 20),
    ]
    assert plan.topic_ids == {"t": "first", "left-out": "other"}


def test_a_batch_that_is_cut_is_told_of_a_start_behind_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As one that is not cut, by its tasks: the topic was made again, or an offset is wrong."""
    cluster = Cluster(p0=(0, 10), p1=(0, 10))
    starts = {"startingOffsets": '{"t":{"0":11,"1":4}}', "minPartitions": "2"}
    with pytest.raises(DataLossError, match="begin at offset 11 of partition t-0, which ends at 1"):
        planner(cluster, streaming=False, **starts).batch_ranges()
    lenient = planner(cluster, streaming=False, failOnDataLoss="false", **starts)
    assert lenient.batch_ranges() == [OffsetRange(B, 4, 7), OffsetRange(B, 7, 10)]
    assert "begin at offset 11 of partition t-0" in caplog.text
