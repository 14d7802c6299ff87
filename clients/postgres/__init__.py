"""Clients of PostgreSQL: settings, connections, errors as sentences."""
