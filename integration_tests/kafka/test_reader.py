"""Reading without Spark, against a real broker: where ranges end, what is gone, what is refused."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from eo_kafka.connectors.kafka_source import KafkaStreamReader
from eo_kafka.connectors.spark_versions import ReadAllAvailable
from eo_kafka.core import librdkafka
from eo_kafka.core.offsets import LATEST, OffsetRange, Position, TopicPartition
from eo_kafka.errors import DataLossError, ReadTimeout, SourceError
from eo_kafka.sources import held_back, reader
from eo_kafka.sources.lookup import OffsetLookup
from eo_kafka.sources.planner import Planner
from eo_kafka.sources.reader import read_range
from eo_kafka.sources.settings.options import SourceOptions
from harness import delete_records

WAIT_S = 60


@pytest.fixture(params=["compiled", "plain"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of the two loops reads; both must read the same."""
    if request.param == "plain":
        monkeypatch.setattr(librdkafka, "available", lambda: "the test wants the plain loop")
    else:
        assert librdkafka.available() is None


both_loops = pytest.mark.usefixtures("loop")


def produce(broker: Any, topic: str, *values: bytes | None, **record: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value=value, **record)
    assert producer.flush(WAIT_S) == 0


def transaction(broker: Any, topic: str, *values: bytes, end: str = "commit") -> Producer:
    """A transaction that is committed, aborted or left open; keep what comes back to keep it so."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": uuid.uuid4().hex}
    )
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value=value)
    producer.flush(WAIT_S)
    if end != "open":
        getattr(producer, f"{end}_transaction")()
    return producer


def options(broker: Any, topic: str, **extra: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    return SourceOptions.parse({"startingOffsets": "earliest", **given, **extra}, True)


def rows(read_options: SourceOptions, start: int, end: int) -> list[dict[str, Any]]:
    wanted = OffsetRange(TopicPartition(read_options.subscription.topics[0], 0), start, end)
    return [row for batch in read_range(read_options, wanted) for row in batch.to_pylist()]


def newest(read_options: SourceOptions) -> int:
    lookup = OffsetLookup(read_options)
    at = TopicPartition(read_options.subscription.topics[0], 0)
    return lookup.latest([at])[at]


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s"
        time.sleep(0.2)


@both_loops
def test_every_end_among_markers_and_aborted_records(broker: Any, make_topic: Any) -> None:
    """Whatever offset a range ends at, it ends there: no record lost, none beyond, no waiting."""
    topic = make_topic("gaps")
    reading = options(broker, topic, **{"kafkaConsumer.pollTimeoutMs": "10000"})

    def marker_is_at(offset: int) -> None:  # it is written after the commit was answered
        eventually(lambda: newest(reading) == offset + 1)

    transaction(broker, topic, b"a", b"b")  # 0 1
    marker_is_at(2)
    transaction(broker, topic, b"x", b"x", b"x", end="abort")  # 3 4 5
    marker_is_at(6)
    transaction(broker, topic, b"c")  # 7
    marker_is_at(8)
    produce(broker, topic, b"d")  # 9
    transaction(broker, topic, b"x", b"x", end="abort")  # 10 11
    marker_is_at(12)
    seen = {0: b"a", 1: b"b", 7: b"c", 9: b"d"}

    for start, end in [(0, end) for end in range(14)] + [(start, 13) for start in range(14)]:
        found = {row["offset"]: row["value"] for row in rows(reading, start, end)}
        assert found == {at: value for at, value in seen.items() if start <= at < end}


@both_loops
def test_an_open_transaction_is_not_read_and_not_waited_for(broker: Any, make_topic: Any) -> None:
    topic = make_topic("open")
    transaction(broker, topic, b"a")
    still_open = transaction(broker, topic, b"x", end="open")
    produce(broker, topic, b"b")
    committed = options(broker, topic)
    uncommitted = options(broker, topic, **{"kafka.isolation.level": "read_uncommitted"})

    assert newest(committed) == 2
    assert [row["value"] for row in rows(committed, 0, 2)] == [b"a"]
    assert [row["value"] for row in rows(uncommitted, 0, newest(uncommitted))] == [b"a", b"x", b"b"]
    still_open.abort_transaction()


@both_loops
def test_nulls_headers_timestamps(broker: Any, make_topic: Any) -> None:
    topic = make_topic("nulls", config={"message.timestamp.type": "CreateTime"})
    produce(broker, topic, None, timestamp=1_600_000_000_123)
    produce(broker, topic, b"", key=b"k", headers=[("h", b"1"), ("g", None), ("h", b"2")])
    bare, full = rows(options(broker, topic, includeHeaders="true"), 0, 2)

    assert (bare["key"], bare["value"], bare["headers"]) == (None, None, None)
    assert bare["timestamp"].isoformat() == "2020-09-13T12:26:40.123000+00:00"
    assert (bare["topic"], bare["partition"], bare["offset"]) == (topic, 0, 0)
    assert bare["timestampType"] == 0
    assert (full["key"], full["value"]) == (b"k", b"")
    assert [tuple(header.values()) for header in full["headers"]] == [
        ("h", b"1"),
        ("g", None),
        ("h", b"2"),
    ]


@both_loops
def test_log_append_time(broker: Any, make_topic: Any) -> None:
    topic = make_topic("appended", config={"message.timestamp.type": "LogAppendTime"})
    produce(broker, topic, b"a", timestamp=1)
    (row,) = rows(options(broker, topic), 0, 1)

    assert row["timestampType"] == 1
    assert abs(row["timestamp"].timestamp() - time.time()) < 3600


@both_loops
def test_compacted_topic(broker: Any, make_topic: Any) -> None:
    """The holes that compaction leaves are neither data loss nor something to wait for."""
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.ms": "100",
        "max.compaction.lag.ms": "100",
    }
    topic = make_topic("compacted", config=config)
    for number in range(30):
        produce(broker, topic, b"%d" % number, key=b"%d" % (number % 3))
    reading = options(broker, topic)

    def compacted() -> bool:
        produce(broker, topic, b"roll", key=b"roll")  # a new segment needs a new record
        return len(rows(reading, 0, 30)) == 3

    eventually(compacted)
    assert [row["offset"] for row in rows(reading, 0, 30)] == [27, 28, 29]
    assert rows(reading, 0, 27) == []
    assert [row["value"] for row in rows(reading, 5, 28)] == [b"27"]


@both_loops
def test_records_that_are_gone(broker: Any, make_topic: Any) -> None:
    topic = make_topic("gone")
    produce(broker, topic, *[b"%d" % number for number in range(10)])
    delete_records(broker.bootstrap_servers, topic, 6)
    lenient = options(broker, topic, failOnDataLoss="false")

    with pytest.raises(DataLossError, match=rf"Offset 2 of partition {topic}-0 is out of range"):
        rows(options(broker, topic), 2, 9)
    assert [row["offset"] for row in rows(lenient, 2, 9)] == [6, 7, 8]
    assert rows(lenient, 2, 5) == []
    assert rows(lenient, 20, 30) == []


@pytest.mark.parametrize("fails", ["true", "false"])
def test_an_offset_that_is_there_when_one_looks_is_no_loss(
    broker: Any, make_topic: Any, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """A leader that is cut off knows less of the log than was read. Here the log grows."""
    topic = make_topic("grows")
    produce(broker, topic, *[b"%d" % number for number in range(10)])
    after_loss = reader._after_loss

    def later(*args: Any) -> int:
        produce(broker, topic, *[b"%d" % number for number in range(10, 30)])
        return after_loss(*args)

    monkeypatch.setattr(reader, "_after_loss", later)
    reading = options(broker, topic, failOnDataLoss=fails)
    with pytest.raises(SourceError, match=r"offset 20 .* holds offsets 0 to 30: .* run again"):
        rows(reading, 20, 25)
    assert [row["offset"] for row in rows(reading, 20, 25)] == [20, 21, 22, 23, 24]


def test_a_stream_that_is_beyond_an_open_transaction_waits_there(
    broker: Any, make_topic: Any
) -> None:
    """Spark's own connector reads all records by default, and its checkpoint is taken over."""
    topic = make_topic("ahead")
    produce(broker, topic, b"a")
    still_open = transaction(broker, topic, b"b", b"c", end="open")
    stream = KafkaStreamReader(options(broker, topic))
    start = {topic: {"0": 3}}
    end = stream.latestOffset(start, ReadAllAvailable())
    assert (end[topic], stream.partitions(start, end)) == ({"0": 3}, [])
    still_open.commit_transaction()
    produce(broker, topic, b"d")
    eventually(lambda: newest(options(broker, topic)) == 5)  # its marker comes by itself
    later = stream.latestOffset(end, ReadAllAvailable())
    batches = [batch for task in stream.partitions(end, later) for batch in stream.read(task)]
    assert [value for batch in batches for value in batch["value"].to_pylist()] == [b"d"]


def test_a_stream_that_an_open_transaction_holds_back_says_so(
    broker: Any, make_topic: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(held_back, "LOOK_EVERY_S", 0.0)
    topic = make_topic("held")
    produce(broker, topic, b"a")
    still_open = transaction(broker, topic, b"b", b"c", end="open")
    stream = KafkaStreamReader(options(broker, topic))
    ends = [stream.latestOffset({topic: {"0": 0}}, ReadAllAvailable())[topic] for _ in range(3)]
    assert ends == [{"0": 1}] * 3
    said = [record for record in caplog.records if "has been open" in record.message]
    assert [f"in each of {topic}-0: " in record.message for record in said] == [True]
    still_open.abort_transaction()


@both_loops
def test_a_range_that_cannot_end_times_out(broker: Any, make_topic: Any) -> None:
    """The records are there, and an open transaction holds them back."""
    topic = make_topic("stuck")
    produce(broker, topic, b"a")
    still_open = transaction(broker, topic, b"b", b"c", b"d", b"e", end="open")
    impatient = options(broker, topic, **{"kafkaConsumer.pollTimeoutMs": "1500"})

    with pytest.raises(ReadTimeout, match=rf"{topic}-0 .* no progress for 1.5 s at offset 1\."):
        rows(impatient, 0, 5)
    still_open.abort_transaction()


@both_loops
def test_an_end_that_the_log_does_not_reach_is_told_at_once(broker: Any, make_topic: Any) -> None:
    """Nothing will ever come: endingOffsets that are wrong, or a log that lost records."""
    topic = make_topic("short")
    produce(broker, topic, *[b"%d" % number for number in range(10)])
    began = time.monotonic()
    lenient = options(broker, topic, failOnDataLoss="false")

    assert [row["offset"] for row in rows(lenient, 3, 1_000_000)] == list(range(3, 10))
    assert rows(lenient, 10, 1_000_000) == []
    to_come = r".*ends at 10.*still to come, read again when they are there"
    with pytest.raises(DataLossError, match=rf"{topic}-0 from offset 3 to 1000000 {to_come}"):
        rows(options(broker, topic), 3, 1_000_000)
    with pytest.raises(DataLossError, match=r"to 10\. .*still to come, read again when they are"):
        rows(options(broker, topic), 11, 1_000_000)
    assert time.monotonic() - began < 20
    assert rows(lenient, 11, LATEST) == rows(options(broker, topic), 10, LATEST) == []
    with pytest.raises(DataLossError, match=rf"begin at offset 11 of .*{topic}-0, which {to_come}"):
        rows(options(broker, topic), 11, LATEST)


@both_loops
def test_what_is_held_back_before_a_log_that_is_too_short_is_waited_for(
    broker: Any, make_topic: Any
) -> None:
    topic = make_topic("held")
    still_open = transaction(broker, topic, b"a", b"b", end="open")
    lenient = options(broker, topic, failOnDataLoss="false")
    Timer(4, still_open.commit_transaction).start()

    assert [row["value"] for row in rows(lenient, 0, 1_000_000)] == [b"a", b"b"]


@both_loops
def test_a_long_range_comes_in_batches(broker: Any, make_topic: Any) -> None:
    topic = make_topic("long")
    produce(broker, topic, *[b"%d" % number for number in range(25_000)])
    wanted = OffsetRange(TopicPartition(topic, 0), 0, 24_999)
    batches = list(read_range(options(broker, topic), wanted))

    assert [at for batch in batches for at in batch["offset"].to_pylist()] == list(range(24_999))
    assert len(batches) > 1


def test_unknown_topic(broker: Any) -> None:
    lookup = OffsetLookup(options(broker, "no-such-topic"))

    with pytest.raises(SourceError, match="The topic 'no-such-topic' does not exist"):
        lookup.partitions()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert "no-such-topic" not in admin.list_topics(timeout=WAIT_S).topics, "asking created it"


def test_unreachable_broker() -> None:
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.sasl.password": "hunter2",
        "subscribe": "t",
        "fetchOffset.timeoutMs": "1500",
    }
    started = time.monotonic()

    with pytest.raises(ReadTimeout, match=r"No Kafka broker listens at 127.0.0.1:1 \(") as refused:
        OffsetLookup(SourceOptions.parse(given, streaming=True)).partitions()
    assert time.monotonic() - started < 10
    assert "hunter2" not in str(refused.value)


def test_settings_the_broker_does_not_take(broker: Any) -> None:
    sasl = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "me",
        "kafka.sasl.password": "hunter2",
    }

    with pytest.raises(SourceError, match="Check the security protocol, the cred") as refused:
        OffsetLookup(options(broker, "t", **sasl)).partitions()
    assert "hunter2" not in str(refused.value)


def test_explicit_offsets_must_name_every_partition(broker: Any, make_topic: Any) -> None:
    topic = make_topic("explicit", partitions=2)
    planned = options(broker, topic, startingOffsets=f'{{"{topic}":{{"0":3}}}}')

    with pytest.raises(SourceError, match=f"{topic}-0, {topic}-1"):
        plan = Planner(planned, OffsetLookup(planned))
        plan.newest(Position(plan.stored_start()), first=True)
