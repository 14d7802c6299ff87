"""What the job writes, for sample.py: a table."""

from __future__ import annotations

import job
import table
from pipeline import Settings
from rows import Row
from streams import typed


def create() -> None:
    """What must be there before the job starts, beside topics."""
    table.create(_settings())


def read() -> dict[str, list[Row]]:
    """All that is there, by the setting that names where."""
    return {"sink": table.read(_settings())}


def _settings() -> Settings:
    return typed(Settings, job.config("job", "dev"))
