"""eo-kafka: exactly-once Kafka sources and sinks for PySpark Structured Streaming."""

__version__ = "0.1.0"
