"""`eo_kafka.register`: the formats for an application that brings this package in `--py-files`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from eo_kafka.errors import EnvironmentRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATH = "PYTHONPATH"


def register(spark: SparkSession) -> None:
    """Make the formats known to `spark`, which finds only installed packages itself.

    For `spark-submit --py-files`; not needed where the package is installed. Runs on the driver,
    before the formats are used. Raises EnvironmentRefused on Spark Connect.
    """
    from eo_kafka.connectors.kafka import KafkaDataSource
    from eo_kafka.connectors.maps.format import MapDataSource
    from eo_kafka.connectors.state_source import StateDataSource

    # The process that plans a stream gets this variable, and none of the application's files.
    context = getattr(spark, "sparkContext", None)
    if context is None:
        raise EnvironmentRefused(
            "eo_kafka.register is for Spark Classic. For Spark Connect install eo-kafka where the "
            "server and its executors run: Spark finds the formats there."
        )
    environment = context.environment
    here = str(Path(__file__).parents[2])
    paths = [path for path in environment.get(_PATH, "").split(os.pathsep) if path]
    if here not in paths:
        environment[_PATH] = os.pathsep.join([*paths, here])
    for source in (KafkaDataSource, MapDataSource, StateDataSource):
        spark.dataSource.register(source)
