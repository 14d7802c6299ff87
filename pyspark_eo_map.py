"""Spark finds the format here; see pyspark_eo_kafka.py."""

from eo_kafka.connectors.map import MapDataSource as DefaultSource

__all__ = ["DefaultSource"]
