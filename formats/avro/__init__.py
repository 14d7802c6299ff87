"""Avro: schemas as Spark's types, values, whole columns at once."""
