"""A topic that is deleted and made again under a query that goes on (`failOnDataLoss=false`),
whoever dies and whenever: nothing is written twice, and of the topic that is there all is written.

The reader is driven as Spark drives it; brokers, Spark's logs and the sink are stood for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eo_kafka.connectors.kafka_source import KafkaStreamReader
from eo_kafka.connectors.spark_versions import ReadAllAvailable, ReadMaxRows
from eo_kafka.core.offsets import Position, TopicPartition
from eo_kafka.errors import DataLossError, SourceError
from eo_kafka.sources.lookup import Ends, Topics
from eo_kafka.sources.planner import Planner
from eo_kafka.sources.settings.options import SourceOptions
from eo_kafka.sources.topic_identity import WAYS_OUT

Record = tuple[str, int, int, int]  # topic, which of that name, partition, offset


class Kafka:
    """Two topics; of one the partitions' ends, and how often it was made."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[int, list[int]]] = {"t": (1, [0, 0]), "u": (1, [3])}
        self.earliest_of_t = 0

    def recreate(self, topic: str, ends: list[int]) -> None:
        self.topics[topic] = (self.topics[topic][0] + 1, ends)

    def produce(self, topic: str, partition: int, count: int) -> None:
        ends = self.topics[topic][1]
        ends[partition % len(ends)] += count

    @property
    def records(self) -> set[Record]:
        return {
            (topic, made, partition, offset)
            for topic, (made, ends) in self.topics.items()
            for partition, end in enumerate(ends)
            for offset in range(end)
        }

    def look(self) -> Topics:
        ids = {topic: f"{topic}-{made}" for topic, (made, _) in self.topics.items()}
        return Topics(self.partitions(), ids)

    def partitions(self) -> set[TopicPartition]:
        return {
            TopicPartition(topic, number)
            for topic, (_, ends) in self.topics.items()
            for number in range(len(ends))
        }

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if not set(partitions) <= self.partitions():
            raise SourceError("unknown partition")
        return {at: self.earliest_of_t if at.topic == "t" else 0 for at in partitions}

    def ends(self, partitions: Collection[TopicPartition], known: Position | None = None) -> Ends:
        return Ends({at: self.topics[at.topic][1][at.partition] for at in partitions}, {})

    def close(self) -> None:
        pass


class Query:
    """Spark's logs, and a sink that writes a batch once and skips it if it comes again."""

    def __init__(self, kafka: Kafka, limit: int | None, **options: str) -> None:
        self.kafka = kafka
        self._limit = ReadAllAvailable() if limit is None else ReadMaxRows(limit)
        given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t,u"}
        given |= {"startingOffsets": "earliest", "failOnDataLoss": "false", **options}
        self._options = SourceOptions.parse(given, streaming=True)
        self.planned: list[str] = []
        self.committed = 0  # batches in Spark's commit log
        self.output: dict[int, list[Record]] = {}
        self.start()

    def start(self) -> None:
        """A new run: another process."""
        self._reader = KafkaStreamReader(self._options)
        self._reader._lookup = self._reader._planner._lookup = self.kafka  # type: ignore[assignment]

    def plan(self, *, only_now: bool = False) -> bool:
        """Write the next batch into the offset log, if there is one and none is left."""
        if only_now:
            self._reader.prepareForTriggerAvailableNow()
        if len(self.planned) > self.committed:
            return True
        start = self._start(self.committed)
        end = json.dumps(self._reader.latestOffset(start, self._limit))
        if self.planned and end == self.planned[-1]:
            return False
        self.planned.append(end)
        return True

    def _start(self, batch: int) -> Any:
        return json.loads(self.planned[batch - 1]) if batch else self._reader.initialOffset()

    def write(self) -> None:
        """The tasks of the batch, and the decision."""
        batch = self.committed
        end = json.loads(self.planned[batch])
        try:
            tasks = self._reader.partitions(self._start(batch), end)
        except SourceError:  # it was made again, smaller, since this run has looked
            self.start()
            tasks = self._reader.partitions(self._start(batch), end)
        rows = [row for task in tasks for row in self._read(*task.value)]
        self.output.setdefault(batch, rows)

    def _read(self, ranges: Any, ids: dict[str, str]) -> list[Record]:
        """As `read_ranges`: nothing of a topic that was made again since."""
        rows: list[Record] = []
        for one in ranges:
            topic, partition = one.partition
            made, ends = self.kafka.topics[topic]
            if ids[topic] == f"{topic}-{made}" and partition < len(ends):
                until = min(one.end, ends[partition])
                rows += [(topic, made, partition, offset) for offset in range(one.start, until)]
        return rows

    def commit(self) -> None:
        self.committed += 1

    def run(self) -> None:
        for _ in range(200):
            if not self.plan():
                return
            self.write()
            self.commit()
        raise AssertionError("it does not come to an end")

    @property
    def rows(self) -> Counter[Record]:
        return Counter(row for rows in self.output.values() for row in rows)


TOPICS = st.sampled_from(["t", "t", "u"])
STEPS = st.one_of(
    st.tuples(st.just("produce"), TOPICS, st.integers(0, 2), st.integers(1, 9)),
    st.tuples(st.just("recreate"), TOPICS, st.lists(st.integers(0, 12), min_size=1, max_size=3)),
    st.sampled_from(["batch", "plan", "write", "die", "now"]).map(lambda word: (word,)),
)


@settings(max_examples=600, deadline=None)
@given(st.lists(STEPS, max_size=25), st.sampled_from([None, 4]), st.booleans())
def test_nothing_is_written_twice_and_all_of_what_is_there_is_written(
    steps: list[tuple[Any, ...]], limit: int | None, stops: bool
) -> None:
    kafka = Kafka()
    query = Query(kafka, limit, failOnDataLoss=str(stops).lower())
    for word, *given_ in steps:
        if word == "die":
            query.start()
        elif word in ("produce", "recreate"):
            getattr(kafka, word)(*given_)
        else:
            try:
                if query.plan(only_now=word == "now") and word != "plan":
                    query.write()
                    if word != "write":
                        query.commit()
            except DataLossError:  # each time, until it is told to go on
                assert stops
                query.start()
    query._options = Query(kafka, limit)._options
    query.start()
    query.run()
    assert max(query.rows.values(), default=0) <= 1, "repeated"
    assert kafka.records <= query.rows.keys(), "passed over"


@pytest.mark.parametrize("began", ["true", "false"])
@pytest.mark.parametrize("died", ["planned", "written", "committed"])
def test_by_default_the_query_stops(died: str, began: str) -> None:
    """Also where going on was allowed to who began it, and is not any more."""
    kafka = Kafka()
    kafka.produce("t", 0, 10)
    query = Query(kafka, None, failOnDataLoss=began)
    assert query.plan()
    if died != "planned":
        query.write()
    if died == "committed":
        query.commit()
    kafka.recreate("t", [30, 0])
    query._options = Query(kafka, None, failOnDataLoss="true")._options
    query.start()
    with pytest.raises(DataLossError, match="Topic 't' was deleted and made again: its id was t-1"):
        if query.plan():
            query.write()


def test_so_does_the_end_of_a_first_batch_that_finds_nothing() -> None:
    kafka = Kafka()
    kafka.earliest_of_t = 100  # retention has removed what there was
    kafka.topics = {"t": (1, [100]), "u": (1, [0])}
    query = Query(kafka, None)
    query.run()
    kafka.earliest_of_t = 0
    kafka.recreate("t", [120])
    query.start()
    query.run()
    assert sum(row[0] == "t" for row in query.rows) == 120


def test_the_end_says_which_topic_it_is_of_and_whether_that_is_read_anew() -> None:
    kafka = Kafka()
    query = Query(kafka, None)
    query.run()
    kafka.recreate("t", [0, 7])
    query.run()
    kafka.produce("t", 1, 1)
    query.run()
    ids, first = '"@id u u-1": {}', '"@from t 0,0": {}, "@from u 0": {}'
    assert query.planned == [
        f'{{"t": {{"0": 0, "1": 0}}, "u": {{"0": 3}}, "@id t t-1": {{}}, {ids}, {first}}}',
        f'{{"t": {{"0": 0, "1": 7}}, "u": {{"0": 3}}, "@anew t t-2": {{}}, {ids}}}',
        f'{{"t": {{"0": 0, "1": 8}}, "u": {{"0": 3}}, "@id t t-2": {{}}, {ids}}}',
    ]


@pytest.mark.parametrize("dies", [False, True])
def test_a_run_up_to_now_reads_it_in_several_batches(dies: bool) -> None:
    kafka = Kafka()
    kafka.produce("t", 0, 10)
    query = Query(kafka, 4)
    query.run()
    kafka.recreate("t", [30, 0])
    if dies:
        query.start()
    query._reader.prepareForTriggerAvailableNow()
    query.run()
    assert kafka.records <= query.rows.keys()
    assert max(query.rows.values()) == 1


@pytest.mark.parametrize("is_planned", [False, True])
def test_the_way_on_that_the_error_names(is_planned: bool) -> None:
    """The query has stopped, and 'failOnDataLoss' is false from now on."""
    kafka = Kafka()
    kafka.produce("t", 0, 10)
    query = Query(kafka, None, failOnDataLoss="true")
    query.run()
    kafka.produce("t", 0, 5)
    assert not is_planned or query.plan()
    kafka.recreate("t", [30, 0])
    query._options = Query(kafka, None)._options
    query.start()
    query.run()
    assert kafka.records <= query.rows.keys()
    assert max(query.rows.values()) == 1


def test_in_a_cluster_that_took_over_the_lower_of_two_offsets_loses_nothing():
    """The query had read to 100, the copy was made to 90, and producers went on: what is at 90 to
    99 are other records now."""
    for words in ("the lower of two", "'endOffset'", "up to which the copy was made"):
        assert words in WAYS_OUT
    assert "'eo-kafka verify'" in WAYS_OUT
    read, copied, now = 100, 90, 130
    kafka = Kafka()
    kafka.topics = {"orders": (1, [now])}
    given = {"subscribe": "orders", "kafka.bootstrap.servers": "unused:1"}
    given["startingOffsets"] = json.dumps({"orders": {"0": min(read, copied)}})
    planner = Planner(SourceOptions.parse(given, streaming=True), kafka)  # type: ignore[arg-type]
    start = planner.stored_start()
    (wanted,) = planner.ranges(start, Position(planner.newest(Position(start))), first=True)
    assert (wanted.start, wanted.end) == (copied, now)
