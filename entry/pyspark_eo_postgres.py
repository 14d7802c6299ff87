"""Spark finds the format here; see pyspark_eo_kafka.py."""

from eo_kafka.connectors.tables.format import PostgresDataSource as DefaultSource

__all__ = ["DefaultSource"]
