"""Clients of Kafka: settings, the control plane, transactional producers, share groups."""
