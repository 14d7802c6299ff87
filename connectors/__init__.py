"""Spark's faces: the only package that imports `pyspark.sql.datasource`."""

from eo_kafka.loaded_heap import spare_in_worker

spare_in_worker()
