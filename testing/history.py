"""What happened, as data: events in their order, and rows. Events are kept as JSON lines."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Row(NamedTuple):
    """A record of a topic, as a `read_committed` consumer got it."""

    partition: int
    offset: int
    value: str | None
    key: str | None


@dataclass(frozen=True)
class Event:
    """`who` did or saw `what`, `t` seconds after the start."""

    t: float
    who: str
    what: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        told = " ".join(f"{name}={value}" for name, value in self.details.items())
        return f"{self.t:8.2f}  {self.who:<10} {self.what:<14} {told}"


class History:
    """Events in the order in which they were added, in memory and in `path`. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self._file = path.open("w")
        self._events: list[Event] = []
        self._counts: Counter[tuple[str, str]] = Counter()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._begin

    def add(self, who: str, what: str, **details: Any) -> Event:
        """Note that it happened now."""
        with self._lock:
            event = Event(round(self.seconds, 3), who, what, details)
            self._events.append(event)
            self._counts[who, what] += 1
            self._file.write(json.dumps(vars(event), default=str) + "\n")
            self._file.flush()
        return event

    def events(self) -> list[Event]:
        """Those so far."""
        with self._lock:
            return list(self._events)

    def count(self, who: str, what: str) -> int:
        """How often it happened so far."""
        with self._lock:
            return self._counts[who, what]
