"""How many tasks of a lane's batch are worth their price, where Spark says how many run at once.

A task costs what is in it and, for its transaction and its processes, some 50 ms of CPU time. More
tasks than run at once only add to that. On the driver, once a start.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...sinks.options import COMMIT, IDEMPOTENT
from ...sources.declared import MAX_PARTITIONS, MAX_RECORDS_PER_PARTITION, MIN_PARTITIONS

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_ROUNDS = 2  # a core that is done early finds another task
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]")


def with_most_tasks(
    spark: SparkSession, source: Mapping[str, Any], sink: Mapping[str, Any]
) -> dict[str, Any]:
    """Options of `source`, and `maxPartitions` where nothing speaks against it: that the user has
    chosen, that Spark does not say how many tasks run at once, or `commit=idempotent`, whose
    replays need the same tasks on a cluster of another size, too."""
    chosen = {MAX_PARTITIONS.key, MIN_PARTITIONS.key, MAX_RECORDS_PER_PARTITION.key}
    if chosen & {name.lower() for name in source}:
        return dict(source)
    commits = {str(value).lower() for name, value in sink.items() if name.lower() == COMMIT.key}
    slots = None if IDEMPOTENT in commits else task_slots(spark)
    if slots is None:
        return dict(source)
    log.info(
        "A batch of the direct lane has %d tasks at most: Spark runs %d at once. Source option "
        "'%s' sets another number.",
        _ROUNDS * slots,
        slots,
        MAX_PARTITIONS.name,
    )
    return {**source, MAX_PARTITIONS.name: str(_ROUNDS * slots)}


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
