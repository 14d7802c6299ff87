"""Many rows at once that name no partition: their partitions are chosen before librdkafka sees them
(sinks/rows/partitions.py), and are the ones that it would have chosen."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, groupby

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from eo_kafka.core import librdkafka
from eo_kafka.errors import SinkError, WriteFailed
from eo_kafka.sinks.rows import fast, plain, write_loops
from eo_kafka.sinks.rows.partitions import STICKY_ROWS
from eo_kafka.testing.processes import wait_until
from harness import committed_messages

ROWS, PARTITIONS = 10_000, 7
PATHS = {"fast": fast.ArrowProducer, "plain": plain.ArrowProducer}
VALUES = pa.array([b"%d" % n for n in range(ROWS)])


def keys(number):
    """Some appear once, some often, one is empty."""
    return [b"", b"often", b"key %d" % number, b"\0" * (number % 9)][number % 4]


KEYED = pa.record_batch({"key": pa.array([keys(n) for n in range(ROWS)]), "value": VALUES})
BARE = pa.record_batch({"key": pa.nulls(ROWS, pa.binary()), "value": VALUES})


@pytest.fixture(autouse=True)
def is_available():
    """As who uses the fast path asks first; kept loops find librdkafka's functions by it."""
    assert librdkafka.available() is None


@pytest.fixture
def producer(broker):
    def make(**settings):
        return Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                **plain.PRODUCER_SETTINGS,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    return make


@pytest.fixture
def chosen_here(monkeypatch):
    """How many times partitions were chosen before librdkafka saw the rows."""
    seen, real = [], write_loops.choose_partitions
    monkeypatch.setattr(write_loops, "choose_partitions", lambda *a: (seen.append(1), real(*a)))
    return seen


def send(sender, *batches):
    for batch in batches:
        sender.send(batch)
    sender.flush(30)
    rows = sum(batch.num_rows for batch in batches)
    assert (sender.failures, sender.rows, sender.acknowledged) == ("", rows, rows)


def by_partition(broker, topic):
    """The values of each partition, in their order."""
    found = defaultdict(list)
    for message in committed_messages(broker.bootstrap_servers, topic):
        found[message.partition()].append((message.offset(), message.key(), message.value()))
    return {number: [row[1:] for row in sorted(rows)] for number, rows in found.items()}


@pytest.mark.parametrize(
    ("settings", "is_ours"),
    [({}, True), ({"partitioner": "consistent"}, False), ({"partitioner": "fnv1a"}, False)],
)
def test_rows_with_a_key(broker, make_topic, producer, chosen_here, settings, is_ours):
    written, batches = {}, (KEYED, KEYED.slice(3, 5), KEYED.slice(1))
    for path, kind in PATHS.items():
        topic = make_topic("keyed", partitions=PARTITIONS)
        client = producer(**settings)
        client.list_topics(topic, timeout=10)  # before, librdkafka keeps no order
        sender = kind(client, topic)
        send(sender, *batches)
        written[path] = by_partition(broker, topic)
        assert (sender.rows, sender.digest.text()) == fast.row_digest(batches, topic)
    assert written["fast"] == written["plain"]
    assert len(written["fast"]) == PARTITIONS
    assert bool(chosen_here) == is_ours


def test_rows_without_a_key_go_to_one_partition_for_a_while(
    broker, make_topic, producer, chosen_here
):
    topic, client = make_topic("bare", partitions=PARTITIONS), producer()

    def leaders() -> list[int]:
        there = client.list_topics(topic, timeout=10).topics[topic].partitions
        return [one.leader for one in there.values()]

    wait_until(lambda: len(leaders()) == PARTITIONS and min(leaders()) >= 0, "all are led")
    send(fast.ArrowProducer(client, topic), BARE, BARE)
    found = by_partition(broker, topic)
    values = [int(value) for rows in found.values() for _, value in rows]
    assert sorted(values) == sorted([*range(ROWS)] * 2)
    assert len(found) == 2 * -(-ROWS // STICKY_ROWS)  # each slice in a partition of its own
    assert len(chosen_here) == 2


def test_who_wants_such_rows_spread_one_by_one_gets_them_spread(
    broker, make_topic, producer, chosen_here
):
    topic = make_topic("spread", partitions=PARTITIONS)
    client = producer(sticky_partitioning_linger_ms=0)
    send(fast.ArrowProducer(client, topic), BARE)
    runs = sum(
        1
        for rows in by_partition(broker, topic).values()
        for _ in groupby(enumerate(rows), lambda at: int(at[1][1]) - at[0])
    )
    assert runs > ROWS / 2
    assert not chosen_here


def test_rows_with_a_key_and_without_in_one_batch(broker, make_topic, producer):
    mixed = [None if n % 3 else keys(n) for n in range(ROWS)]
    rows = pa.record_batch({"key": pa.array(mixed, pa.binary()), "value": VALUES})
    written = {}
    for path, kind in PATHS.items():
        topic = make_topic("mixed", partitions=PARTITIONS)
        client = producer()
        client.list_topics(topic, timeout=10)
        send(kind(client, topic), rows)
        written[path] = by_partition(broker, topic)
    keyed = {
        path: {n: [row for row in rows if row[0] is not None] for n, rows in found.items()}
        for path, found in written.items()
    }
    assert keyed["fast"] == keyed["plain"]
    bare = [row for rows in written["fast"].values() for row in rows if row[0] is None]
    assert len(bare) == mixed.count(None)


def test_rows_that_name_many_partitions(broker, make_topic, producer):
    numbers = [n * n % PARTITIONS for n in range(ROWS)]
    rows = KEYED.append_column("partition", pa.array(numbers, pa.int32()))
    topic = make_topic("named", partitions=PARTITIONS)
    send(fast.ArrowProducer(producer(), topic), rows)
    found = by_partition(broker, topic)
    for number, there in found.items():
        assert [int(value) for _, value in there] == [
            n for n in range(ROWS) if numbers[n] == number
        ]
    assert sum(map(len, found.values())) == ROWS


def test_rows_to_many_topics(broker, make_topic, producer, chosen_here):
    topics = [make_topic(f"many{n}", partitions=n + 1) for n in range(3)]
    rows = KEYED.append_column("topic", pa.array([topics[n % 3] for n in range(ROWS)]))
    send(fast.ArrowProducer(producer(), None), rows, rows)
    for number, topic in enumerate(topics):
        found = by_partition(broker, topic)
        assert sum(map(len, found.values())) == 2 * len(range(number, ROWS, 3))
    assert len(chosen_here) == 6


def test_a_full_queue_loses_and_repeats_nothing(broker, make_topic, producer):
    topic = make_topic("full", partitions=PARTITIONS)
    send(fast.ArrowProducer(producer(queue_buffering_max_messages=100), topic), KEYED)
    found = by_partition(broker, topic)
    values = [[int(value) for _, value in rows] for rows in found.values()]
    assert all(some == sorted(some) for some in values)
    assert sorted(chain(*values)) == [*range(ROWS)]


@pytest.mark.parametrize("path", PATHS)
def test_a_topic_that_does_not_exist_is_told(producer, path):
    client = producer(allow_auto_create_topics=False, topic_metadata_propagation_max_ms=1000)
    sender = PATHS[path](client, "no-such-topic")
    with pytest.raises(WriteFailed, match=r"to no-such-topic: .*a write creates no topic"):
        send(sender, KEYED)


@pytest.mark.parametrize("path", PATHS)
def test_one_row_that_is_too_large_among_many(make_topic, producer, path):
    topic = make_topic("large", partitions=PARTITIONS)
    values = [b"%d" % n if n != 5000 else b"x" * 2_000_000 for n in range(ROWS)]
    rows = pa.record_batch({"key": KEYED["key"], "value": pa.array(values)})
    with pytest.raises(SinkError, match=rf"cannot be sent to {topic}: .*kafka\.message\.max\.byt"):
        send(PATHS[path](producer(), topic), rows)


@pytest.mark.parametrize("path", PATHS)
def test_a_dead_letter_that_is_too_large_says_of_which_record_it_is(make_topic, producer, path):
    topic = make_topic("letters")
    names = ("reason", "topic", "partition", "offset")
    said = zip(names, (b"no JSON", b"payments", b"3", b"70"), strict=True)
    letter = [{"key": f"eo_kafka.bad_record.{name}", "value": value} for name, value in said]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([letter[:1], [{"key": "own", "value": None}, *letter]], kind)
    values = pa.array([b"small", b"x" * 2_000_000])
    with pytest.raises(SinkError, match="the dead letter of offset 70 of payments-3, cannot be"):
        send(PATHS[path](producer(), topic), pa.record_batch({"value": values, "headers": headers}))


def test_a_topic_made_again_with_fewer_partitions_loses_nothing_without_a_word(
    broker, make_topic, producer
):
    topic = make_topic("again", partitions=PARTITIONS)
    client = producer()
    sender = fast.ArrowProducer(client, topic)
    send(sender, KEYED)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")
    admin.create_topics([NewTopic(topic, 2)])[topic].result()
    try:
        sender.send(KEYED)
        sender.flush(60)
    except (SinkError, WriteFailed):
        return
    there = sum(map(len, by_partition(broker, topic).values()))
    assert there == sender.acknowledged - ROWS == ROWS
