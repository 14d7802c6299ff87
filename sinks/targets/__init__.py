"""Targets of the user's own, behind the protocol's port: rows are staged, decided, shown."""
