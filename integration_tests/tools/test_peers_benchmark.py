"""The measuring parts of `benchmarks.peers` on a real Kafka: what they count, what they refuse."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from benchmarks.peers import read_path
from benchmarks.peers.bare_copy import BareCopy
from benchmarks.peers.bare_programs import built, ran
from benchmarks.peers.visible import Watch
from benchmarks.queries import WrongResult
from benchmarks.workload import Topics, Workload
from eo_kafka.testing.processes import wait_until
from harness import committed

NEEDS_COMPILER = pytest.mark.skipif(shutil.which("cc") is None, reason="a C program")
RECORDS = 99  # a transaction; with its marker it takes a hundred offsets


def write(producer: Producer, topic: str) -> None:
    producer.begin_transaction()
    for _ in range(RECORDS):
        producer.produce(topic, b"value", partition=0)
    assert producer.flush(30) == 0


def reached(watch: Watch) -> int:
    return watch.changes[0][-1].offset if watch.changes[0] else 0


def test_a_watch_counts_records_when_they_are_committed(broker, make_topic):
    topic = make_topic("watched")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    with Watch(broker.bootstrap_servers, topic, 1) as watch:
        for number in range(1, 11):
            write(producer, topic)
            assert reached(watch) == 100 * (number - 1)
            producer.commit_transaction(30)
            wait_until(lambda seen=100 * number: reached(watch) == seen, "the commit is seen")
        write(producer, topic)
    assert reached(watch) == 1000, "nothing of an open transaction is counted"
    producer.abort_transaction(30)
    first, last = watch.changes[0][0], watch.changes[0][8]
    assert watch.seen("a producer").rate == pytest.approx(800 / (last.seconds - first.seconds))


def test_a_watch_of_a_topic_that_is_not_written_gives_no_rate(broker, make_topic):
    with Watch(broker.bootstrap_servers, make_topic("idle"), 1) as watch:
        pass
    with pytest.raises(WrongResult, match="nobody: 0 commits"):
        watch.seen("nobody")


@pytest.fixture(scope="module")
def workload(broker) -> Workload:
    filled = Workload("read-path", 300_000, 100, 2)
    Topics(broker.bootstrap_servers).fill(filled)
    return filled


def test_our_read_path_is_measured_only_if_it_reads_everything(broker, workload):
    with read_path.readers(workload.partitions) as pool:
        assert read_path.read_ours(pool, broker.bootstrap_servers, workload) > 0
        more = replace(workload, records=workload.records + 1)
        with pytest.raises(WrongResult, match="eo-kafka read"):
            read_path.read_ours(pool, broker.bootstrap_servers, more)


@NEEDS_COMPILER
def test_the_bare_loop_is_measured_only_if_it_reads_everything(broker, workload):
    with built("bare_loop") as program:
        assert read_path.read_bare(program, broker.bootstrap_servers, workload) > 0
        longer = replace(workload, size=workload.size + 1)
        with pytest.raises(WrongResult, match="the bare loop read"):
            read_path.read_bare(program, broker.bootstrap_servers, longer)


@NEEDS_COMPILER
def test_the_bare_copy_writes_each_record_once(broker, make_topic, workload):
    output = make_topic("bare-copy", 2)
    with built("bare_copy") as program:
        BareCopy("bare", program, broker.bootstrap_servers).copy(workload, output)
    source, copied = (
        committed(broker.bootstrap_servers, name) for name in (workload.topic, output)
    )
    assert copied == source


def test_a_bare_program_that_fails_says_so():
    with pytest.raises(WrongResult, match="false failed"):
        ran(["false"], 10)
