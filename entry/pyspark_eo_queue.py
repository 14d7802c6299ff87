"""Spark finds the format here; see pyspark_eo_kafka.py."""

from eo_kafka.connectors.queues.format import QueueDataSource as DefaultSource

__all__ = ["DefaultSource"]
