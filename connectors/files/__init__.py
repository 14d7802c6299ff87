"""Spark's interfaces of `format("eo-files")`."""
