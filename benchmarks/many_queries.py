"""Many queries in one application: how soon the first batches are written, and what they take.

    python -m benchmarks.many_queries [--queries 20] [--busy 2] [--only kafka/eo-kafka]

Each contender is an application of its own, on one broker: Spark's connector, ours with Spark as it
comes, ours after `eo-kafka prepare`, and ours after `eo-kafka prepare --unpack`. Loops are compiled
before, in all of them. All queries are started one after the other, each from a topic with 100
records to a topic of its own, and stopped when each has written its records. `--busy` processes
keep the cores busy meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
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
    "after_stop": f"connections {AFTER_STOP_S:.0f} s after stop()",
}


def application(name: str, servers: str, topics: list[str]) -> dict[str, Any]:
    """Start a query for each topic; what was seen of them."""
    with benchmark_session() as spark, tempfile.TemporaryDirectory() as folder:
        spark.range(1).count()  # the session itself is up
        kind, began = name.split(",", maxsplit=1)[0], time.monotonic()
        options = {"kafka.bootstrap.servers": servers}
        queries: list[StreamingQuery] = []
        for topic in topics:
            rows = spark.readStream.format(kind).options(**options, subscribe=topic)
            rows = rows.option("startingOffsets", "earliest").load().select("key", "value")
            writer = rows.writeStream.format(kind).options(**options, topic=f"{topic}-out")
            writer = writer.option("checkpointLocation", f"{folder}/{topic}")
            queries.append(writer.queryName(topic.replace("-", "_")).start())
        done: dict[str, float] = {}
        most: dict[str, float] = {}
        while time.monotonic() - began < TIMEOUT_S:
            for query in queries:
                read = sum(batch["numInputRows"] for batch in query.recentProgress)
                if query.name not in done and read >= RECORDS:
                    done[query.name] = time.monotonic() - began
            seen = _seen(servers)
            most = {key: max(value, most.get(key, 0)) for key, value in seen.items()}
            if len(done) + sum(not query.isActive for query in queries) >= len(queries):
                break
            time.sleep(0.5)
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
            "after_stop": _seen(servers)["connections"],
        }


def _seen(servers: str) -> dict[str, float]:
    """Of this application now."""
    port = int(servers.rsplit(":", maxsplit=1)[1])
    found = {"processes": 0.0, "memory_mb": 0.0, "connections": 0.0}
    for process in psutil.Process().children(recursive=True):
        try:
            found["processes"] += "python" in process.name()
            found["memory_mb"] += process.memory_full_info().pss / 2**20
            found["connections"] += sum(
                one.status == psutil.CONN_ESTABLISHED and one.raddr.port == port
                for one in process.net_connections("tcp")
                if one.raddr
            )
        except psutil.NoSuchProcess:
            continue
    return found


def run_one(name: str, queries: int, busy: int, servers: str) -> dict[str, Any]:
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
        ran = subprocess.run(
            [*command, *topics], env=env, check=True, text=True, stdout=subprocess.PIPE
        )
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--only", default="/".join(CONTENDERS), help="names with / between them")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, servers, *topics = arguments.one
        print(json.dumps(application(name, servers, topics)))
        return
    from eo_kafka.broker.embedded import KafkaBroker
    from eo_kafka.tools.prepare.loops import USES

    for use in USES.values():
        use()
    found = {}
    with KafkaBroker() as broker:
        for name in arguments.only.split("/"):
            found[name] = run_one(name, arguments.queries, arguments.busy, broker.bootstrap_servers)
            print(f"{name}: {found[name]}", file=sys.stderr)
    print(f"|{arguments.queries} queries| {' | '.join(found)} |\n|--|{'--|' * len(found)}")
    for column, text in COLUMNS.items():
        cells = [one[column] for one in found.values()]
        shown = (str(cell) if isinstance(cell, str) else f"{cell:.0f}" for cell in cells)
        print(f"| {text} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
