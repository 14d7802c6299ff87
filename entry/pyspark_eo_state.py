"""Spark finds the format here; see pyspark_eo_kafka.py."""

from eo_kafka.connectors.state_source import StateDataSource as DefaultSource

__all__ = ["DefaultSource"]
