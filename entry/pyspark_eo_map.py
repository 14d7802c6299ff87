"""Spark finds the format here; see pyspark_eo_kafka.py."""

from eo_kafka.connectors.maps.format import MapDataSource as DefaultSource

__all__ = ["DefaultSource"]
