"""Spark's interface of `format("eo-target")`."""
