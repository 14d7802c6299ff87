"""Spark's interfaces of `format("eo-map")`."""
