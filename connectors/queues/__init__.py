"""Spark's interfaces of `format("eo-queue")`."""
