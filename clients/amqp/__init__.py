"""Clients of AMQP 0-9-1, which RabbitMQ speaks: settings, connections, errors as sentences."""
