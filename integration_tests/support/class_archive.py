"""Archives of the classes of Spark and of Kafka, which Java maps instead of parsing them (AppCDS).

A test that kills drivers or brokers starts several, and starting is most of what they do: with the
archives each takes half the CPU time. They are made once per machine, in half a minute. Java passes
over an archive that does not fit the Java or the classes that look at it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from eo_kafka.broker.jars import kafka_jars
from eo_kafka.broker.java import find_java

_QUIET = "-Xlog:disable"
# Programs of their own, whose JVM writes the archive as it ends.
_SPARK = """
import tempfile
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = spark.config("spark.sql.shuffle.partitions", "2").getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
rows = rows.mapInArrow(lambda batches: batches, rows.schema)
counts = rows.groupBy("value").count().writeStream.outputMode("update")
with tempfile.TemporaryDirectory() as folder:
    stream = counts.option("checkpointLocation", folder).foreachBatch(lambda some, n: some.count())
    stream = stream.trigger(availableNow=True).start()
    stream.awaitTermination()
spark.stop()
"""
_KAFKA = """
import os, signal, tempfile
from confluent_kafka import Consumer, Producer
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.testing.processes import wait_until
with tempfile.TemporaryDirectory() as folder, KafkaBroker(directory=folder) as broker:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**servers, "transactional.id": "training"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("training", b"1")
    producer.commit_transaction()
    consumer = Consumer({**servers, "group.id": "training", "auto.offset.reset": "earliest"})
    consumer.subscribe(["training"])
    wait_until(lambda: consumer.poll(1), "it is read")
    consumer.close()
    os.kill(broker.pid, signal.SIGTERM)
    wait_until(lambda: not broker.running, "the archive is written", 180)
"""


def use() -> None:
    """Let every Spark driver and Kafka that this process starts, or its children, take its
    archive."""
    spark = _path("spark", f"{os.environ['SPARK_HOME']} {pyspark.__version__}")
    kafka = _path("kafka", str(kafka_jars()))
    made = [
        (archive, _training(program, variable, archive))  # side by side
        for archive, program, variable in (
            (spark, _SPARK, "SPARK_SUBMIT_OPTS"),
            (kafka, _KAFKA, "JDK_JAVA_OPTIONS"),
        )
        if not archive.exists()
    ]
    for archive, training in made:
        _keep(archive, training)
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:SharedArchiveFile={spark} {_QUIET}"
    # What Spark's drivers are given comes later, and counts.
    os.environ["JDK_JAVA_OPTIONS"] += f" -XX:SharedArchiveFile={kafka} {_QUIET}"


def _path(name: str, classes: str) -> Path:
    """Of this Java and these classes: both are in the archive's head, and compared."""
    java = find_java().resolve()
    fits = f"{java} {java.stat().st_mtime_ns} {classes}"
    name = f"{name}-{hashlib.sha256(fits.encode()).hexdigest()[:16]}.jsa"
    return Path(tempfile.gettempdir(), f"eo-kafka-tests-{os.getuid()}", name)


def _unfinished(archive: Path) -> Path:
    return archive.with_suffix(f".{os.getpid()}")


def _training(program: str, variable: str, archive: Path) -> subprocess.Popen[str]:
    """Begin to make it. The variable names the options of the JVM that is trained."""
    archive.parent.mkdir(mode=0o700, exist_ok=True)
    options = f"-XX:ArchiveClassesAtExit={_unfinished(archive)} {_QUIET}"
    given = f"{os.environ.get(variable, '')} {options}"
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, variable: given},
        stdout=subprocess.PIPE,  # closes when the JVM has ended, which is later
        stderr=subprocess.STDOUT,
        text=True,
    )


def _keep(archive: Path, training: subprocess.Popen[str]) -> None:
    said, _ = training.communicate()
    if training.returncode or not _unfinished(archive).exists():
        raise RuntimeError(f"No class archive was made: {said[-2000:]}")
    _unfinished(archive).replace(archive)  # all at once: others may be looking
