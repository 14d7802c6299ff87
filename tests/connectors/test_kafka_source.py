"""The stream reader as Spark calls it, in the order of `research/spark.md` 4.4; no broker."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from eo_kafka.connectors import kafka_source
from eo_kafka.connectors.kafka_source import KafkaBatchReader, KafkaStreamReader
from eo_kafka.core.offsets import Offsets, Position, TopicPartition
from eo_kafka.errors import DataLossError, OptionsError, SourceError
from eo_kafka.sources.lookup import Ends, Topics
from eo_kafka.sources.recorded_ends import RecordedEnds
from eo_kafka.sources.settings.options import SourceOptions

GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
IDS = {"t": "an-id"}
END = {"t": {"0": 10, "1": 20}, "@id t an-id": {}}
FIRST_END = {**END, "@from t 0,0": {}}
END_LATER = {"t": {"0": 1010, "1": 1020}, "@id t an-id": {}}


class Log:
    """Stands in for OffsetLookup: two partitions that grow by ten whenever a test says so."""

    grown = first = 0

    def __init__(self, options: SourceOptions) -> None:
        pass

    def partitions(self) -> set[TopicPartition]:
        return {TopicPartition("t", 0), TopicPartition("t", 1)}

    def look(self) -> Topics:
        return Topics(self.partitions(), IDS)

    def earliest(self, partitions: Offsets) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.first)

    def latest(self, partitions: Offsets) -> dict[TopicPartition, int]:
        return self.ends(partitions, Position({})).offsets

    def ends(self, partitions: Offsets, known: Position) -> Ends:
        at_end = {at: 10 * (at.partition + 1) + self.grown for at in sorted(partitions)[::-1]}
        return Ends(at_end, {})


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> type[Log]:
    monkeypatch.setattr(kafka_source, "OffsetLookup", Log)
    monkeypatch.setattr(Log, "grown", 0)
    monkeypatch.setattr(Log, "first", 0)
    return Log


def stream(**extra: str) -> KafkaStreamReader:
    return KafkaStreamReader(SourceOptions.parse({**GIVEN, **extra}, streaming=True))


def test_latest_is_answered_alike_by_every_process(log: type[Log]) -> None:
    first = stream()
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    log.grown = 1000
    restarted = stream()

    assert restarted.initialOffset() == start == {}
    assert end == {**END, "@from t 10,20": {}}
    assert restarted.partitions(start, end) == []
    changed = stream(startingOffsets="earliest")
    assert changed.partitions(changed.initialOffset(), end) == []
    assert changed.latestOffset(first.latestOffset(end, ReadAllAvailable())) == END_LATER
    tasks = [part.value for part in restarted.partitions(end, END_LATER)]
    assert [[one.start for one in held] for held, _ in tasks] == [[10], [20]]


BY_SPARK = {"t": {"0": 10, "1": 20}}
BY_TIME = {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "latest"}
LATE_IN_0 = '{"t":{"0":-1,"1":5}}'


@pytest.mark.parametrize("seen_before", [False, True], ids=["4.2-4.3", "4.0-4.1"])
@pytest.mark.parametrize("starting", ["latest", LATE_IN_0, "by-time"])
def test_a_first_batch_that_sparks_connector_planned_is_refused(
    starting: str, seen_before: bool, log: type[Log], caplog: pytest.LogCaptureFixture
) -> None:
    """Where it begins is not known here. Before 4.2 Spark first tells the end that it finds."""
    log.at_times = lambda self, times: dict.fromkeys(times)  # type: ignore[attr-defined]
    options = {"startingOffsets": starting} if starting != "by-time" else BY_TIME
    for going_on in (False, True):
        reader = stream(**options, failOnDataLoss=str(not going_on).lower())
        if seen_before:
            reader.partitions(BY_SPARK, BY_SPARK)
        start = reader.initialOffset()
        if going_on:
            reader.partitions(start, BY_SPARK)
            assert "planned by Spark's own connector" in caplog.text
        else:
            with pytest.raises(DataLossError, match=r"commits/0.*sources/0/0"):
                reader.partitions(start, BY_SPARK)


@pytest.mark.parametrize(
    "starting", ["earliest", '{"t":{"0":3,"1":5}}', '{"t":{"0":-2,"1":5}}', "by-time"]
)
def test_one_whose_beginning_is_found_again_is_not(starting: str, log: type[Log]) -> None:
    log.at_times = lambda self, times: dict.fromkeys(times, 4)  # type: ignore[attr-defined]
    extra = {"startingTimestamp": "1"} if starting == "by-time" else {"startingOffsets": starting}
    reader = stream(**extra)
    assert reader.partitions(reader.initialOffset(), BY_SPARK)


def test_nor_where_the_cluster_has_no_ids_by_which_to_tell(
    log: type[Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "look", lambda self: Topics(self.partitions(), {}))
    reader = stream()
    assert reader.partitions(reader.initialOffset(), BY_SPARK) == []


def test_nor_the_first_batch_that_we_see_of_a_query_that_has_written() -> None:
    reader = stream()
    reader.initialOffset()
    later = {"t": {"0": 12, "1": 20}}
    assert len(reader.partitions(BY_SPARK, later)) == 1


def test_a_group_is_asked_for_the_first_batch_only(
    log: type[Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[dict[TopicPartition, int]] = [{TopicPartition("t", n): 5 for n in range(2)}]
    monkeypatch.setattr(log, "committed", lambda *_: groups.pop(), raising=False)
    reader = stream(startingOffsets="group:app")
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert first == {**END, "t": {"0": 5, "1": 5}, "@from t 5,5": {}}
    assert reader.partitions({}, first) == []
    for one in reader, stream(startingOffsets="group:app"):
        assert one.latestOffset(first, ReadAllAvailable()) == END


def test_a_restart_needs_no_start_of_a_topic_that_was_added() -> None:
    options = {"subscribe": "t,added", "startingOffsets": '{"t":{"0":5,"1":5}}'}
    assert stream(**options).latestOffset(END, ReadAllAvailable()) == END
    with pytest.raises(OptionsError, match="gives no offsets for added"):
        stream(**options).initialOffset()


def test_a_query_that_goes_on_where_its_job_ended_asks_for_no_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = {TopicPartition("t", 0): 7}
    monkeypatch.setattr(RecordedEnds, "continues_at", lambda *_: ended)
    monkeypatch.setattr(RecordedEnds, "after", lambda *_: None)
    reader = stream(startingOffsets="group:app", jobName="j", onReset="continue")
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["t"] == {"0": 7}


def test_a_first_batch_begins_where_its_end_says(log: type[Log]) -> None:
    reader = stream(startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end == FIRST_END
    log.first = 6
    for starting in "earliest", '{"t":{"0":6,"1":6}}', "latest":
        again = stream(startingOffsets=starting)
        tasks = [part.value for part in again.partitions(again.initialOffset(), end)]
        ranges = [(one.start, one.end) for held, _ in tasks for one in held]
        assert ranges == [(0, 10), (0, 20)]
        later = again.latestOffset(end, ReadAllAvailable())
        assert later == end, "nothing has come: the same place"
        log.grown = 1000
        assert again.latestOffset(end, ReadAllAvailable()) == END_LATER
        log.grown = 0


@pytest.mark.parametrize("restarts", [False, True])
def test_what_comes_after_a_first_batch_that_found_nothing_is_new(
    log: type[Log], monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """A pattern that matches no topic yet: Spark runs batch 0, from nothing to nothing."""
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribePattern": "t"}
    options = SourceOptions.parse(given, streaming=True)
    reader = KafkaStreamReader(options)
    with monkeypatch.context() as before:
        before.setattr(log, "partitions", lambda self: set())
        nothing = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        assert (nothing, reader.partitions({}, nothing)) == ({}, [])
    if restarts:
        reader = KafkaStreamReader(options)

    assert reader.latestOffset(nothing, ReadAllAvailable()) == END
    for _ in range(2):
        tasks = [part.value for part in reader.partitions(nothing, END)]
        ranges = [(one.start, one.end) for held, _ in tasks for one in held]
        assert ranges == [(0, 10), (0, 20)]


def test_offsets_are_written_in_one_way_however_the_broker_orders_them() -> None:
    reader = stream(startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    assert json.dumps(end) == '{"t": {"0": 10, "1": 20}, "@id t an-id": {}, "@from t 0,0": {}}'
    assert json.dumps(reader.latestOffset(end, ReadAllAvailable())) == json.dumps(end)
    assert json.dumps(reader.reportLatestOffset()) == '{"t": {"0": 10, "1": 20}}'


def test_nothing_to_report_before_the_first_look() -> None:
    assert stream().reportLatestOffset() is None


def test_the_limit_is_the_options_unless_spark_asks_for_everything() -> None:
    reader = stream(startingOffsets="earliest", maxOffsetsPerTrigger="3")
    start = reader.initialOffset()

    assert reader.getDefaultReadLimit() == ReadMaxRows(3)
    assert stream().getDefaultReadLimit() == ReadAllAvailable()
    assert reader.latestOffset(start, ReadMaxRows(3))["t"] == {"0": 1, "1": 2}
    assert reader.latestOffset(start, ReadAllAvailable()) == FIRST_END


def test_available_now_ends_where_the_first_look_did(log: type[Log]) -> None:
    reader = stream(startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    log.grown = 5  # what comes between preparation and first look still belongs to the run
    start = reader.initialOffset()
    target = {**END, "t": {"0": 15, "1": 25}}

    first = reader.latestOffset(start, ReadMaxRows(20))
    assert first == {**FIRST_END, "t": {"0": 7, "1": 12}}
    log.grown = 1000
    assert reader.latestOffset(first, ReadMaxRows(99)) == target
    assert reader.latestOffset(target, ReadMaxRows(99)) == target


def test_an_offset_of_the_jvm_connector_as_text() -> None:
    ranges = stream().partitions('{"t":{"0":4,"1":20}}', END)

    assert [part.value for part in ranges] == [(((("t", 0), 4, 10),), IDS)]


@pytest.mark.parametrize("offset", ['{"t":{"0":-1}}', {"t": 5}, "nonsense", None, 7])
def test_an_offset_that_is_no_kafka_sources_is_refused(offset: object) -> None:
    with pytest.raises(SourceError, match="offset in the checkpoint is not one of a Kafka source"):
        stream().partitions(offset, END)


def test_ranges_travel_to_the_tasks() -> None:
    (part, _) = stream().partitions({"t": {"0": 4, "1": 0}}, END)
    (shared,) = stream(maxPartitions="1").partitions({"t": {"0": 4, "1": 0}}, END)

    one, other = (("t", 0), 4, 10), (("t", 1), 0, 20)
    assert pickle.loads(pickle.dumps(part)).value == ((one,), IDS)
    assert pickle.loads(pickle.dumps(shared)).value == ((one, other), IDS)


def test_a_reader_that_talked_to_the_brokers_travels_without_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    reader = stream()
    reader._lookup._client.admin()

    travelled = pickle.loads(pickle.dumps(reader))
    assert travelled.initialOffset() == {}
    assert travelled._lookup._client._admin is None


def test_a_batch_refuses_what_only_a_stream_may_be_told() -> None:
    with pytest.raises(OptionsError, match="can't be latest for batch queries"):
        KafkaBatchReader(SourceOptions.parse({**GIVEN, "startingOffsets": "latest"}, False))


def test_planning_imports_no_client_before_it_needs_one() -> None:
    """Spark's source process has ten seconds to connect back."""
    program = (
        "import sys; import pyspark.sql.datasource; before = set(sys.modules);"
        "import eo_kafka.connectors.kafka_source;"
        "print([m for m in ('confluent_kafka', 'kafka', 'numba', 'pyarrow')"
        " if m in set(sys.modules) - before])"
    )
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ran.stdout.strip() == "[]", ran.stderr
