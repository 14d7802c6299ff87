"""The same job as a flow of Spark's declarative pipelines (4.1 and newer): `spark-pipelines run`.

`SECTION=production spark-pipelines run` takes that section of config.toml. The job has one ledger:
run either this or job.py. spark-pipeline.yml says where Spark keeps the flow's checkpoint.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).parent))  # spark-pipelines runs this file by its path

from job import FOLDER, config
from pipeline import Settings, result, to
from streams import sink, typed

# Spark takes no storage but an absolute one: that of a copied or moved folder is elsewhere.
for spec in FOLDER.glob("*.y*ml"):
    text = spec.read_text("utf-8")
    found = re.search(r"(?m)^storage: *[\"']?(file:[^\"'\s]*)/checkpoints/", text)
    first = Path(unquote(urlsplit(found[1]).path)) if found else FOLDER
    if not first.exists() or ((first / "flow.py").exists() and not first.samefile(FOLDER)):
        raise SystemExit(
            f"{spec.name}: 'storage' is in {first}, and this project is not: it was copied or "
            "moved. Of two jobs that share a checkpoint, each lacks records. In a copy, delete the "
            "folder 'checkpoints', and change job_name and the topics written to in config.toml. "
            f"Then write in {spec.name}\nstorage: {FOLDER.as_uri()}/checkpoints/flow"
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
