"""Clients of Kafka: settings, the control plane, transactional ids and their producers."""
