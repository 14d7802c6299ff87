"""A filter over typed JSON, from topic to topic, beside Flink SQL and Spark's own connector.

    python -m benchmarks.typed [--rounds 3] [--records 4000000] [--page]

Run it from the root of the repository; it takes about ten minutes. Each contender decodes orders,
keeps those of fewer than `MOST` pieces, about half, and writes three of their six fields as JSON.
The clock is that of `benchmarks.peers`: when committed records appear in the output. `--page`
writes docs/benchmarks/typed.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from pyspark.sql.functions import col, from_json, struct, to_json

import eo_kafka
from benchmarks.peers.environments import FLINK_FACTS, installed
from benchmarks.peers.flink import IN_TRANSACTIONS, Flink, Statement, flink
from benchmarks.peers.settings import OF_SPARK, PRODUCER
from benchmarks.peers.visible import Watch
from benchmarks.queries import WrongResult, in_turn, own_topics, run
from benchmarks.report import Rates, ratios, throughput_table
from benchmarks.session import CORES, benchmark_session, environment
from benchmarks.workload import BROKER_PROPERTIES, Topics
from eo_kafka.broker.embedded import KafkaBroker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "typed.md"
INPUT = "orders"
MOST = 50  # pieces, of 0 to 99
GOAL = 2.0
BATCHES = 5  # of a query: each takes a second or more, as long as Flink's commit interval
READ = "id BIGINT, customer STRING, price DOUBLE, pieces INT, paid BOOLEAN, note STRING"
WRITTEN = "id BIGINT, customer STRING, price DOUBLE"
LANE, ROWS = "eo-kafka's direct lane, exactly once", "eo-kafka, exactly once"
SPARK = "Spark's connector (JVM), from_json and to_json, at least once"
FLINK = "Flink SQL, exactly once"
STATEMENT = Statement(
    {"format": "json"},
    read=READ,
    written=WRITTEN,
    query=f"SELECT id, customer, price FROM source WHERE pieces < {MOST}",
)
Job = Callable[[str], None]  # from INPUT into this topic, to the end


def order(number: int) -> dict[str, Any]:
    """One record's value, of about 140 bytes."""
    return {
        "id": number,
        "customer": f"customer-{number * 7919 % 100_000}",
        "price": number % 100_000 / 8,
        "pieces": number * 31 % 100,
        "paid": number % 3 == 0,
        "note": f"to be delivered at door {number % 1000}",
    }


def fill_input(topics: Topics, records: int) -> None:
    """INPUT, with a partition a core."""
    topics.create(INPUT, CORES)
    settings = {"linger.ms": 50, "batch.size": 1_000_000, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, **settings})
    for number in range(records):
        producer.produce(INPUT, json.dumps(order(number)), partition=number % CORES)
        if number % 50_000 == 0:
            producer.flush()
    if left := producer.flush(60):
        raise WrongResult(f"{left} records were not acknowledged")


def few(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The lane's transform."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        value = batch.column("value")
        kept = value.filter(pc.less(pc.struct_field(value, "pieces"), MOST))
        names = ("id", "customer", "price")
        parts = [pc.struct_field(kept, name) for name in names]
        yield pa.record_batch({"value": pa.StructArray.from_arrays(parts, names)})


class Jobs:
    """The contenders, in one Spark session and one Flink."""

    def __init__(self, spark: SparkSession, flinks: Flink, servers: str, records: int) -> None:
        self._spark, self._flinks = spark, flinks
        self._kafka = {"kafka.bootstrap.servers": servers}
        self._source = {
            **self._kafka,
            "subscribe": INPUT,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(-(-records // BATCHES) + CORES),
        }

    def all_of_them(self) -> Mapping[str, Job]:
        """By name."""
        return {LANE: self._lane, ROWS: self._rows, SPARK: self._plain, FLINK: self._flink}

    def _lane(self, output: str) -> None:
        source = {**self._source, "value.format": "json", "value.schema": READ}
        schema = f"value STRUCT<{WRITTEN}>"
        run(eo_kafka.direct(self._spark, source, self._sink(output), few, schema))

    def _rows(self, output: str) -> None:
        source = {**self._source, "value.format": "json", "value.schema": READ}
        orders = self._spark.readStream.format("eo-kafka").options(**source).load()
        kept = orders.where(f"value.pieces < {MOST}")
        made = kept.select(struct("value.id", "value.customer", "value.price").alias("value"))
        run(made.writeStream.format("eo-kafka").options(**self._sink(output)))

    def _plain(self, output: str) -> None:
        orders = self._spark.readStream.format("kafka").options(**self._source).load()
        orders = orders.select(from_json(col("value").cast("string"), READ).alias("value"))
        kept = orders.where(f"value.pieces < {MOST}")
        made = to_json(struct("value.id", "value.customer", "value.price"))
        written = kept.select(made.alias("value")).writeStream.format("kafka")
        run(written.options(topic=output, **self._kafka, **OF_SPARK))

    def _flink(self, output: str) -> None:
        settings = {**PRODUCER, **IN_TRANSACTIONS}
        self._flinks.run(INPUT, output, "exactly-once", settings, STATEMENT)

    def _sink(self, output: str) -> dict[str, str]:
        job = {"topic": output, "jobName": output, "value.format": "json"}
        return {**self._kafka, **OF_SPARK, **job}

    def checksum(self, output: str) -> tuple[int, int]:
        """Count and order-free checksum of the committed rows, by Spark's own connector."""
        read = {**self._kafka, "subscribe": output, "kafka.isolation.level": "read_committed"}
        rows = self._spark.read.format("kafka").options(**read).load()
        rows = rows.select(from_json(col("value").cast("string"), WRITTEN).alias("v"))
        found = rows.selectExpr("count(v.id)", "bit_xor(xxhash64(v.id, v.customer, v.price))")
        count, digest = found.first() or (0, 0)
        return int(count), int(digest or 0)


def render(facts: Mapping[str, Any], rates: Rates) -> str:
    """The page."""
    found = ratios(rates[LANE], rates[FLINK])
    verdict = "met" if found.median >= GOAL else "**not met**"
    method = (
        "Object: decode JSON of six fields (about 140 bytes), keep about half of the records by "
        f"`pieces < {MOST}`, write three fields as JSON into another topic, and be done when a "
        "`read_committed` consumer can read all of them. The rate is that of the records that are "
        "written, while the job is under way. Topics, parallelism, producer settings, commit "
        "intervals and the clock are those of [peers.md](peers.md). The lane's filter is Arrow's; "
        "the others' is SQL. After each run count and checksum of the output's rows are compared "
        "with each other's."
    )
    return "\n".join(
        (
            "# A filter over typed JSON",
            "",
            "How fast is it beside others? Written by `python -m benchmarks.typed --page`.",
            "",
            throughput_table("## Topic to topic", rates, FLINK),
            "",
            f"{LANE} / {FLINK}: {found}; the goal is {GOAL:g}, {verdict}.",
            "",
            fill(method, 110),
            "",
            ", ".join(f"{name} {value}" for name, value in facts.items()),
            "",
        )
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.typed")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, after a warm-up")
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}")
    given = parser.parse_args(arguments)
    load = round(os.getloadavg()[0], 1)
    with (
        KafkaBroker(properties=BROKER_PROPERTIES) as broker,
        benchmark_session() as spark,
        flink(installed(), broker.bootstrap_servers) as flinks,
    ):
        facts = {**environment(spark, broker.version), **FLINK_FACTS, "load before": load}
        topics = Topics(broker.bootstrap_servers)
        fill_input(topics, given.records)
        jobs = Jobs(spark, flinks, broker.bootstrap_servers, given.records)
        rates = _measured(jobs, topics, given.rounds)
    text = render({**facts, "rounds": given.rounds, "records": f"{given.records:,}"}, rates)
    if given.page:
        PAGE.write_text(text)
    print(text)


def _measured(jobs: Jobs, topics: Topics, rounds: int) -> Rates:
    contenders = list(jobs.all_of_them().items())
    rates: dict[str, list[float]] = {name: [] for name, _ in contenders}
    sums: set[tuple[int, int]] = set()
    for number in range(rounds + 1):
        for name, job in in_turn(contenders, number):
            output, began = f"few-{uuid.uuid4().hex[:8]}", time.monotonic()
            with topics.temporary(output, CORES, own_topics(output)):
                with Watch(topics.bootstrap_servers, output, CORES) as watch:
                    job(output)
                sums.add(jobs.checksum(output))
                if len(sums) > 1:
                    raise WrongResult(f"{name} wrote other rows than those before: {sums}.")
                if number:
                    rates[name].append(watch.seen(name).rate)
            took = time.monotonic() - began
            print(f"round {number}, {name}: {took:.1f} s", file=sys.stderr, flush=True)
    return rates


if __name__ == "__main__":
    main()
