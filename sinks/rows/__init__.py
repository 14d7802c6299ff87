"""Rows from Arrow into librdkafka."""
