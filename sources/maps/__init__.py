"""Readers of maps: an IMap's entries and journal, a compacted topic."""
