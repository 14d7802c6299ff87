"""Spark finds the format here; see pyspark_eo_kafka.py."""

from eo_kafka.connectors.files.format import FilesDataSource as DefaultSource

__all__ = ["DefaultSource"]
