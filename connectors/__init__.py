"""Spark's faces: the only package that imports `pyspark.sql.datasource`."""

from ..core.loaded_heap import spare_in_worker
from ..core.worker_socket import speak_at_once

spare_in_worker()
speak_at_once()
