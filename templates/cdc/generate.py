"""The changes of customers.py, and the topics of this job."""

from __future__ import annotations

from customers import records

__all__ = ["TOPICS", "records"]

TOPICS = {"source": "delete", "sink": "compact"}  # the settings that name them: cleanup.policy
