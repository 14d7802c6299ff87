"""Clients of Kafka, Hazelcast and PostgreSQL: settings, connections, private parts."""
