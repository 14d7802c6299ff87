"""Hazelcast's Compact and Portable as typed columns."""
