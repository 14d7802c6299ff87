"""A driver that starts before anybody knows its job: Spark is up when the job comes, as one line of
JSON, [script, argument], through stdin. From then on it is the driver that the script would be.

What only some jobs have (a master, jars, settings) such a driver cannot have: see warm_drivers.py.
"""

import json
import os
import runpy
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

import eo_kafka  # noqa: F401 - the jobs want it soon


def main() -> None:
    spark = (
        SparkSession.builder.master(sys.argv[1])
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    line = sys.stdin.readline()
    if line:  # the tests are still there
        sys.argv[:] = json.loads(line)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
