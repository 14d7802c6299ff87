"""A stream into a table of PostgreSQL, once each row, beside Spark's JDBC sink, which repeats rows.

    python -m benchmarks.tables_jdbc [--rows 1000000] [--rounds 3]

Run it from the root of the repository. Each contender copies one topic of 100 bytes of text a
record, two partitions, in five batches, by two cores, into a table of a number and that text; the
source is eo-kafka's in all of them. Spark has no streaming JDBC sink: its users write each batch by
`foreachBatch`. Its rows travel in statements of 1,000, and with the driver's
`reWriteBatchedInserts=true` as many rows go into one statement; both are measured. Each table is
counted at the end. Rates are of the batches between the first and the last; ratios of one round.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import psycopg

import eo_kafka
from benchmarks.queries import READER, WrongResult, run
from benchmarks.report import Batch, Spread, ratios, steady_rate
from benchmarks.session import CORES, benchmark_session
from benchmarks.workload import BROKER_PROPERTIES, Topics, Workload
from eo_kafka.broker import jars
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.broker.postgres import USER, Postgres

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

BATCHES = 5
PLAIN, REWRITTEN = "Spark's JDBC sink", "the same, reWriteBatchedInserts=true"
DRIVER = jars.Bundle.of_one_jar(
    "the JDBC driver of PostgreSQL 42.7.7",
    "postgresql-jdbc-42.7.7",
    *("org.postgresql", "postgresql", "42.7.7"),
)
"""Only its users' programs need it: eo-kafka does not."""
Sink = Callable[[str], "DataStreamWriter"]


def main() -> None:
    arguments = _arguments()
    driver = str(jars.fetched(DRIVER) / DRIVER.main)
    workload = Workload("rows", arguments.rows, 100, CORES)
    with (
        KafkaBroker(properties=BROKER_PROPERTIES) as kafka,
        Postgres() as server,
        benchmark_session(jars=[driver]) as spark,
    ):
        Topics(kafka.bootstrap_servers).fill(workload, text=True)
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        source = {
            "subscribe": workload.topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(-(-workload.records // BATCHES) + CORES),
            **servers,
        }
        rows = spark.readStream.format(READER.format).options(**source).load()
        rows = rows.selectExpr(f"offset * {CORES} + partition AS id", "CAST(value AS STRING) word")
        staged = {"url": server.url, **servers}
        prepared = {**staged, "commit": "two-phase"}
        contenders: dict[str, Sink] = {
            PLAIN: partial(_jdbc, server, {}, rows),
            REWRITTEN: partial(_jdbc, server, {"reWriteBatchedInserts": "true"}, rows),
            "eo-postgres, staged": partial(_exactly_once, staged, rows),
            "eo-postgres, two-phase": partial(_exactly_once, prepared, rows),
            "direct lane, staged": partial(_direct, staged, spark, source),
            "direct lane, two-phase": partial(_direct, prepared, spark, source),
        }
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(arguments.rounds + 1):
            for number, (name, sink) in enumerate(contenders.items()):
                table = f"table_{turn}_{number}"
                rate = steady_rate(_copied(server, sink(table), table, workload))
                if turn:  # the first one warms up
                    rates[name].append(rate)
                print(f"{turn} {name}: {rate:,.0f}", file=sys.stderr, flush=True)
    for name, found in rates.items():
        print(
            f"{name:38} {Spread.of(found).median:10,.0f} rows/s; "
            f"/ {PLAIN}: {ratios(found, rates[PLAIN])}; "
            f"/ {REWRITTEN}: {ratios(found, rates[REWRITTEN])}"
        )


def _exactly_once(given: dict[str, str], rows: DataFrame, table: str) -> DataStreamWriter:
    options = {**given, "table": table, "jobName": table}
    return rows.writeStream.format("eo-postgres").options(**options)


def _direct(
    given: dict[str, str], spark: SparkSession, source: dict[str, str], table: str
) -> DataStreamWriter:
    sink = {**given, "table": table, "jobName": table}
    return eo_kafka.direct(spark, source, sink, _columns, "id BIGINT, word STRING")


def _columns(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        number = pc.add(pc.multiply(batch["offset"], CORES), batch["partition"].cast(pa.int64()))
        yield pa.record_batch({"id": number, "word": batch["value"].cast(pa.string())})


def _jdbc(server: Postgres, given: dict[str, str], rows: DataFrame, table: str) -> DataStreamWriter:
    address = server.url.split("@")[1]
    options = {
        "url": f"jdbc:postgresql://{address}",
        "user": USER,
        "driver": "org.postgresql.Driver",
        "dbtable": table,
        **given,
    }

    def write(batch: DataFrame, _: int) -> None:
        batch.write.format("jdbc").options(**options).mode("append").save()

    return rows.writeStream.foreachBatch(write)


def _copied(
    server: Postgres, writer: DataStreamWriter, table: str, workload: Workload
) -> list[Batch]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {table} (id bigint, word text)")
        measured = run(writer)
        counted = connection.execute(f"SELECT count(*), count(DISTINCT id) FROM {table}").fetchone()
        connection.execute(f"DROP TABLE {table}")
    if counted != (workload.records, workload.records):
        raise WrongResult(f"{table} has {counted} rows and ids of {workload.records}.")
    return measured


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    found = parser.parse_args()
    print(f"{os.cpu_count()} cores, {found.rows:,} rows, load {os.getloadavg()[0]:.1f}", flush=True)
    return found


if __name__ == "__main__":
    main()
