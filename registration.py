"""`eo_kafka.register`: makes the formats known when the package comes by `--py-files`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .core.errors import EnvironmentRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATH = "PYTHONPATH"


def register(spark: SparkSession) -> None:
    """Make the formats known to a session that got this package by `spark-submit --py-files`.

    Spark finds the formats of installed packages by itself and looks at no other. Runs on the
    driver, once for each session, before a format is used.

    Args:
        spark: The session, of Spark Classic.

    Raises:
        EnvironmentRefused: On Spark Connect: install the package where the server runs.

    Examples:
        >>> eo_kafka.register(spark)
    """
    from .connectors.files.format import FilesDataSource
    from .connectors.kafka import KafkaDataSource
    from .connectors.maps.format import MapDataSource
    from .connectors.queues.format import QueueDataSource
    from .connectors.state_source import StateDataSource
    from .connectors.tables.format import PostgresDataSource
    from .connectors.targets.format import TargetDataSource

    # The process that plans a stream gets this variable, and none of the application's files.
    context = getattr(spark, "sparkContext", None)
    if context is None:
        raise EnvironmentRefused(
            "eo_kafka.register is for Spark Classic. For Spark Connect install eo-kafka where the "
            "server and its executors run: Spark finds the formats there."
        )
    environment = context.environment
    here = str(Path(__file__).parents[1])
    paths = [path for path in environment.get(_PATH, "").split(os.pathsep) if path]
    if here not in paths:
        environment[_PATH] = os.pathsep.join([*paths, here])
    sources = (FilesDataSource, KafkaDataSource, MapDataSource, PostgresDataSource, QueueDataSource)
    for source in (*sources, StateDataSource, TargetDataSource):
        spark.dataSource.register(source)
