"""An archive of the classes that Spark loads, which Java maps instead of parsing them (AppCDS).

A test that kills drivers starts several, and starting is most of what they do: with the archive
each takes half the CPU time. It is made once per machine, in half a minute. Java passes over an
archive that does not fit the Java or the Spark that looks at it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from eo_kafka.broker.java import find_java

# Runs as a program of its own, whose JVM writes the archive as it ends.
_TRAINING = """
import tempfile
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
counts = rows.groupBy("value").count().writeStream.outputMode("update")
with tempfile.TemporaryDirectory() as folder:
    stream = counts.option("checkpointLocation", folder).foreachBatch(lambda some, n: some.count())
    stream = stream.trigger(availableNow=True).start()
    stream.awaitTermination()
spark.stop()
"""


def use() -> None:
    """Let every Spark driver that this process starts, or its children, take the archive."""
    archive = _path()
    if not archive.exists():
        _make(archive)
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:SharedArchiveFile={archive} -Xlog:disable"


def _path() -> Path:
    """Of this Java and this Spark: both are in the archive's head, and compared."""
    java = find_java().resolve()
    fits = f"{java} {java.stat().st_mtime_ns} {os.environ['SPARK_HOME']} {pyspark.__version__}"
    name = hashlib.sha256(fits.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"eo-kafka-tests-{os.getuid()}", f"spark-{name}.jsa")


def _make(archive: Path) -> None:
    archive.parent.mkdir(mode=0o700, exist_ok=True)
    unfinished = archive.with_suffix(f".{os.getpid()}")
    options = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    training = subprocess.run(
        [sys.executable, "-c", _TRAINING],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": options},
        capture_output=True,
        check=False,
    )
    if training.returncode or not unfinished.exists():
        raise RuntimeError(f"No class archive was made: {training.stderr.decode()[-2000:]}")
    unfinished.replace(archive)  # all at once: others may be looking
