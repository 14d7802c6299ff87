"""Clients of Hazelcast: connections, private parts, the members' transactions."""
