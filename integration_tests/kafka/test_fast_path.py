"""The compiled path and the plain one, against a real broker: same bytes, same errors."""

from __future__ import annotations

import itertools
import time

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from eo_kafka.core import librdkafka
from eo_kafka.errors import SinkError, WriteFailed
from eo_kafka.sinks.rows import fast, plain
from eo_kafka.sources.fetch import fast as source
from eo_kafka.sources.fetch import plain as plain_source
from eo_kafka.testing.processes import wait_until

PATHS = {"fast": fast.ArrowProducer, "plain": plain.ArrowProducer}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
field = st.none() | st.binary(max_size=30) | st.sampled_from([b"", b"\0", b"x" * 70_000])
name = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=5)
headers = st.none() | st.lists(st.tuples(name, field), max_size=3)
rows = st.lists(st.tuples(field, field, st.none() | st.integers(0, 1), headers), max_size=30)


def batch(found, with_headers=True):
    columns = list(zip(*found, strict=True)) or [(), (), (), ()]
    kinds = {"key": pa.binary(), "value": pa.binary(), "partition": pa.int32(), "headers": HEADERS}
    arrays = {n: pa.array(c, t) for (n, t), c in zip(kinds.items(), columns, strict=True)}
    if not with_headers:
        del arrays["headers"]
    return pa.record_batch(arrays)


@pytest.fixture(autouse=True)
def is_available():
    """As who uses the fast path asks first; kept loops find librdkafka's functions by it."""
    assert librdkafka.available() is None


@pytest.fixture
def producer(broker):
    return Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": "0",
         # With more in flight, librdkafka loses rows of a topic that was created this moment.
         "enable.idempotence": "true", "max.in.flight": "1",
         "partitioner": "murmur2_random", **plain.PRODUCER_SETTINGS}
    )  # fmt: skip


@pytest.fixture
def consumer(broker):
    client = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "fast-path",
         "enable.auto.commit": "false", "enable.partition.eof": "true",
         "auto.offset.reset": "error", "isolation.level": "read_committed"}
    )  # fmt: skip
    yield client
    client.close()


def read(fetch, consumer, topic, partition, start, end, **limits):
    consumer.assign([TopicPartition(topic, partition, start)])
    batches, position, deadline = [], start, time.monotonic() + 30
    while position < end:
        assert time.monotonic() < deadline
        for got in fetch(consumer, topic, partition, end, include_headers=True, **limits):
            assert got.error is None
            if got.batch is not None:
                got.batch.validate(full=True)
                batches.append(got.batch)
            position = max(position, got.next_offset or 0, got.eof_offset or 0)
    return pa.Table.from_batches(batches, schema=plain_source.arrow_schema(True))


def read_fast(consumer, *args, **limits):
    return read(source.fetch, consumer, *args, **limits)


def read_plain(broker, *args):
    client = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "plain",
         "enable.partition.eof": "true", "isolation.level": "read_committed"}
    )  # fmt: skip
    try:
        return read(plain_source.fetch, client, *args)
    finally:
        client.close()


def ends(consumer, topic, partitions=1):
    return [end_of(consumer, TopicPartition(topic, number)) for number in range(partitions)]


def end_of(consumer, at):
    """Kafka names the leader of a new partition a moment before that knows of it."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return consumer.get_watermark_offsets(at, timeout=10)[1]
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            assert time.monotonic() < deadline, refused
            time.sleep(0.05)


def contents(table):
    return table.select(["key", "value", "headers"]).to_pylist()


@settings(
    max_examples=10, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck)
)
@given(found=rows, start=st.integers(0, 3), with_headers=st.booleans())
def test_both_paths_write_and_read_the_same_bytes(
    found, start, with_headers, broker, make_topic, producer, consumer
):
    """Rows with a key or a partition of their own; the partitioner is random for others."""
    found = [row if row[0] is not None or row[2] is not None else (row[0], row[1], 0, row[3])
             for row in found]  # fmt: skip
    sliced = batch(found, with_headers).slice(start)
    written = {}
    for path, kind in PATHS.items():
        topic = make_topic("same", partitions=2)
        # Before it knows a topic's partitions, librdkafka keeps no order between rows.
        producer.list_topics(topic, timeout=10)
        sender = kind(producer, topic)
        sender.send(sliced)
        sender.flush(30)
        assert (sender.failures, sender.rows) == ("", sliced.num_rows)
        assert sender.size == sum(len(f or b"") for row in found[start:] for f in row[:2])
        tables = []
        for partition, end in enumerate(ends(consumer, topic, 2)):
            tables.append(read_fast(consumer, topic, partition, 0, end))
            assert tables[-1].equals(read_plain(broker, topic, partition, 0, end))
        written[path] = [contents(table) for table in tables]
    for compiled, plainly in zip(written["fast"], written["plain"], strict=True):
        assert sorted(map(repr, compiled)) == sorted(map(repr, plainly)), "other rows"
        assert compiled == plainly, "another order"
    assert sum(map(len, written["fast"])) == sliced.num_rows


def test_sizes_from_many_tiny_to_a_few_large(make_topic, producer, consumer):
    topic = make_topic("sizes", config={"max.message.bytes": "2000000"})
    values = [b"%d" % i for i in range(60_000)] + [bytes([i]) * 900_000 for i in range(40)]
    sender = fast.ArrowProducer(producer, topic)
    sender.send(pa.record_batch({"value": pa.array(values, pa.large_binary())}))
    sender.flush(60)
    (end,) = ends(consumer, topic)
    table = read_fast(consumer, topic, 0, 0, end)
    assert sorted(table["value"].to_pylist()) == sorted(values)
    assert table["offset"].to_pylist() == list(range(end))
    assert max(b.nbytes for b in table.to_batches()) < 3 * source.BYTES_MAX


@pytest.mark.parametrize("max_rows", [1, 7, 1000])
def test_a_range_ends_at_its_end_and_a_later_one_starts_there(
    max_rows, make_topic, producer, consumer
):
    topic = make_topic("bounds")
    sender = fast.ArrowProducer(producer, topic)
    sender.send(pa.record_batch({"value": [b"%d" % i for i in range(300)]}))
    sender.flush(30)
    for start, end in ((0, 100), (100, 101), (90, 300), (0, 300)):
        table = read_fast(consumer, topic, 0, start, end, max_rows=max_rows)
        assert table["offset"].to_pylist() == list(range(start, end))


def test_at_the_end_of_a_range_the_client_stops_fetching(make_topic, producer, consumer):
    """It would fetch up to 8 MiB more, which nobody reads, for each partition of each batch."""
    topic, there, end = make_topic("ahead"), 90_000, 70_000
    sender = fast.ArrowProducer(producer, topic)
    sender.send(pa.record_batch({"value": [b"%d" % i for i in range(there)]}))
    sender.flush(60)
    source.set_apart(consumer, topic, 0)
    consumer.assign([TopicPartition(topic, 0, 0)])
    with source._own_queue(consumer, topic, 0) as queue:
        waiting = librdkafka.library().rd_kafka_queue_length
        wait_until(lambda: waiting(queue) >= there, "all is in the client's queue")
    pieces = source.fetch(consumer, topic, 0, end)
    rows = next(pieces).batch.num_rows
    assert consumer.assignment() == [], "all that is wanted has come, and it goes on fetching"
    assert rows + sum(piece.batch.num_rows for piece in pieces) == end


@pytest.mark.parametrize("path", PATHS)
def test_transactions_leave_gaps_and_the_end_is_still_seen(path, broker, make_topic, consumer):
    topic = make_topic("gaps")
    writer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic,
         **plain.PRODUCER_SETTINGS}
    )  # fmt: skip
    writer.init_transactions(30)
    for end_transaction, value in ((writer.abort_transaction, b"no"),
                                   (writer.commit_transaction, b"yes")):  # fmt: skip
        writer.begin_transaction()
        sender = PATHS[path](writer, topic)
        sender.send(batch([(None, value, None, [("h", b"1")]), (b"k", value, 0, None)]))
        sender.send(batch([(None, value, 0, None)] * 3, with_headers=False))
        sender.flush(30)
        end_transaction(30)
    # Kafka writes the marker of a commit after it has answered
    wait_until(lambda: ends(consumer, topic) == [12], "both markers are in the log")
    table = read_fast(consumer, topic, 0, 0, 12)
    assert table["value"].to_pylist() == [b"yes"] * 5
    assert read_fast(consumer, topic, 0, 11, 12).num_rows == 0


def test_errors_come_back_as_events(make_topic, producer, consumer):
    topic = make_topic("events")
    consumer.assign([TopicPartition(topic, 0, 1_000)])
    deadline, error = time.monotonic() + 30, None
    while error is None and time.monotonic() < deadline:
        for got in source.fetch(consumer, topic, 0, 2_000):
            error = got.error
    assert error is not None
    assert "out of range" in error[1].lower() or "offset" in error[1].lower()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("with_headers", [False, True])
class TestRefused:
    def test_by_the_broker(self, path, with_headers, make_topic, producer):
        topic = make_topic("small", config={"max.message.bytes": "2000"})
        sender = PATHS[path](producer, topic)
        sender.send(batch([(None, b"x" * 5000, None, [("h", b"")])], with_headers))
        with pytest.raises(
            WriteFailed, match=rf"1 rows were not delivered.*partition 0 of {topic}: .*max.mess"
        ):
            sender.flush(30)
        assert "1 rows" in sender.failures

    def test_by_a_compacted_topic(self, path, with_headers, make_topic, producer):
        topic = make_topic("compacted", config={"cleanup.policy": "compact"})
        sender = PATHS[path](producer, topic)
        told = rf"rows were not delivered; the first: to partition 0 of {topic}: .*'cleanup.policy'"
        with pytest.raises(
            SinkError, match=rf"{told} is compact takes no row whose key is null"
        ) as e:
            sender.send(batch([(b"k", b"v", None, []), (None, b"v", None, [])], with_headers))
            sender.flush(30)
        assert not e.value.retriable, "no other start mends it"

    def test_by_the_client(self, path, with_headers, make_topic, producer):
        topic = make_topic("large")
        sender = PATHS[path](producer, topic)
        good = (None, b"small", None, [("h", b"")])
        with pytest.raises(SinkError, match=r"kafka\.message\.max\.bytes"):
            sender.send(batch([good, (None, b"x" * 2_000_000, None, [("h", b"")])], with_headers))
        sender = PATHS[path](producer, topic)
        sender.send(batch([good], with_headers))
        sender.flush(30)

    def test_for_a_partition_that_does_not_exist(self, path, with_headers, make_topic, producer):
        topic = make_topic("few")
        with pytest.raises(SinkError, match=r"(?i)partition"):
            for _ in range(2):  # before the first metadata, librdkafka takes any partition
                sender = PATHS[path](producer, topic)
                sender.send(batch([(None, b"x", 7, [("h", b"")]), (None, b"y", 0, None)],
                                  with_headers))  # fmt: skip
                sender.flush(30)
        assert producer.flush(30) == 0

    def test_rows_without_a_topic_and_negative_partitions(self, path, with_headers, producer):
        sender = PATHS[path](producer, None)
        rows = batch([(None, b"x", None, [("h", b"")])] * 2, with_headers)
        with pytest.raises(SinkError, match="null topic present in the data"):
            sender.send(rows.append_column("topic", pa.array(["a", None])))
        with pytest.raises(SinkError, match="null topic present in the data"):
            sender.send(rows)
        with pytest.raises(SinkError, match="negative number"):
            PATHS[path](producer, "a").send(batch([(None, b"x", -1, None)], with_headers))


@pytest.mark.parametrize("path", PATHS)
def test_a_full_queue_loses_and_repeats_nothing(path, broker, make_topic, consumer):
    topic = make_topic("full", partitions=2)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "queue.buffering.max.messages": "100",
         "enable.idempotence": "true", **plain.PRODUCER_SETTINGS}
    )  # fmt: skip
    sender = PATHS[path](producer, None)
    found = [(b"%d" % (i % 7), b"%d" % i, None, [("h", b"v")] if i > 2000 else None)
             for i in range(2500)]  # fmt: skip
    for part in (batch(found[:2000], with_headers=False), batch(found[2000:])):
        sender.send(part.append_column("topic", pa.array([topic] * part.num_rows)))
    sender.flush(30)
    seen = [table["value"].to_pylist() for table in
            (read_fast(consumer, topic, p, 0, end)
             for p, end in enumerate(ends(consumer, topic, 2)))]  # fmt: skip
    assert sorted(itertools.chain(*seen)) == sorted(value for _, value, _, _ in found)
    assert all(list(map(int, values)) == sorted(map(int, values)) for values in seen)


def test_a_callback_of_the_application_is_still_called(broker, make_topic, producer):
    topic, seen = make_topic("mixed"), []
    own = Producer({"bootstrap.servers": broker.bootstrap_servers})
    sender = fast.ArrowProducer(own, topic)
    own.produce(topic, b"token", on_delivery=lambda error, message: seen.append(message.value()))
    sender.send(batch([(None, b"row", None, None)]))
    sender.flush(30)
    assert (seen, sender.failures) == ([b"token"], "")


def test_the_plain_path_is_taken_and_says_so(monkeypatch, caplog, producer):
    monkeypatch.setattr(librdkafka, "available", lambda: "a test says so")
    for _ in range(2):
        assert type(fast.arrow_producer(producer, "t")) is plain.ArrowProducer
    assert caplog.text.count("a test says so") == 1
