"""Spark finds the format here: it imports every top-level module named `pyspark_*`.

One such module that fails to import hides the Python formats of all the others, so nothing but
this import stands here, and what it imports stays light.
"""

from eo_kafka.connectors.kafka import KafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
