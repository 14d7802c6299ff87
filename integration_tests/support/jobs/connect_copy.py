"""jobs/copy_job.py as a client of Spark Connect, with the server below it so that a test can kill
it."""

import json
import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

from copy_job import start_copy
from pyspark.sql import SparkSession

job = json.loads(sys.argv[1])
spark = SparkSession.builder.remote(job["master"]).config("spark.ui.enabled", "false").getOrCreate()
start_copy(spark, job).awaitTermination()
