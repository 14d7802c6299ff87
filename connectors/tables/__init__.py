"""Spark's interfaces of `format("eo-postgres")`."""
