"""Runs a real Apache Kafka on this machine, for tests and the demo."""
