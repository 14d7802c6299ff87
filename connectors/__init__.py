"""Spark's faces: the only package that imports `pyspark.sql.datasource`."""

from eo_kafka.loaded_heap import spare_in_worker
from eo_kafka.worker_socket import speak_at_once

spare_in_worker()
speak_at_once()
