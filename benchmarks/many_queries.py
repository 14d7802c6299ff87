"""Many queries in one application: how soon the first batches are written, and what they take.

    python -m benchmarks.many_queries [--queries 20] [--busy 2] [--only eo-kafka] [--steady 30]

Each contender is an application of its own, on one broker: Spark's connector, ours with Spark as it
comes, ours after `eo-kafka prepare`, and ours after `eo-kafka prepare --unpack`. Loops are compiled
before, in all of them. All queries are started one after the other, each from a topic with 100
records to a topic of its own, and stopped when each has written its records. `--busy` processes
keep the cores busy meanwhile. With `--steady` they run on for so many seconds, a batch a second
and a hundred records to each topic in it, and what they take then is told, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.session import benchmark_session
from eo_kafka.tools.prepare import bytecode

sys.path.insert(0, str(Path(__file__).parents[1] / "integration_tests" / "support"))
import spark_home

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

RECORDS = 100
TIMEOUT_S = 300.0
AFTER_STOP_S = 25.0  # clients are closed after 10 or 20 s without use
CONTENDERS = ("kafka", "eo-kafka", "eo-kafka, prepared", "eo-kafka, unpacked")
WAYS = {"prepared": bytecode.add, "unpacked": bytecode.unpack}
COLUMNS = {
    "alive": "queries alive",
    "first_s": "first batch of the first query, s",
    "all_s": "first batches of all, s",
    "processes": "Python processes",
    "memory_mb": "their memory and the JVM's, MB",
    "connections": "connections",
    "driver_mb": "steady: the application's own Python process, MB",
    "steady_jvm_mb": "steady: the JVM's memory, MB",
    "steady_python_mb": "steady: memory of the Python processes, MB",
    "steady_processes": "steady: Python processes",
    "steady_connections": "steady: connections",
    "cpu": "steady: CPU of all but the broker, % of a core",
    "after_stop": f"connections {AFTER_STOP_S:.0f} s after stop()",
}


def application(name: str, servers: str, topics: list[str], steady_s: float) -> dict[str, Any]:
    """Start a query for each topic; what was seen of them."""
    with benchmark_session() as spark, tempfile.TemporaryDirectory() as folder:
        spark.range(1).count()  # the session itself is up
        driver_mb = psutil.Process().memory_full_info().pss / 2**20
        kind, began = name.split(",", maxsplit=1)[0], time.monotonic()
        options = {"kafka.bootstrap.servers": servers}
        queries: list[StreamingQuery] = []
        for topic in topics:
            rows = spark.readStream.format(kind).options(**options, subscribe=topic)
            rows = rows.option("startingOffsets", "earliest").load().select("key", "value")
            writer = rows.writeStream.format(kind).options(**options, topic=f"{topic}-out")
            writer = writer.option("checkpointLocation", f"{folder}/{topic}")
            if steady_s:
                writer = writer.trigger(processingTime="1 second")
            queries.append(writer.queryName(topic.replace("-", "_")).start())
        done: dict[str, float] = {}
        most: dict[str, float] = {}
        while time.monotonic() - began < TIMEOUT_S:
            for query in queries:
                read = sum(batch["numInputRows"] for batch in query.recentProgress)
                if query.name not in done and read >= RECORDS:
                    done[query.name] = time.monotonic() - began
            most = _most(most, servers)
            if len(done) + sum(not query.isActive for query in queries) >= len(queries):
                break
            time.sleep(0.5)
        steady = {"driver_mb": driver_mb, **_steady(servers, topics, steady_s)} if steady_s else {}
        alive = sum(query.isActive and query.name in done for query in queries)
        for query in queries:
            query.stop()
        time.sleep(AFTER_STOP_S)
        times = sorted(done.values()) or [float("nan")]
        return {
            **most,
            "alive": f"{alive} of {len(queries)}",
            "first_s": times[0],
            "all_s": times[-1],
            **steady,
            "after_stop": _seen(servers)["connections"],
        }


def _steady(servers: str, topics: list[str], seconds: float) -> dict[str, float]:
    """What the application takes, at most, while its queries have a batch a second."""
    ended = threading.Event()
    feeding = threading.Thread(target=_feed, args=(servers, topics, ended))
    feeding.start()
    try:
        time.sleep(seconds / 3)  # processes that only the start needed are idle by then
        most: dict[str, float] = {}
        began, cpu = time.monotonic(), _cpu_s()
        while (ran := time.monotonic() - began) < seconds:
            most = _most(most, servers)
            time.sleep(1)
        found = {f"steady_{key}": value for key, value in most.items()}
        return {**found, "cpu": 100 * (_cpu_s() - cpu) / ran}
    finally:
        ended.set()
        feeding.join()


def _feed(servers: str, topics: list[str], ended: threading.Event) -> None:
    from eo_kafka.clients.kafka.config import producer

    sending = producer({"bootstrap.servers": servers})
    while not ended.wait(1):
        for topic in topics:
            for number in range(RECORDS):
                sending.produce(topic, b"%d" % number)
        sending.flush()


def _cpu_s() -> float:
    """Of this application's processes but its own, with those that have ended."""
    return sum(sum(one.cpu_times()[:4]) for one in psutil.Process().children(recursive=True))


def _most(before: dict[str, float], servers: str) -> dict[str, float]:
    """Each figure as it is now, or as it was if that was more."""
    return {key: max(value, before.get(key, 0)) for key, value in _seen(servers).items()}


def _seen(servers: str) -> dict[str, float]:
    """Of this application now."""
    port = int(servers.rsplit(":", maxsplit=1)[1])
    found = dict.fromkeys(("processes", "memory_mb", "jvm_mb", "python_mb", "connections"), 0.0)
    for process in psutil.Process().children(recursive=True):
        try:
            found["processes"] += "python" in process.name()
            size_mb = process.memory_full_info().pss / 2**20
            found["memory_mb"] += size_mb
            found["jvm_mb" if process.name() == "java" else "python_mb"] += size_mb
            found["connections"] += sum(
                one.status == psutil.CONN_ESTABLISHED and one.raddr.port == port
                for one in process.net_connections("tcp")
                if one.raddr
            )
        except psutil.NoSuchProcess:
            continue
    return found


def run_one(name: str, queries: int, busy: int, servers: str, steady_s: float) -> dict[str, Any]:
    """The application of a contender, in a process of its own, with topics of its own."""
    from confluent_kafka.admin import AdminClient, NewTopic

    from eo_kafka.clients.kafka.config import producer

    run = uuid.uuid4().hex[:6]
    topics = [f"many-{run}-{number}" for number in range(queries)]
    admin = AdminClient({"bootstrap.servers": servers})
    new = [NewTopic(one, num_partitions=1) for topic in topics for one in (topic, f"{topic}-out")]
    for made in admin.create_topics(new).values():
        made.result()
    sending = producer({"bootstrap.servers": servers})
    for topic in topics:
        for number in range(RECORDS):
            sending.produce(topic, b"%d" % number)
    sending.flush()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        home, way = folder / "spark", name.partition(", ")[2]
        for archive in spark_home.as_it_came(home):
            if way:
                WAYS[way](archive)
        env = {**os.environ, "SPARK_HOME": str(home)}
        for _ in range(busy):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        command = [sys.executable, "-m", "benchmarks.many_queries", "--one", name, servers]
        command += [str(steady_s)]
        ran = subprocess.run(
            [*command, *topics], env=env, check=True, text=True, stdout=subprocess.PIPE
        )
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--steady", type=float, default=0, help="seconds")
    parser.add_argument("--only", default="/".join(CONTENDERS), help="names with / between them")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, servers, steady_s, *topics = arguments.one
        print(json.dumps(application(name, servers, topics, float(steady_s))))
        return
    from eo_kafka.broker.embedded import KafkaBroker
    from eo_kafka.core import librdkafka
    from eo_kafka.tools.prepare.loops import USES

    librdkafka.available()  # as who uses the loops asks first
    for use in USES.values():
        use()
    found = {}
    with KafkaBroker() as broker:
        for name in arguments.only.split("/"):
            servers = broker.bootstrap_servers
            found[name] = run_one(
                name, arguments.queries, arguments.busy, servers, arguments.steady
            )
            print(f"{name}: {found[name]}", file=sys.stderr)
    print(f"|{arguments.queries} queries| {' | '.join(found)} |\n|--|{'--|' * len(found)}")
    for column, text in COLUMNS.items():
        if column not in next(iter(found.values())):
            continue
        cells = [one[column] for one in found.values()]
        shown = (str(cell) if isinstance(cell, str) else f"{cell:.0f}" for cell in cells)
        print(f"| {text} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
