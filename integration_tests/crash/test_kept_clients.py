"""Clients that are kept between batches read and write what new ones would, whatever became of the
broker, the topic or the transactional id meanwhile."""

from __future__ import annotations

import gc
import os
import random
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import eo_kafka
from conftest import topic_maker
from eo_kafka.clients.kafka import bootstrap, transactional_producer
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.core.errors import SourceError
from eo_kafka.core.offsets import OffsetRange, TopicPartition
from eo_kafka.core.process.kept import Leaders
from eo_kafka.core.transaction import TransactionState
from eo_kafka.sources import reader
from eo_kafka.sources.settings.options import SourceOptions
from eo_kafka.state.ledger import log_reader
from eo_kafka.state.ledger.log_reader import read_records
from harness import committed, make_copy, recreate_topic, wait_until


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    for kept in (log_reader._kept, reader._kept):
        kept.close()
    yield
    for kept in (log_reader._kept, reader._kept):
        kept.close()


def fill(servers: str, topic: str, partition: int, values: list[bytes]) -> None:
    """In transactions of three, every other one aborted; markers and gaps are between."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    for number, at in enumerate(range(0, len(values), 3)):
        producer.begin_transaction()
        for value in values[at : at + 3]:
            producer.produce(topic, value, b"key", partition)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def test_a_kept_consumer_reads_what_a_new_one_reads(broker, make_topic):
    servers = broker.bootstrap_servers
    settings = {"bootstrap.servers": servers}
    topics = [make_topic("kept", partitions=2) for _ in range(2)]
    logs = {(topic, partition): 80 for topic in topics for partition in (0, 1)}  # 60 and 20 markers
    for (topic, partition), rows in logs.items():
        values = [f"{topic}-{partition}-{row}".encode() for row in range(60)]
        fill(servers, topic, partition, values)
        assert rows
    whole = {}
    for at, end in logs.items():
        log_reader._kept.close()
        whole[at] = list(read_records(settings, *at, 0, end))
        assert len(whole[at]) == 30
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    for _ in range(300):
        at = dice.choice(list(logs))
        start, end = sorted(dice.choices(range(81), k=2))
        found = list(read_records(settings, *at, start, end, at_once=dice.choice([1, 7, 1000])))
        assert found == [row for row in whole[at] if start <= row[0] < end], (seed, at, start, end)
    assert len(log_reader._kept) == 1


def test_a_kept_consumer_finds_the_leader_of_another_topic_at_once(broker, make_topic):
    """By itself librdkafka asks once a second: 20 ledgers would take 20 seconds."""
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    options = SourceOptions.parse(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribePattern": ".*"}, True
    )
    topics = [make_topic("other") for _ in range(10)]
    for topic in topics:
        fill(broker.bootstrap_servers, topic, 0, [b"1", b"2", b"3"])
    began = time.monotonic()
    for topic in topics:
        assert len(list(read_records(settings, topic, 0, 0, 4))) == 3
        (batch,) = reader.read_range(options, OffsetRange(TopicPartition(topic, 0), 0, 4))
        assert batch.num_rows == 3
    assert len(log_reader._kept) == len(reader._kept) == 1
    assert time.monotonic() - began < len(topics) / 2


@pytest.mark.parametrize("who", [reader, log_reader])
def test_a_new_consumer_that_has_connected_finds_the_leader_at_once(
    broker, make_topic, monkeypatch, who
):
    """Assigned once it has its connections, it would ask up to a second later, one time in two: by
    chance, a worker's first task took a second longer."""
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    topic = make_topic("new")
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    options = SourceOptions.parse(given, True)
    fill(broker.bootstrap_servers, topic, 0, [b"1", b"2", b"3"])
    made = who.consumer

    def connected(settings):
        consumer = made(settings)
        time.sleep(0.1)  # busy with something else, as a new worker is with imports
        return consumer

    monkeypatch.setattr(who, "consumer", connected)
    slow = 0
    for _ in range(16):
        who._kept.close()
        began = time.monotonic()
        if who is log_reader:
            assert len(list(read_records(settings, topic, 0, 0, 4))) == 3
        else:
            (batch,) = reader.read_range(options, OffsetRange(TopicPartition(topic, 0), 0, 4))
            assert batch.num_rows == 3
        slow += time.monotonic() - began > 0.7
    assert slow < 3


def test_a_kept_consumer_takes_records_from_their_partitions_queue_alone(
    broker, make_topic, monkeypatch
):
    """Also those that are there before the reader asks."""
    topic = make_topic("apart", partitions=3)
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    options = SourceOptions.parse(given, True)
    for partition in range(3):
        fill(broker.bootstrap_servers, topic, partition, [b"1", b"2", b"3"])
    common: list[object] = []

    def learn(_, consumer, topic):
        consumer.list_topics(topic, timeout=30)
        time.sleep(0.5)  # it fetches meanwhile
        common.extend(consumer.consume(10, 0))

    monkeypatch.setattr(Leaders, "learn", learn)
    for partition in range(3):
        (batch,) = reader.read_range(options, OffsetRange(TopicPartition(topic, partition), 0, 4))
        assert batch.num_rows == 3
    assert common == []


def test_records_in_another_order_are_not_handed_out(broker, make_topic, monkeypatch):
    topic = make_topic("order")
    fill(broker.bootstrap_servers, topic, 0, [b"1", b"2", b"3"])
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    fetcher = reader._fetcher

    def second_first(consumer, at):
        fetch, held = fetcher(consumer, at), []

        def swapped(*arguments, **more):
            for found in fetch(*arguments, **more, max_rows=1):
                if found.batch is not None and not held:
                    held.append(found)
                else:
                    yield held.pop() if found.batch is None and held else found

        return swapped

    monkeypatch.setattr(reader, "_fetcher", second_first)
    found = reader.read_range(
        SourceOptions.parse(given, True), OffsetRange(TopicPartition(topic, 0), 0, 4)
    )
    assert next(found)["offset"].to_pylist() == [1]
    with pytest.raises(SourceError, match=r"gave offset 0 of partition .*-0 after 2\."):
        list(found)


def test_a_reader_that_is_left_half_way_leaves_nothing_to_the_next(broker, make_topic):
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    topic = make_topic("half")
    fill(broker.bootstrap_servers, topic, 0, [b"%d" % number for number in range(60)])
    whole = list(read_records(settings, topic, 0, 0, 80))
    reading = read_records(settings, topic, 0, 0, 80)
    assert next(reading) == whole[0]
    reading.close()
    assert list(read_records(settings, topic, 0, 0, 80)) == whole


def test_a_kept_consumer_survives_a_restart_of_the_broker(own):
    settings = {"bootstrap.servers": own.bootstrap_servers}
    topic = topic_maker(own.bootstrap_servers)("restarted")
    fill(own.bootstrap_servers, topic, 0, [b"%d" % number for number in range(6)])
    before = list(read_records(settings, topic, 0, 0, 8))
    own.kill()
    time.sleep(3)
    own.start()
    fill(own.bootstrap_servers, topic, 0, [b"new-%d" % number for number in range(6)])
    began = time.monotonic()
    found = list(read_records(settings, topic, 0, 0, 16))
    assert found[: len(before)] == before
    assert [value for _, _, value in found[len(before) :]] == [b"new-0", b"new-1", b"new-2"]
    assert time.monotonic() - began < 20


def test_a_topic_that_was_made_again_is_read_anew(own):
    servers = own.bootstrap_servers
    settings = {"bootstrap.servers": servers}
    topic = topic_maker(servers)("again")
    own.kill()  # so that the leader's epoch is higher than that of the topic made again
    own.start()
    fill(servers, topic, 0, [b"old-%d" % number for number in range(12)])
    assert len(list(read_records(settings, topic, 0, 0, 16))) == 6
    recreate_topic(servers, topic, [])
    fill(servers, topic, 0, [b"new-%d" % number for number in range(6)])
    began = time.monotonic()
    found = list(read_records(settings, topic, 0, 0, 8))
    assert [value for _, _, value in found] == [b"new-0", b"new-1", b"new-2"]
    assert time.monotonic() - began < 20


def test_a_producer_that_is_opened_ahead_takes_no_id_and_fences_nobody(broker, make_topic):
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    name, topic = uuid.uuid4().hex, make_topic("ahead")
    with closing(ControlPlane(settings)) as control:
        transactional_producer.open_ahead(settings, name, 60_000)
        time.sleep(1)
        assert control.describe_one(name).state is TransactionState.MISSING
        holder = transactional_producer.take({**settings, "client.id": "x"}, name, 60_000)
        holder.begin_transaction()
        holder.produce(topic, b"row")
        before = control.describe_one(name)
        transactional_producer.open_ahead(settings, name, 60_000)
        time.sleep(1)
        holder.commit_transaction(30)
        assert control.describe_one(name).identity == before.identity
        transactional_producer.take(settings, name, 60_000)
        assert control.describe_one(name).epoch == before.epoch + 1


def test_a_producer_that_is_opened_ahead_connects_to_a_broker(broker, monkeypatch):
    """By itself it asks for the brokers' names, leaves, and waits a second or until it is used."""
    asked, wait = [], transactional_producer._wait_connected

    def noted(producer, topic):
        wait(producer, topic)
        asked.append(producer)

    monkeypatch.setattr(transactional_producer, "_wait_connected", noted)
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    transactional_producer.open_ahead(settings, uuid.uuid4().hex, 60_000)
    wait_until(lambda: asked, "it was asked for something")
    producer = transactional_producer._ahead._idle[-1].client
    assert asked == [producer]


def test_no_producer_is_taken_twice(broker):
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    name = uuid.uuid4().hex
    identities = set()
    with closing(ControlPlane(settings)) as control:
        for _ in range(3):
            transactional_producer.open_ahead(settings, name, 60_000)
            transactional_producer.take(settings, name, 60_000)
            identities.add(control.describe_one(name).identity)
    assert len(identities) == 3


def test_a_producer_opened_before_the_broker_restarted_is_as_good_as_a_new_one(own):
    settings = {"bootstrap.servers": own.bootstrap_servers}
    topic = topic_maker(own.bootstrap_servers)("ahead")
    transactional_producer.take(settings, "job", 60_000)
    transactional_producer.open_ahead(settings, "job", 60_000)
    time.sleep(1)
    own.kill()
    time.sleep(3)
    own.start()
    producer = transactional_producer.take(settings, "job", 60_000, topic=topic)
    producer.begin_transaction()
    producer.produce(topic, b"row")
    producer.commit_transaction(30)
    wait_until(lambda: committed(own.bootstrap_servers, topic), "the commit's marker is written")
    assert committed(own.bootstrap_servers, topic)[b"row"] == 1


def test_a_kept_consumer_does_not_keep_what_it_fetched_ahead(broker, make_topic):
    topic = make_topic("large", partitions=6)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(6 * 200):  # 20 MB of each partition, of which ten records are asked for
        producer.produce(topic, os.urandom(1000) * 100, partition=number % 6)
        producer.flush(30)
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    options = SourceOptions.parse(given, True)
    resident = []
    for partition in range(6):
        wanted = OffsetRange(TopicPartition(topic, partition), 0, 10)
        for batch in reader.read_range(options, wanted):
            assert batch.num_rows <= 10
            time.sleep(1)  # it fetches on meanwhile
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20)
    assert len(reader._kept) == 1
    assert resident[-1] - resident[1] < 40, resident


def connections(servers: str) -> int:
    """How many this process and its Python children have to that broker."""
    port, found = int(servers.rpartition(":")[2]), 0
    children = psutil.Process().children(recursive=True)
    for process in (psutil.Process(), *(one for one in children if "python" in one.name())):
        with suppress(psutil.NoSuchProcess):
            for one in process.net_connections("tcp"):
                is_up = one.status == psutil.CONN_ESTABLISHED
                found += is_up and bool(one.raddr) and one.raddr.port == port
    return found


@pytest.mark.full
def test_a_control_plane_that_was_idle_connects_again(own, monkeypatch):
    monkeypatch.setattr(bootstrap, "CONNECTION_IDLE_MS", 3000)
    servers = own.bootstrap_servers
    before = connections(servers)
    with closing(ControlPlane({"bootstrap.servers": servers})) as control:
        for _ in range(3):
            assert control.describe_one("nobody").state is TransactionState.MISSING
            assert connections(servers) > before
            wait_until(lambda: connections(servers) == before, "its connections end", 30)


@pytest.mark.full  # half a minute of waiting
def test_connections_end_with_their_query(own, own_topic, spark, tmp_path):
    """Spark keeps the query's workers for a minute."""
    servers = own.bootstrap_servers
    copy = make_copy(servers, own_topic, tmp_path, [b"%d" % number for number in range(100)])
    before = connections(servers)
    copy.run(spark)
    assert connections(servers) > before
    wait_until(lambda: connections(servers) == before, "its connections end", 45)


def test_a_worker_of_spark_is_quick_about_its_next_task(broker, make_topic, spark, monkeypatch):
    """Spark has it run a full garbage collection after each task, which takes 70 ms, and speaks to
    it over TCP as the kernel has it by default, which takes 40."""
    topic = make_topic("quick")
    fill(broker.bootstrap_servers, topic, 0, [b"value"])

    class Seen(DataSource):
        """Runs in the workers that eo-kafka runs in where that is registered, too."""

        def schema(self):
            return "put_aside long, no_delay int"

        def reader(self, schema):
            return SeenReader()

    class SeenReader(DataSourceReader):
        def partitions(self):
            return [InputPartition(number) for number in range(8)]

        def read(self, partition):
            frame = sys._getframe()
            while "sock" not in frame.f_locals:
                frame = frame.f_back
            no_delay = frame.f_locals["sock"].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            yield gc.get_freeze_count(), no_delay

    monkeypatch.setattr(spark.sparkContext, "environment", dict(spark.sparkContext.environment))
    session = spark.newSession()
    eo_kafka.register(session)
    session.dataSource.register(Seen)

    def is_seen() -> bool:
        read = session.read.format("eo-kafka").option("subscribe", topic)
        assert read.option("kafka.bootstrap.servers", broker.bootstrap_servers).load().count() == 1
        told = session.read.format("Seen").load().collect()
        return any(row.put_aside > 50_000 and row.no_delay for row in told)

    wait_until(is_seen, "a worker that has read tells of it")
