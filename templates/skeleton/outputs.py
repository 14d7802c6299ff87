"""What the job writes, for sample.py: topics."""

from __future__ import annotations

import job
import topics
from generate import TOPICS
from rows import Row


def create() -> None:
    """What must be there before the job starts, beside topics: nothing."""


def read() -> dict[str, list[Row]]:
    """All that is there, by the setting that names where."""
    config = job.config("job", "dev")
    return {role: topics.read(config[role]) for role in TOPICS if role not in topics.INPUTS}
