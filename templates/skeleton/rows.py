"""Records as generate.py makes them and as model.py expects them, and their times as text."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

Row = tuple[str, Any]  # key and value
Made = tuple[str, str, Any]  # the setting that names the topic, key and value
START = datetime(2026, 11, 24, 9, tzinfo=timezone.utc)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # from here on Spark counts windows


def text(at: datetime) -> str:
    """As JSON has it: `2026-11-24T09:00:00.000Z`."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(at: str) -> datetime:
    """What `text` wrote."""
    return datetime.fromisoformat(at.replace("Z", "+00:00"))
