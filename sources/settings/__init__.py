"""The options of the Kafka source: declared, parsed, and what they mean. No I/O."""
