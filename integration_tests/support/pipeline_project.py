"""A project of Spark's declarative pipelines that copies topics, run by `spark-pipelines`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from connect_port import connect_port
from eo_kafka.testing.driver import Driver

RUN_TIMEOUT_S = 180
_FLOWS = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_sink("out", "eo-kafka", {sink})


def copy(topic):
    rows = spark.readStream.format("eo-kafka").options(**{source}, subscribe=topic).load()
    return rows.select("key", "value")


{flows}"""
_FLOW = """\
@dp.append_flow(target="out", name="{name}")
def _():
    return copy("{topic}")


"""


@dataclass
class Pipeline:
    """One sink `out`, and flows to it: names with the topics that they read."""

    folder: Path
    servers: str
    topic: str
    flows: dict[str, str]
    source_extra: dict[str, str] = field(default_factory=dict)
    sink_extra: dict[str, str] = field(default_factory=dict)
    spec: str = ""  # if it and the code are written already

    def write(self) -> None:
        """Its files, anew."""
        spec = self.folder / "spark-pipeline.yml"
        if self.spec:
            spec.write_text(self.spec)
            return
        kafka = {"kafka.bootstrap.servers": self.servers}
        code = self.folder / "transformations" / "flows.py"
        code.parent.mkdir(parents=True, exist_ok=True)
        code.write_text(
            _FLOWS.format(
                sink={**kafka, "topic": self.topic, **self.sink_extra},
                source={**kafka, "startingOffsets": "earliest", **self.source_extra},
                flows="".join(_FLOW.format(name=n, topic=t) for n, t in self.flows.items()),
            )
        )
        settings = {
            "name": "orders",
            "storage": f"file://{self.folder}/storage",
            "libraries": [{"glob": {"include": "transformations/**"}}],
            "configuration": {"spark.sql.shuffle.partitions": "2"},
        }
        spec.write_text(json.dumps(settings))  # which is YAML, too

    def checkpoint(self, flow: str, version: int = 0) -> Path:
        return self.folder / "storage/_checkpoints/out" / flow / str(version)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[Driver]:
        """`spark-pipelines run`; all of it is killed at the end: its client waits for a server that
        is gone."""
        self.write()
        command = Path(sys.executable).with_name("spark-pipelines")
        spec = ("--spec", str(self.folder / "spark-pipeline.yml"))
        variables = {
            "PYSPARK_PYTHON": sys.executable,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "SPARK_MASTER": "local[2]",
        }
        with connect_port():
            driver = Driver([str(command), "run", *spec, *arguments], self.log, variables)
            try:
                yield driver
            finally:
                driver.kill()

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    def run(self, *arguments: str) -> str:
        """To its end; what it said. The exit code says nothing of a flow that failed."""
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.running(*arguments) as driver:
            driver.wait(RUN_TIMEOUT_S)
            return self.log.read_bytes()[before:].decode(errors="replace")
