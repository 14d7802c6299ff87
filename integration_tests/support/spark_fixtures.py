"""One Spark session for all tests, and the crash points that its workers obey."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eo_kafka.broker.jars import jvm_connector_jars
from harness import CrashPoints


@pytest.fixture(scope="session")
def crash_folder(tmp_path_factory) -> Path:
    """Must be named before the session's JVM starts: its Python workers inherit it."""
    folder = tmp_path_factory.mktemp("crash-points")
    os.environ["EO_KAFKA_CRASH_POINTS"] = str(folder)
    return folder


@pytest.fixture
def crash_points(crash_folder) -> Iterator[CrashPoints]:
    points = CrashPoints(crash_folder)
    points.clear()
    yield points
    points.clear()


@pytest.fixture(scope="session")
def spark(crash_folder) -> Iterator[object]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,4]")  # a failed task is tried four times
        .config("spark.jars", jvm_connector_jars())  # to compare with
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
