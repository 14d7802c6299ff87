"""Spark's faces: the only package that imports `pyspark.sql.datasource`."""
