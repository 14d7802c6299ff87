"""The same job as a flow of Spark's declarative pipelines (4.1 and newer): `spark-pipelines run`.

`SECTION=production spark-pipelines run` takes that section of config.toml. The job has one ledger:
run either this or job.py. spark-pipeline.yml says where Spark keeps the flow's checkpoint.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).parent))  # spark-pipelines runs this file by its path

from job import config
from pipeline import Settings, result, to
from streams import sink, typed

job = typed(Settings, config("job", os.environ.get("SECTION", "dev")))
options = {"format": "eo-kafka", **sink(job), **to(job), "snapshots": "false"}
# A full refresh makes a new checkpoint, which the job's ledger refuses, unless option onReset says
# what it is to mean.
dp.create_sink("out", options.pop("format"), options)


@dp.append_flow(target="out")
def flow() -> DataFrame:
    """What the sink is given."""
    return result(SparkSession.active(), job)
