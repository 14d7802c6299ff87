"""A copy through a shuffle whose rows in front of it are others when its stage runs again.

The one argument is JSON: see `Copy` in harness.py. The first task of result partition 3 makes the
file `marker` and kills its executor; from then on every tenth value is missing.
"""

import json
import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession


def main() -> None:
    job = json.loads(sys.argv[1])
    builder = SparkSession.builder.master(job["master"]).config("spark.ui.enabled", "false")
    for name, value in job["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    marker = job["conf"]["spark.test.marker"]

    def without_tenths(batches):
        for batch in batches:
            kept = [not value.as_py().endswith(b"0") for value in batch.column("value")]
            yield batch.filter(pa.array(kept)) if os.path.exists(marker) else batch

    def killed_once(batches):
        yield from batches
        if TaskContext.get().partitionId() == 3 and not os.path.exists(marker):
            with open(marker, "w"):
                pass
            above = psutil.Process().parents()
            next(one for one in above if one.name() == "java").kill()

    rows = spark.readStream.format("eo-kafka").options(**job["source_options"]).load()
    rows = rows.select("key", "value")
    rows = rows.mapInArrow(without_tenths, rows.schema).repartition(4)
    writer = rows.mapInArrow(killed_once, rows.schema).writeStream.format("eo-kafka")
    writer.options(**job["sink_options"]).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
