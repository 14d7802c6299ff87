"""A source's topic that is deleted and made again, longer than before: offsets show nothing.

The reader is driven as Spark drives it, without Spark.
"""

from __future__ import annotations

import json

import pytest

from eo_kafka.connectors.kafka_source import KafkaBatchReader, KafkaStreamReader
from eo_kafka.connectors.spark_versions import ReadAllAvailable
from eo_kafka.errors import DataLossError, SourceError
from eo_kafka.sources import topic_identity
from eo_kafka.sources.settings.options import SourceOptions
from harness import control_plane, delete_topic, produce, recreate_topic

OLD = [b"old-%d" % number for number in range(50)]
NEW = [b"new-%d" % number for number in range(80)]


class Stream:
    """One run of a query: a new one is another process, as far as the reader knows."""

    def __init__(self, servers: str, done: dict | None = None, **options: str) -> None:
        given = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest", **options}
        self.reader = KafkaStreamReader(SourceOptions.parse(given, streaming=True))
        self.done = done

    def plan(self) -> list:
        """The tasks of the next batch."""
        start = self.reader.initialOffset() if self.done is None else self.done
        self.done = self.reader.latestOffset(start, ReadAllAvailable())
        return list(self.reader.partitions(start, self.done))

    def read(self, tasks: list) -> list[bytes]:
        batches = [batch for task in tasks for batch in self.reader.read(task)]
        return [value for batch in batches for value in batch["value"].to_pylist()]

    def batch(self) -> list[bytes]:
        return self.read(self.plan())


def values(reader: KafkaBatchReader, tasks) -> list[bytes]:
    batches = [batch for task in tasks for batch in reader.read(task)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.fixture
def servers(broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def topic(servers, make_topic) -> str:
    name = make_topic("replaced")
    produce(servers, name, OLD)
    return name


def test_between_two_batches_it_stops_the_query(servers, topic):
    for how in (
        {"subscribe": topic},
        {"subscribePattern": topic},
        {"assign": f'{{"{topic}":[0]}}'},
    ):
        stream = Stream(servers, **how)
        stream.batch()
        recreate_topic(servers, topic, NEW)
        with pytest.raises(DataLossError, match=f"Topic '{topic}' was deleted and made") as stop:
            stream.batch()
        assert f'is at {{"{topic}":{{"0":{stream.done[topic]["0"]}}}}} of the' in str(stop.value)


def test_between_two_batches_it_is_read_from_its_beginning_where_going_on_is_allowed(
    servers, topic, caplog
):
    stream = Stream(servers, subscribe=topic, failOnDataLoss="false")
    assert stream.batch() == OLD
    recreate_topic(servers, topic, NEW)
    assert stream.batch() == NEW
    assert caplog.text.count("was deleted and made again") == 1
    produce(servers, topic, [b"later"])
    assert stream.batch() == [b"later"]


def test_a_run_that_dies_in_the_first_batch_of_a_new_topic_leaves_it_to_the_next(servers, topic):
    """Nobody but Spark's offset log remembers: the reader has no job."""
    how = {"subscribe": topic, "failOnDataLoss": "false"}
    first = Stream(servers, **how)
    first.batch()
    before = first.done
    recreate_topic(servers, topic, NEW)
    first.plan()
    second = Stream(servers, json.loads(json.dumps(first.done)), **how)
    assert second.read(list(second.reader.partitions(before, second.done))) == NEW
    produce(servers, topic, [b"later"])
    assert second.batch() == [b"later"]


def test_between_planning_and_reading_the_task_notices(servers, topic, caplog):
    stream = Stream(servers, subscribe=topic)
    lenient = Stream(servers, subscribe=topic, failOnDataLoss="false")
    for one in (stream, lenient):
        one.batch()
    produce(servers, topic, [b"more"])
    tasks, lenient_tasks = stream.plan(), lenient.plan()
    recreate_topic(servers, topic, NEW)
    with pytest.raises(DataLossError, match="made again while it was read.*To read the new one"):
        stream.read(tasks)
    assert lenient.read(lenient_tasks) == []
    assert "nothing more of the batch is in it" in caplog.text
    assert lenient.batch() == NEW


def test_while_it_is_read_the_task_notices(servers, topic):
    stream = Stream(servers, subscribe=topic)
    (task,) = stream.plan()
    rows = stream.reader.read(task)
    assert next(rows).num_rows == len(OLD)
    recreate_topic(servers, topic, NEW)
    with pytest.raises(DataLossError, match="was deleted and made again while it was read"):
        list(rows)


@pytest.mark.parametrize("how", [{}, {"minPartitions": "2"}])
def test_a_batch_read_is_of_one_topic(servers, topic, caplog, how):
    """Also where some tasks have read the old one, and Spark runs those that fail again."""
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic, **how}
    strict = KafkaBatchReader(SourceOptions.parse(given, False))
    lenient = KafkaBatchReader(SourceOptions.parse({**given, "failOnDataLoss": "false"}, False))
    planned = [(one, one.partitions()) for one in (strict, lenient)]
    for one, tasks in planned:
        assert values(one, tasks) == OLD
    recreate_topic(servers, topic, NEW)
    for _ in range(2):
        with pytest.raises(DataLossError, match="made again while it was read.*load it again"):
            values(strict, planned[0][1])
    assert values(*planned[1]) == []
    assert "is to be loaded again" in caplog.text
    assert values(strict, strict.partitions()) == NEW


def test_between_two_runs_the_position_says_which_topic_it_is_of(servers, topic):
    first = Stream(servers, subscribe=topic)
    first.batch()
    with control_plane(servers) as control:
        assert first.reader.topic_ids == control.topic_ids([topic]), "what the sink records"
    recreate_topic(servers, topic, NEW)
    for _ in range(2):
        with pytest.raises(DataLossError, match="was deleted and made again: its id was"):
            Stream(servers, first.done, subscribe=topic).batch()
    assert Stream(servers, first.done, subscribe=topic, failOnDataLoss="false").batch() == NEW


def test_one_made_again_shorter_than_startingOffsets_after_the_first_batch_was_planned(
    servers, topic
):
    start = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 20}})}
    first = Stream(servers, **start)
    assert first.batch() == OLD[20:]
    recreate_topic(servers, topic, NEW[:12])
    strict = Stream(servers, **start)
    with pytest.raises(DataLossError, match="was deleted and made again: its id was"):
        strict.reader.partitions(strict.reader.initialOffset(), first.done)
    lenient = Stream(servers, first.done, failOnDataLoss="false", **start)
    assert lenient.read(lenient.reader.partitions(lenient.reader.initialOffset(), first.done)) == []
    assert lenient.batch() == NEW[:12]
    produce(servers, topic, [b"more"])
    assert lenient.batch() == [b"more"]
    with pytest.raises(SourceError, match=f"offset 20 of partition {topic}-0, which ends at 13"):
        Stream(servers, failOnDataLoss="false", **start).plan()  # nothing of it was stored


def test_a_worker_keeps_the_client_it_asks_with(servers, topic):
    topic_identity._kept.close()
    stream = Stream(servers, subscribe=topic)
    assert stream.batch() == OLD
    kept = topic_identity._kept._idle[0].client
    produce(servers, topic, NEW)
    assert stream.batch() == NEW
    assert [idle.client for idle in topic_identity._kept._idle] == [kept]


def test_a_batch_of_a_topic_that_was_deleted_does_not_hold_up_a_query_that_may_go_on(
    servers, topic, make_topic, caplog
):
    """The batch is in Spark's offset log: each restart runs it first."""
    other = make_topic("kept")
    how = {"subscribePattern": f"({topic}|{other})$"}
    first = Stream(servers, failOnDataLoss="false", **how)
    first.batch()
    before = first.done
    for name in (topic, other):
        produce(servers, name, [b"more"])
    first.plan()
    delete_topic(servers, topic)
    with pytest.raises(DataLossError, match=rf"were deleted since: \['{topic}'\]"):
        Stream(servers, **how).reader.partitions(before, first.done)
    second = Stream(servers, first.done, failOnDataLoss="false", **how)
    assert second.read(list(second.reader.partitions(before, first.done))) == [b"more"]
    assert "were deleted since" in caplog.text
    produce(servers, other, [b"later"])
    assert second.batch() == [b"later"]
