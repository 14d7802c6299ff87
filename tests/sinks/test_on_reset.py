"""Option `onReset` without a broker: names of flows, where a new query's source starts, and what a
ledger says of its owners."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from eo_kafka.connectors import kafka_source
from eo_kafka.connectors.kafka_source import KafkaStreamReader
from eo_kafka.core.offsets import TopicPartition, decode, decode_position
from eo_kafka.core.transaction import Decision, DecisionState
from eo_kafka.errors import DataLossError, ForeignLedger, OptionsError, SourceError
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import on_reset
from eo_kafka.sources import recorded_ends
from eo_kafka.sources.lookup import Ends, Topics
from eo_kafka.sources.settings.options import SourceOptions
from eo_kafka.state.ledger import records
from eo_kafka.state.ledger.ledger import Ledger, fold
from eo_kafka.state.ledger.succession import SUCCESSION_KEY, Succession, encode_succession
from eo_kafka.state.snapshots.batch_ends import (
    continued_from,
    end_of_topics,
    ends_of,
    is_replayable,
    same_lines,
)

KAFKA = {"kafka.bootstrap.servers": "localhost:9092"}
NONE = DecisionState.VOID


def at(*offsets: int, topic: str = "t") -> dict[str, dict[str, int]]:
    return {topic: {str(number): offset for number, offset in enumerate(offsets)}}


def decided(batch: int, *ends: object, state: DecisionState = DecisionState.DONE):
    lines = tuple(json.dumps(end) for end in ends)
    found = Decision("main", batch, 0, state, 1, 5, 1, 0, (), lines)
    return records.decision_record(found)


def continued(*ends: object):
    lines = tuple(json.dumps(end) for end in ends)
    return SUCCESSION_KEY, encode_succession(Succession(("a",), lines))


def marked(*offsets: int, ledger: str = "__eo_kafka.job.ledger") -> dict[str, dict[str, int]]:
    """As the source writes where it goes on."""
    return {**at(*offsets), f"@continues {ledger}": {}}


class Kafka:
    """Stands in for OffsetLookup: a topic of two partitions, and whatever `log` the ledger has."""

    log: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, options: SourceOptions) -> None:
        self._topics = options.subscription.topics

    def partitions(self) -> set[TopicPartition]:
        return {TopicPartition(topic, number) for topic in self._topics for number in (0, 1)}

    def look(self) -> Topics:
        return Topics(self.partitions(), {})

    def earliest(self, partitions) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def latest(self, partitions, known=None) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 100)

    def ends(self, partitions, known=None) -> Ends:
        return Ends(self.latest(partitions), {})

    def close(self) -> None:
        pass


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch):
    def read_records(*_: object) -> Iterator[tuple[int, bytes, bytes]]:
        return ((place, key, value) for place, (key, value) in enumerate(Kafka.log))

    for module in (kafka_source, recorded_ends):
        monkeypatch.setattr(module, "OffsetLookup", Kafka)
    monkeypatch.setattr(recorded_ends, "read_records", read_records)

    def make(
        *log: tuple[bytes, bytes], unset: Sequence[str] = (), **extra: str
    ) -> KafkaStreamReader:
        monkeypatch.setattr(Kafka, "log", log)
        given = {**KAFKA, "subscribe": "t", "startingOffsets": "earliest", "jobName": "job"}
        given = {name: given[name] for name in given if name not in unset}
        options = SourceOptions.parse({**given, "onReset": "continue", **extra}, streaming=True)
        return KafkaStreamReader(options)

    return make


def ranges(reader: KafkaStreamReader, start: object, end: object) -> dict[int, tuple[int, int]]:
    tasks = [held for task in reader.partitions(start, end) for held in task.value[0]]
    return {one.partition.partition: (one.start, one.end) for one in tasks if one.start < one.end}


def test_a_new_query_starts_where_the_job_ended_by_an_empty_batch(stream) -> None:
    reader = stream(
        decided(6, at(20, 30)), decided(7, at(30, 40)), decided(8, at(9, 9), state=NONE)
    )
    assert reader.initialOffset() == {}
    assert reader.latestOffset({}) == marked(30, 40)
    assert ranges(reader, {}, marked(30, 40)) == {}
    assert reader.latestOffset(marked(30, 40)) == at(100, 100)
    assert ranges(reader, marked(30, 40), at(100, 100)) == {0: (30, 100), 1: (40, 100)}


@pytest.mark.parametrize("tells_start", [True, False])  # Spark before 4.2 does not
def test_while_nothing_comes_the_place_is_written_as_it_was(stream, tells_start) -> None:
    """Spark would run a batch for another text; the mark may name another ledger."""
    stored = marked(100, 100, ledger="other")
    reader = stream(decided(7, at(30, 40)))
    reader.partitions({}, stored)
    assert json.dumps(reader.latestOffset(stored if tells_start else None)) == json.dumps(stored)


@pytest.mark.parametrize("mode", ["stop", "new-job"])
def test_otherwise_it_starts_as_it_is_told(stream, mode) -> None:
    reader = stream(decided(7, at(30, 40)), onReset=mode)
    assert reader.latestOffset(reader.initialOffset()) == {**at(100, 100), "@from t 0,0": {}}


def test_without_a_batch_there_is_nothing_to_continue(stream) -> None:
    for log in ([], [decided(0, at(30, 40), state=NONE)]):
        reader = stream(*log)
        assert reader.initialOffset() == at(0, 0)
        assert ranges(reader, at(0, 0), at(30, 40)) == {0: (0, 30), 1: (0, 40)}


def test_batch_0_of_a_query_that_continued_is_empty_again_after_a_restart(stream) -> None:
    end = at(30, 40)
    before, after = [decided(7, end)], [continued(end)]
    one_batch = [decided(0, end)]
    for log in (before, after, [*after, decided(0, marked(30, 40))], one_batch):
        reader = stream(*log)
        assert ranges(reader, reader.initialOffset(), marked(30, 40)) == {}


def test_batch_0_of_the_query_that_wrote_the_ledger_is_what_it_was(stream) -> None:
    """Its state, if it has one, would come out empty."""
    first = decided(0, at(30, 40))
    open_one = decided(0, at(30, 40), state=DecisionState.DECIDED)
    for log in (
        [first],
        [open_one],
        [first, decided(1, at(30, 40))],
        [first, decided(1, at(50, 50))],
    ):
        reader = stream(*log)
        assert ranges(reader, reader.initialOffset(), at(30, 40)) == {0: (0, 30), 1: (0, 40)}
    reader = stream(first, startingOffsets='{"t":{"0":5,"1":6}}')
    assert ranges(reader, reader.initialOffset(), at(30, 40)) == {0: (5, 30), 1: (6, 40)}


def test_each_of_several_sources_finds_its_own(stream) -> None:
    log = [decided(3, at(1, 2, topic="u"), at(3, 4))]
    for topic, place in (("t", at(3, 4)), ("u", at(1, 2, topic="u"))):
        reader = stream(*log, subscribe=topic)
        found = reader.latestOffset(reader.initialOffset())
        assert found == {**place, "@continues __eo_kafka.job.ledger": {}}


@pytest.mark.parametrize(
    "ends", [[at(1, 1, topic="u")], [at(1, 2), at(3, 4)], ["a file source's"], ["-"]]
)
def test_a_source_that_cannot_be_told_is_refused(stream, ends) -> None:
    with pytest.raises(SourceError, match="Where this query goes on"):
        stream(decided(3, *ends)).initialOffset()


def test_a_place_that_is_not_there_any_more_is_data_loss(stream) -> None:
    for end in (at(30, 101), at(30, 40, 50)):
        reader = stream(decided(3, end))
        with pytest.raises(DataLossError, match="The query before ended at"):
            reader.latestOffset(reader.initialOffset())


def test_a_source_needs_the_jobs_name_to_continue() -> None:
    with pytest.raises(OptionsError, match="needs the sink's 'jobName'"):
        SourceOptions.parse({**KAFKA, "subscribe": "t", "onReset": "continue"}, streaming=True)


def test_where_a_query_would_go_on() -> None:
    start, end = [json.dumps(at(offset)) for offset in (1, 2)]
    assert Ledger().ends("main") == ()
    assert fold([continued(at(1))]).ends("main") == (start,)
    later = [continued(at(1)), decided(0, at(2)), decided(1, at(3), state=NONE)]
    assert fold(later).ends("main") == (end,)
    assert fold([*later, (SUCCESSION_KEY, None)]).succession == Succession()


def test_a_mark_changes_no_place() -> None:
    lines = [json.dumps(one) for one in (at(1, 2), marked(1, 2))]
    one, other = map(decode_position, lines)
    assert (one.offsets, one.continues) == (other.offsets, None)
    assert other.continues == "__eo_kafka.job.ledger"
    assert [continued_from(line) for line in lines] == [None, "__eo_kafka.job.ledger"]
    assert continued_from(f"name:{lines[1]}") == "__eo_kafka.job.ledger"
    assert continued_from("v1") is continued_from("-") is None
    assert same_lines(lines[:1], lines[1:])
    assert [ends_of(line) for line in lines] == [one, other]
    assert is_replayable(lines[1])
    assert end_of_topics(lines[1:], {"t"}) == one.offsets
    with pytest.raises(ValueError, match="is none"):
        decode(lines[1])  # as a user's startingOffsets
    with pytest.raises(ValueError, match="is none"):
        decode_position({"@continues x": {"0": 1}})


def sink(**given: str) -> SinkOptions:
    return SinkOptions.parse({**KAFKA, "topic": "out", **given}, streaming=True)


def flow(
    tmp_path: Path, storage: str = "s", place: str = "out/copy/0", query: str = "copy"
) -> dict:
    folder = tmp_path / storage / "_checkpoints" / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text('{"id":"b1-c2"}')
    return {"queryname": query, "checkpointlocation": f"file:{folder}"}


def test_a_flow_has_a_job_of_its_own_that_survives_a_refresh(tmp_path) -> None:
    first = sink(**flow(tmp_path))
    assert first.job_of_flow
    assert first.job is not None
    assert first.job.startswith("s-")
    assert first.job.endswith(".copy")
    assert sink(**flow(tmp_path, place="out/copy/12")).job == first.job
    assert sink(**{**flow(tmp_path), "jobName": "mine"}).job == "mine"
    others = [
        flow(tmp_path, place="out/more/0", query="more"),
        flow(tmp_path, storage="other/s"),  # another pipeline's
        flow(tmp_path, storage="z"),
    ]
    assert len({first.job, *(sink(**one).job for one in others)}) == 4
    strange = sink(**flow(tmp_path, storage="my storage", query="spark_catalog.default.copy")).job
    assert strange is not None
    assert strange.startswith("my-storage-")


@pytest.mark.parametrize("place", ["out/copy", "out/other/0", "out/copy/zero"])
def test_a_plain_query_is_named_as_before(tmp_path, place) -> None:
    options = sink(**flow(tmp_path, place=place))
    assert (options.job, options.job_of_flow) == ("copy", False)


def test_what_has_no_ledger_or_cannot_continue_is_refused() -> None:
    for given in ({"guarantee": "none"}, {"guarantee": "at-least-once"}):
        with pytest.raises(OptionsError, match="have no ledger"):
            sink(onReset="new-job", **given)
    with pytest.raises(OptionsError, match="'two-phase'"):
        sink(onReset="continue", commit="idempotent", jobName="j")
    with pytest.raises(OptionsError, match="have no ledger"):
        SinkOptions.parse({**KAFKA, "topic": "out", "onReset": "new-job"}, streaming=False)


@pytest.fixture
def lost_checkpoint(stream, tmp_path, monkeypatch):
    """A query ended at 40 in each partition, and the topic at 100: batch 0 of a new one with
    `onReset=new-job`, as the reader plans it and Spark stores it. What the sink's S1 says."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    ended = fold([decided(7, at(40, 40)), (records.OWNER_KEY, records.encode_owner("old"))])

    def begin(
        starting: str | None, *, told: bool = True, again: bool = False
    ) -> tuple[SinkOptions, Coordinator]:
        given = {} if starting is None else {"startingOffsets": starting}
        reader = stream(onReset="stop", unset=("startingOffsets",), **given)
        start, planned = reader.initialOffset(), tmp_path / "offsets" / "0"
        end = (
            json.loads(planned.read_text().split("\n")[2]) if again else reader.latestOffset(start)
        )
        if told:
            reader.partitions(start, end)
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "metadata").write_text('{"id":"new"}')
        (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(end)}")
        options = sink(jobName="job", onReset="new-job", checkpointlocation=str(tmp_path))
        return replace(options, query_id="new"), Coordinator(ended)

    return begin


class Coordinator:
    topic, barrier = "__eo_kafka.job.ledger", 0

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def write(self, generation: int, attempt) -> None:
        fold(attempt(self.ledger).records, self.ledger)


def test_a_new_job_that_would_pass_over_records_by_default_is_refused(lost_checkpoint) -> None:
    options, coordinator = lost_checkpoint(None)
    with pytest.raises(ForeignLedger, match="startingOffsets") as told:
        on_reset.is_new_query(options, coordinator)
    assert '{"t":{"0":100,"1":100}}' in str(told.value)
    assert '{"t":{"0":40,"1":40}}' in str(told.value)
    for other in ("earliest", '{"t":{"0":40,"1":40}}'):  # the checkpoint keeps what was planned
        with pytest.raises(ForeignLedger, match="delete this new checkpoint"):
            on_reset.is_new_query(*lost_checkpoint(other, again=True))
    assert on_reset.is_new_query(*lost_checkpoint("latest", again=True))
    assert on_reset.is_new_query(*lost_checkpoint("earliest"))  # as it says


@pytest.mark.parametrize("starting", ["earliest", "latest", '{"t":{"0":40,"1":50}}', None])
def test_what_a_new_job_passes_over_is_told(lost_checkpoint, caplog, starting) -> None:
    options, coordinator = lost_checkpoint(starting, told=starting is not None)
    assert on_reset.is_new_query(options, coordinator)
    on_reset.take_over(options, coordinator, 4, None)
    (told,) = [one.getMessage() for one in caplog.records if "has taken job" in one.getMessage()]
    assert ("would be read by neither" in told) == (starting not in ("earliest", None))
    assert ("is not known here" in told) == (starting is None)
    if starting and starting.startswith("{"):
        assert '{"t":{"1":50}}' in told
    assert coordinator.ledger.owner == "new"
