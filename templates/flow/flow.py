"""The same job as a flow of Spark's declarative pipelines (4.1 and newer): `spark-pipelines run`.

`SECTION=production spark-pipelines run` takes that section of config.toml. The job has one ledger:
run either this or job.py. spark-pipeline.yml says where Spark keeps the flow's checkpoint.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).parent))  # spark-pipelines runs this file by its path

from job import FOLDER, config
from pipeline import Settings, result, to
from streams import sink, typed

MADE = "/checkpoints/flow"  # where `eo-kafka new` has Spark keep the flow's checkpoint
# Spark takes no storage but an absolute one: in a copy of this folder it is the first one's.
for spec in FOLDER.glob("*.y*ml"):
    found = re.search(r"(?m)^storage: *[\"']?(file:[^\"'\s]*)", spec.read_text("utf-8"))
    if found and found[1].endswith(MADE) and found[1] != (own := FOLDER.as_uri() + MADE):
        raise SystemExit(
            f"{spec.name}: 'storage' is another folder's: {found[1]}. This project was copied or "
            "moved, and would go on with that checkpoint: of two jobs that share one, each lacks "
            "records. In a copy, delete the folder 'checkpoints', and change job_name and the "
            f"topics written to in config.toml. Then write in {spec.name}\nstorage: {own}"
        )

job = typed(Settings, config("job", os.environ.get("SECTION", "dev")))
options = {"format": "eo-kafka", **sink(job), **to(job), "snapshots": "false"}
# A full refresh makes a new checkpoint, which the job's ledger refuses, unless option onReset says
# what it is to mean.
dp.create_sink("out", options.pop("format"), options)


@dp.append_flow(target="out")
def flow() -> DataFrame:
    """What the sink is given."""
    return result(SparkSession.active(), job)
