"""The one Spark session in which all contenders run, and what it is made of."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Fixed, so that runs on different machines do the same work.
CORES = 2


@contextmanager
def benchmark_session(
    master: str = f"local[{CORES}]", *, unix_sockets: bool = False, jars: Sequence[str] = ()
) -> Iterator[SparkSession]:
    """Spark with the JVM connector beside ours, and more `jars`; both come as their users get them.
    Python workers are spoken to over TCP, Spark's default, or `unix_sockets`."""
    from pyspark.sql import SparkSession

    from benchmarks.nothing import NothingSource, PreparedSource
    from eo_kafka.broker.jars import jvm_connector_jars

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(master)
        .appName("eo-kafka benchmark")
        .config("spark.jars", ",".join([jvm_connector_jars(), *jars]))
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(CORES))
        .config("spark.python.unix.domain.socket.enabled", str(unix_sockets).lower())
        .getOrCreate()
    )
    try:
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(NothingSource)
        spark.dataSource.register(PreparedSource)
        yield spark
    finally:
        spark.stop()


def environment(spark: SparkSession, broker_version: str) -> dict[str, Any]:
    """Machine, versions and whether the fast path was there; for the report."""
    import confluent_kafka
    import pyspark

    from eo_kafka.core import librdkafka

    refused = librdkafka.available()
    jvm: Any = spark._jvm
    return {
        "cores": os.cpu_count(),
        "memory GB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "java": jvm.java.lang.System.getProperty("java.version"),
        "pyspark": pyspark.__version__,
        "JVM connector": "4.2.0",
        "kafka-clients": jvm.org.apache.kafka.common.utils.AppInfoParser.getVersion(),
        "confluent-kafka": confluent_kafka.__version__,
        "librdkafka": confluent_kafka.libversion()[0],
        "broker": broker_version,
        "fast path": "in use" if refused is None else f"NOT in use: {refused}",
    }
