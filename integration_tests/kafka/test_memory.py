"""A worker's memory stays bounded, whatever waits for it in Kafka and however large a record is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from conftest import topic_maker
from harness import Copy, committed_messages, control_plane, produce, wait_until

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
MIB = 2**20
# What docs/benchmarks/README.md promises.
BOUND_MIB = 640
LARGEST = 10 * MIB
LARGE_RECORDS = {"max.message.bytes": str(LARGEST + 1000)}


def workers() -> list[psutil.Process]:
    """The Python processes that the session of this test has started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it may end meanwhile
            if "java" not in process.name() and "pyspark" in " ".join(process.cmdline()):
                found.append(process)
    return found


def peak_mib(run: Callable[[], object]) -> float:
    """The most that any worker had resident while `run` ran."""
    for process in workers():
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak begins anew
    run()
    peaks = []
    for process in workers():
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith("VmHWM"))
        peaks.append(int(line.split()[1]) / 1024)
    assert peaks, "no worker is left to be asked"
    return max(peaks)


def wait_until_steady(value: Callable[[], int], seconds: float = 5) -> None:
    """Until it has not risen for so long."""
    highest, since = value(), time.monotonic()

    def is_steady() -> bool:
        nonlocal highest, since
        if value() > highest:
            highest, since = value(), time.monotonic()
        return time.monotonic() - since > seconds

    wait_until(is_steady, "no more is kept")


def fill(servers: str, topic: str, size: int, total: int, partitions: int) -> int:
    """Records that do not compress; how many."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "message.max.bytes": LARGEST + 1000,
            "linger.ms": 20,
            "queue.buffering.max.kbytes": 65_536,
        }
    )
    count = total // size
    value = os.urandom(size)
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0
    return count


@pytest.mark.parametrize("size", [100, 100_000, LARGEST])
@pytest.mark.parametrize("partitions", [1, 12])
def test_reading(broker, make_topic, spark, size, partitions):
    topic = make_topic("in", partitions=partitions, config=LARGE_RECORDS)
    total = (100 if size == 100 else 800) * MIB
    count = fill(broker.bootstrap_servers, topic, size, total, partitions)
    rows = (
        spark.read.format("eo-kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    found: list[int] = []
    sizes = rows.selectExpr("length(value) as size").groupBy("size").count()
    peak = peak_mib(lambda: found.extend(sizes.collect()[0]))
    assert found == [size, count]
    assert peak < BOUND_MIB, f"{peak:.0f} MiB"


@pytest.mark.parametrize("size", [100, 100_000, LARGEST])
def test_copying(broker, make_topic, spark, tmp_path, size):
    servers = broker.bootstrap_servers
    source, sink = (make_topic(n, partitions=4, config=LARGE_RECORDS) for n in ("in", "out"))
    count = fill(servers, source, size, (50 if size == 100 else 400) * MIB, 4)
    job = Copy(servers, source, sink, tmp_path, f"memory-{source}", per_batch=None)
    job.sink_extra = {"kafka.message.max.bytes": str(LARGEST + 1000)}
    peak = peak_mib(lambda: job.run(spark))
    assert len(committed_messages(servers, sink)) == count
    assert peak < BOUND_MIB, f"{peak:.0f} MiB"


def mappings() -> dict[int, int]:
    """Of each worker, how many there are in its memory: a process may have some 65,000."""
    found = {}
    for process in workers():
        with suppress(OSError):
            found[process.pid] = len(Path(f"/proc/{process.pid}/maps").read_text().splitlines())
    return found


@pytest.mark.parametrize("source", ["eo-kafka", "direct"])
def test_workers_load_nothing_for_each_batch(broker, make_topic, spark, tmp_path, source):
    """What stays for each of a query's batches ends the worker some day."""
    servers, batches, warm = broker.bootstrap_servers, 150, 50
    topics = (make_topic(name, partitions=2) for name in ("in", "out"))
    job = Copy(servers, *topics, tmp_path, f"memory-{source}", per_batch=2, source=source)
    produce(servers, job.source_topic, [b"%d" % number for number in range(2 * batches)])

    def is_warm() -> bool:
        last = query.lastProgress
        return last is not None and last.batchId >= warm

    with job.running(spark) as query:
        wait_until(is_warm, "batches were written", 120)
        before = mappings()
        assert query.awaitTermination(300)
        after = mappings()
    assert len(committed_messages(servers, job.sink_topic)) == 2 * batches
    grown = {pid: after[pid] - before[pid] for pid in after.keys() & before.keys()}
    assert grown, "no worker lived long enough"
    assert max(grown.values()) < 50, grown


def test_writing_to_a_broker_that_takes_nothing_for_a_while(own, spark):
    """Then rows wait in Spark, and not in the worker."""
    topic = topic_maker(own.bootstrap_servers)("slow", partitions=4)
    rows = spark.range(0, 12_000, 1, 2).selectExpr("concat(repeat('x', 100000), id) as value")
    write = (
        rows.write.format("eo-kafka")
        .option("kafka.bootstrap.servers", own.bootstrap_servers)
        .option("topic", topic)
        .mode("append")
    )

    def stop_it_for_a_while() -> None:
        with control_plane(own.bootstrap_servers) as control:
            wait_until(lambda: control.end_offset(topic, 0, committed=False), "rows arrive")
        os.kill(own.pid, signal.SIGSTOP)
        try:
            wait_until_steady(lambda: max(one.memory_info().rss for one in workers()))
        finally:
            os.kill(own.pid, signal.SIGCONT)

    def save() -> None:
        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(stop_it_for_a_while)
            write.save()
            stopped.result()

    peak = peak_mib(save)
    assert len(committed_messages(own.bootstrap_servers, topic)) == 12_000
    assert peak < BOUND_MIB, f"{peak:.0f} MiB"
