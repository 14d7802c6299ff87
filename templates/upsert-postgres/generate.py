"""The changes of customers.py, and the topic of this job."""

from __future__ import annotations

from customers import records

__all__ = ["TOPICS", "records"]

TOPICS = {"source": "delete"}  # the setting that names it: cleanup.policy
