"""The streaming job: delays by carrier and hour, from Kafka to Kafka. A driver of its own.

This is what a user of eo-kafka writes; `--format` is the one word that changes, and
`eo_kafka.start` the one call.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["PYSPARK_PYTHON"] = sys.executable

import pandas as pd
from flights import DELAYED_MINUTES, airlines_csv
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import eo_kafka
from eo_kafka.broker.jars import jvm_connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

EVENT = "carrier STRING, scheduled TIMESTAMP, delay INT"


def main() -> None:
    arguments = _arguments()
    spark = session(arguments.format, arguments.master)
    query = write(delays(read(spark, arguments), airlines(spark)), arguments)
    follow(query, arguments.progress, until=pd.Timestamp(arguments.until))


def read(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """The events of the input topic, parsed."""
    records = (
        spark.readStream.format(source_of(arguments.format))
        .option("kafka.bootstrap.servers", arguments.bootstrap_servers)
        .option("subscribe", arguments.input)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.per_batch)
        .load()
    )
    return records.select(F.from_json(F.col("value").cast("string"), EVENT).alias("event")).select(
        "event.*"
    )


def source_of(data_format: str) -> str:
    """What reads the flights: a table is only written."""
    return "eo-kafka" if data_format == "eo-postgres" else data_format


def airlines(spark: SparkSession) -> DataFrame:
    """The static side of the join: carrier and airline."""
    return spark.read.csv(str(airlines_csv()), "carrier STRING, airline STRING", header=True)


def delays(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Delays by carrier and hour of scheduled departure, each window once, when it is closed."""
    hourly = (
        flights.withWatermark("scheduled", "2 days")
        .groupBy("carrier", F.window("scheduled", "1 hour"))
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("delay").isNull()).alias("cancelled"),
            F.count_if(F.col("delay") > DELAYED_MINUTES).alias("delayed"),
            F.sum("delay").alias("minutes"),
            F.max("delay").alias("worst"),
        )
    )
    # The producer's clock ticks are no airline's, so the join drops them; a filter before it would
    # be pushed below the watermark, and the watermark would not see them.
    return hourly.join(F.broadcast(airlines), "carrier")


def write(delays: DataFrame, arguments: argparse.Namespace) -> StreamingQuery:
    """Start the query: a record for each window, keyed by carrier and hour; with eo-postgres, a row
    of the table, too, by the same decision."""
    hour = F.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("hour")
    counts = ("flights", "cancelled", "delayed", "minutes", "worst")
    writer = (
        delays.select(
            F.to_json(F.struct("carrier", hour)).alias("key"),
            F.to_json(F.struct("airline", *counts)).alias("value"),
            *(["carrier", hour, "airline", *counts] if arguments.url else []),
        )
        .writeStream.format(arguments.format)
        .queryName(arguments.job_name)
        .option("kafka.bootstrap.servers", arguments.bootstrap_servers)
        .option("topic", arguments.output)
        .option("checkpointLocation", arguments.checkpoint)
    )
    if arguments.format == "kafka":
        return writer.start()
    if arguments.url:
        writer = writer.option("url", arguments.url).option("table", arguments.table)
        writer = writer.option("commit", "two-phase")
    # Each decision takes a snapshot with it, from which a job without its checkpoint goes on.
    return eo_kafka.start(writer.option("snapshots", "true"))


def follow(query: StreamingQuery, path: Path, until: pd.Timestamp) -> None:
    """Note each micro-batch's progress in a file; stop once the watermark has reached `until`.

    Raises StreamingQueryException if the query fails.
    """
    noted = -1
    while not query.awaitTermination(1):
        for progress in query.recentProgress:
            if progress["batchId"] > noted:
                noted = progress["batchId"]
                with path.open("a") as file:
                    file.write(json.dumps(facts_of(progress)) + "\n")
                if pd.Timestamp(progress["eventTime"]["watermark"]) >= until:
                    query.stop()


def facts_of(progress: Mapping[str, Any]) -> dict[str, Any]:
    """What the demo shows of a micro-batch: events read since the beginning, the newest event
    time and the rows that the watermark dropped."""
    offsets = progress["sources"][0]["endOffset"]
    while isinstance(offsets, str):
        offsets = json.loads(offsets)
    return {
        "read": sum(end for topic in offsets.values() for end in topic.values()),
        "event_time": progress["eventTime"].get("max"),
        "late": sum(state["numRowsDroppedByWatermark"] for state in progress["stateOperators"]),
    }


def session(data_format: str, master: str) -> SparkSession:
    """Spark on this master; each task is tried up to four times."""
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
    )
    if data_format == "kafka":
        builder = builder.config("spark.jars", jvm_connector_jars())
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", choices=("eo-kafka", "eo-postgres", "kafka"), required=True)
    parser.add_argument("--master", default="local[2,4]", help="Spark's (default: two cores here)")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--input", required=True, help="the topic of flights")
    parser.add_argument("--output", required=True, help="the topic of windows")
    parser.add_argument("--url", help="the PostgreSQL that has the table, for eo-postgres")
    parser.add_argument("--table", help="the table of windows there")
    parser.add_argument("--job-name", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--per-batch", type=int, required=True, help="most events a micro-batch")
    parser.add_argument("--progress", type=Path, required=True, help="file, a line each batch")
    parser.add_argument("--until", required=True, help="end of the last window")
    return parser.parse_args()


if __name__ == "__main__":
    main()
