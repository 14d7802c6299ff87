"""Protobuf: a descriptor set as Spark's types, values, and what a registry has of them."""
