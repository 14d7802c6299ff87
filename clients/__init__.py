"""Clients of Kafka and Hazelcast: settings, connections, private parts."""
