"""How many tasks Spark runs at once, by its settings."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark import SparkConf

from eo_kafka.connectors.direct.slots import task_slots

_STANDALONE = {"spark.master": "spark://host:7077"}
_EXECUTORS = {"spark.executor.instances": "3", "spark.executor.cores": "4"}


def session(settings: dict[str, str]) -> SimpleNamespace:
    conf = SparkConf(loadDefaults=False, _jconf=None)
    for name, value in settings.items():
        conf.set(name, value)
    return SimpleNamespace(
        sparkContext=SimpleNamespace(getConf=lambda: conf, defaultParallelism=16)
    )


@pytest.mark.parametrize(
    "settings, slots",
    [
        ({"spark.master": "local[*]"}, 16),
        ({"spark.master": "local[*]", "spark.task.cpus": "5"}, 3),
        ({"spark.master": "local[*]", "spark.default.parallelism": "16"}, None),
        ({"spark.master": "local-cluster[3, 2, 1024]"}, 6),
        ({**_STANDALONE, "spark.cores.max": "10"}, 10),
        ({**_STANDALONE}, None),  # all that the cluster has
        ({"spark.master": "yarn", **_EXECUTORS}, 12),
        ({"spark.master": "yarn", **_EXECUTORS, "spark.task.cpus": "24"}, 1),
        ({"spark.master": "yarn", **_EXECUTORS, "spark.dynamicAllocation.enabled": "True"}, None),
        ({"spark.master": "k8s://https://host", "spark.executor.instances": "3"}, None),
    ],
)
def test_slots(settings, slots):
    assert task_slots(session(settings)) == slots


def test_spark_connect_says_nothing():
    assert task_slots(SimpleNamespace()) is None
