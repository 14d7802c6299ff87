"""The built wheel, in a virtual environment with nothing else: Spark must find the format."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCRIPT = """
import sys
from pyspark.sql import SparkSession
servers, source, sink, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
options = {"kafka.bootstrap.servers": servers}
rows = spark.range(100).selectExpr("cast(id as string) as value")
rows.write.format("eo-kafka").options(topic=source, **options).mode("append").save()
batch = spark.read.format("eo-kafka").options(subscribe=source, **options).load()
assert batch.count() == 100, batch.count()
stream = spark.readStream.format("eo-kafka").options(
    subscribe=source, startingOffsets="earliest", **options).load()
query = (stream.select("value").writeStream.format("eo-kafka")
    .options(topic=sink, checkpointLocation=checkpoint, **options)
    .trigger(availableNow=True).start())
query.awaitTermination()
assert spark.read.format("eo-kafka").options(subscribe=sink, **options).load().count() == 100
from eo_kafka.librdkafka import available
assert available() is None, available()
print("all four roles work")
"""


def test_the_wheel_works_without_registration_in_a_clean_environment(broker, make_topic, tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True)
    ran = subprocess.run(
        [
            python,
            "-I",
            "-c",
            SCRIPT,
            broker.bootstrap_servers,
            make_topic("wheel-in"),
            make_topic("wheel-out"),
            tmp_path / "checkpoint",
        ],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYSPARK_PYTHON": str(python), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    assert "all four roles work" in ran.stdout
