"""How many tasks Spark runs at once, where its settings say so. On the driver, once a start."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]")


def task_slots(spark: SparkSession) -> int | None:
    """How many tasks run at once when all executors are there; None where nobody can say: Spark
    Connect, dynamic allocation, or executors whose number or cores are not set."""
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return None
    conf = context.getConf()
    cores = _cores(conf, context.defaultParallelism)
    return None if cores is None else max(cores // int(conf.get("spark.task.cpus", "1")), 1)


def _cores(conf: SparkConf, parallelism: int) -> int | None:
    master = conf.get("spark.master", "")
    if found := _LOCAL_CLUSTER.fullmatch(master):
        return int(found[1]) * int(found[2])
    if master.startswith("local"):
        return None if conf.contains("spark.default.parallelism") else parallelism
    if conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        return None
    if most := conf.get("spark.cores.max"):
        return int(most)
    executors, each = conf.get("spark.executor.instances"), conf.get("spark.executor.cores")
    return int(executors) * int(each) if executors and each else None
