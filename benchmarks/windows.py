"""What windows that keep late rows cost: rows per second of `eo_kafka.windows.tumbling` and of
Spark's own `groupBy(window)` over the same files into Spark's noop sink, alternately, in one run.

`python -m benchmarks.windows`; the figure is in docs/how-to/late-events.md.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import eo_kafka

ROWS, BATCHES, RUNS = 100_000, 5, 3
KEYS = 100
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    """Print the rates."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(BATCHES):
            rows = spark.range(number * ROWS, (number + 1) * ROWS, 1, 1).select(
                (f.col("id") % KEYS).cast("string").alias("page"),
                f.timestamp_micros(f.lit(1_790_000_000_000_000) + f.col("id") * 2000).alias("at"),
            )
            rows.write.mode("append").parquet(f"{folder}/rows")
        kinds = {"groupBy(window)": native, "eo_kafka.windows": ours}
        rates: dict[str, list[float]] = {name: [] for name in kinds}
        for run in range(RUNS + 1):  # the first one warms up
            for name, make in kinds.items():
                rate = measured(spark, make, Path(folder), f"{name}-{run}")
                rates[name] += [rate] if run else []
    for name, found in rates.items():
        print(f"{name:20} {statistics.median(found):>10,.0f} rows/s  {[round(x) for x in found]}")


def native(events):
    return (
        events.withWatermark("at", "10 seconds")
        .groupBy(f.window("at", "1 minute"), "page")
        .agg(f.count("*").alias("n"))
    )


def ours(events):
    return eo_kafka.windows.tumbling(
        events,
        time="at",
        size="1 minute",
        by=["page"],
        aggregates={"n": eo_kafka.windows.count()},
        watermark="10 seconds",
    )


def measured(spark, make, folder: Path, name: str) -> float:
    events = (
        spark.readStream.schema("page STRING, at TIMESTAMP")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "rows"))
    )
    began = time.monotonic()
    writer = make(events).writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder / name)).start().awaitTermination()
    return ROWS * BATCHES / (time.monotonic() - began)


if __name__ == "__main__":
    main()
