"""One task's Kafka transaction, and the ends of those that others left open."""
