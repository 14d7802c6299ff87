"""Clients of Kafka, Hazelcast, PostgreSQL and RabbitMQ: settings, connections, private parts."""
