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

# Spark takes no storage but an absolute one: in a copy of this folder it is in the first one.
for spec in FOLDER.glob("*.y*ml"):
    text = spec.read_text("utf-8")
    found = re.search(r"(?m)^storage: *[\"']?(file:[^\"'\s]*)/checkpoints/", text)
    first = Path(unquote(urlsplit(found[1]).path)) if found else FOLDER
    if (first / "flow.py").exists() and not first.samefile(FOLDER):
        raise SystemExit(
            f"{spec.name}: 'storage' is in another project, {first}. This one is a copy of that, "
            "and would go on with its checkpoint: of two jobs that share one, each lacks records. "
            "Delete the folder 'checkpoints' here, and change job_name and the topics written to "
            f"in config.toml. Then write in {spec.name}\n"
            f"storage: {FOLDER.as_uri()}/checkpoints/flow"
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
