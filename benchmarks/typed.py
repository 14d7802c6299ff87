"""A filter over typed values, from topic to topic, beside Flink SQL and Spark's own connector.

    python -m benchmarks.typed [--format avro] [--rounds 3] [--records 4000000] [--page]

Run it from the root of the repository; it takes about ten minutes. Each contender decodes orders,
of JSON, of Avro or of Avro with a schema registry (`--format avro-confluent`), keeps those of fewer
than `MOST` pieces, about half, and writes three of their six fields. The clock is that of
`benchmarks.peers`: when committed records appear in the output. `--page` writes the format's part
of docs/benchmarks/typed.md.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from pyspark.sql.functions import col, struct

import eo_kafka
from benchmarks.peers.environments import FLINK_FACTS, installed
from benchmarks.peers.flink import IN_TRANSACTIONS, Flink, flink
from benchmarks.peers.settings import OF_SPARK, PRODUCER
from benchmarks.peers.visible import Watch
from benchmarks.queries import WrongResult, in_turn, own_topics, run
from benchmarks.report import Rates, ratios, throughput_table
from benchmarks.session import CORES, benchmark_session, environment
from benchmarks.typed_formats import FORMATS, MOST, WRITTEN, Format
from benchmarks.workload import BROKER_PROPERTIES, Topics
from eo_kafka.broker.embedded import KafkaBroker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "typed.md"
INPUT = "orders"
GOAL = 2.0
BATCHES = 5  # of a query: each takes a second or more, as long as Flink's commit interval
LANE, ROWS = "eo-kafka's direct lane, exactly once", "eo-kafka, exactly once"
FLINK = "Flink SQL, exactly once"
Job = Callable[[str], None]  # from INPUT into this topic, to the end


def order(number: int) -> dict[str, Any]:
    """One record's value."""
    return {
        "id": number,
        "customer": f"customer-{number * 7919 % 100_000}",
        "price": number % 100_000 / 8,
        "pieces": number * 31 % 100,
        "paid": number % 3 == 0,
        "note": f"to be delivered at door {number % 1000}",
    }


def fill_input(topics: Topics, records: int, of: Format) -> None:
    """INPUT, with a partition a core."""
    topics.create(INPUT, CORES)
    settings = {"linger.ms": 50, "batch.size": 1_000_000, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, **settings})
    for number in range(records):
        producer.produce(INPUT, of.encode(order(number)), partition=number % CORES)
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

    def __init__(
        self, spark: SparkSession, flinks: Flink, servers: str, records: int, of: Format
    ) -> None:
        self._spark, self._flinks, self._format = spark, flinks, of
        self._kafka = {"kafka.bootstrap.servers": servers}
        self._source = {
            **self._kafka,
            "subscribe": INPUT,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(-(-records // BATCHES) + CORES),
        }

    def all_of_them(self) -> Mapping[str, Job]:
        """By name."""
        plain = f"Spark's connector (JVM), {self._format.functions}, at least once"
        return {LANE: self._lane, ROWS: self._rows, plain: self._plain, FLINK: self._flink}

    def _lane(self, output: str) -> None:
        source = {**self._source, **self._format.source}
        schema = f"value STRUCT<{WRITTEN}>"
        run(eo_kafka.direct(self._spark, source, self._sink(output), few, schema))

    def _rows(self, output: str) -> None:
        source = {**self._source, **self._format.source}
        orders = self._spark.readStream.format("eo-kafka").options(**source).load()
        kept = orders.where(f"value.pieces < {MOST}")
        made = kept.select(struct("value.id", "value.customer", "value.price").alias("value"))
        run(made.writeStream.format("eo-kafka").options(**self._sink(output)))

    def _plain(self, output: str) -> None:
        orders = self._spark.readStream.format("kafka").options(**self._source).load()
        orders = orders.select(self._format.read_by_spark(col("value")).alias("value"))
        kept = orders.where(f"value.pieces < {MOST}")
        made = struct("value.id", "value.customer", "value.price")
        made = self._format.written_by_spark(made)
        written = kept.select(made.alias("value")).writeStream.format("kafka")
        run(written.options(topic=output, **self._kafka, **OF_SPARK))

    def _flink(self, output: str) -> None:
        settings = {**PRODUCER, **IN_TRANSACTIONS}
        self._flinks.run(INPUT, output, "exactly-once", settings, self._format.statement)

    def _sink(self, output: str) -> dict[str, str]:
        job = {"topic": output, "jobName": output}
        return {**self._kafka, **OF_SPARK, **job, **self._format.sink}

    def checksum(self, output: str) -> tuple[int, int]:
        """Count and order-free checksum of the committed rows, by Spark's own connector."""
        read = {**self._kafka, "subscribe": output, "kafka.isolation.level": "read_committed"}
        rows = self._spark.read.format("kafka").options(**read).load()
        rows = rows.select(self._format.result(col("value")).alias("v"))
        found = rows.selectExpr("count(v.id)", "bit_xor(xxhash64(v.id, v.customer, v.price))")
        count, digest = found.first() or (0, 0)
        return int(count), int(digest or 0)


def render(of: Format, facts: Mapping[str, Any], rates: Rates) -> str:
    """The format's part of the page."""
    found = ratios(rates[LANE], rates[FLINK])
    verdict = "met" if found.median >= GOAL else "**not met**"
    lines = (
        throughput_table(f"## {of.name}", rates, FLINK),
        "",
        f"{LANE} / {FLINK}: {found}; the goal is {GOAL:g}, {verdict}. Records have about "
        f"{of.size} bytes.",
        "",
        ", ".join(f"{name} {value}" for name, value in facts.items()),
    )
    return "\n".join(lines)


def with_part(page: str, part: str) -> str:
    """The page with this part in the place of the one with its heading, or behind all others."""
    head, *parts = (one.strip() for one in re.split(r"^(?=## )", page, flags=re.MULTILINE))
    titles = [one.partition("\n")[0] for one in parts]
    title = part.partition("\n")[0]
    at = titles.index(title) if title in titles else len(parts)
    parts[at : at + 1] = [part.strip()]
    return "\n\n".join((head, *parts)) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.typed")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, after a warm-up")
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--format", choices=FORMATS, default="json")
    parser.add_argument("--page", action="store_true", help=f"write its part of {PAGE.name}")
    given = parser.parse_args(arguments)
    load = round(os.getloadavg()[0], 1)
    with ExitStack() as until:
        of = FORMATS[given.format](until)
        broker = until.enter_context(KafkaBroker(properties=BROKER_PROPERTIES))
        spark = until.enter_context(benchmark_session(jars=of.jars_of_spark()))
        jars = of.jars_of_flink()
        flinks = until.enter_context(flink(installed(), broker.bootstrap_servers, jars))
        facts = {**environment(spark, broker.version), **FLINK_FACTS, "load before": load}
        topics = Topics(broker.bootstrap_servers)
        fill_input(topics, given.records, of)
        jobs = Jobs(spark, flinks, broker.bootstrap_servers, given.records, of)
        rates = _measured(jobs, topics, given.rounds)
    facts |= {"rounds": given.rounds, "records": f"{given.records:,}"}
    text = render(of, facts, rates)
    if given.page:
        PAGE.write_text(with_part(PAGE.read_text(), text))
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
