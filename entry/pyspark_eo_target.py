"""Spark finds the format here; see pyspark_eo_kafka.py."""

from eo_kafka.connectors.targets.format import TargetDataSource as DefaultSource

__all__ = ["DefaultSource"]
