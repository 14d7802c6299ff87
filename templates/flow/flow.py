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

ESCAPED = re.compile(r"""[\s"#%<>?\[\\\]^`{|}\x7f]""")  # by Spark, which then takes it as it is

# Spark takes no storage but an absolute one: that of a copied or moved folder is elsewhere.
for spec in FOLDER.glob("*.y*ml"):
    line = re.search(r"""(?m)^storage: *(["']?)(.*?)\1 *(?: #.*)?$""", spec.read_text("utf-8"))
    storage = line[2] if line else ""
    if ESCAPED.search(storage):
        raise SystemExit(
            f"{spec.name}: Spark would keep the checkpoint in another folder than {storage}: it "
            "escapes blanks and signs such as '%' and '#', and takes that for the name. Give "
            "'storage' a path of letters, digits, '-', '_' and '.', or move the project to one."
        )
    found = re.match("file:/*(/.*)/checkpoints/", storage)
    first = Path(found[1]) if found else FOLDER
    if not first.exists() or ((first / "flow.py").exists() and not first.samefile(FOLDER)):
        raise SystemExit(
            f"{spec.name}: 'storage' is in {first}, and this project is not: it was copied or "
            "moved. Of two jobs that share a checkpoint, each lacks records. In a copy, delete the "
            "folder 'checkpoints', and change job_name and the topics written to in config.toml. "
            f'Then write in {spec.name}\nstorage: "file://{FOLDER}/checkpoints/flow"'
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
