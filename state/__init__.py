"""What a job remembers in compacted Kafka topics."""
