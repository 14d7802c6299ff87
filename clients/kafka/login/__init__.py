"""Logs in to Kafka: OAuth tokens for both clients, TLS for the control plane."""
