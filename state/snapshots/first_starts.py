"""Tells the sink where the first batch of a new query begins, which Spark stores nowhere.

A reader that starts at `latest` reads nothing in it: the batch's end, which Spark stores, is the
query's start. Only the reader knows that, in a process of its own. It leaves word in the directory
that all Python processes of a driver are told, in each run of that batch; the newest word counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...core.offsets import Offsets, decode, encode, encode_text
from ...core.process.driver_directory import driver_directory
from .batch_ends import position_of


@dataclass(frozen=True)
class FirstStart:
    """Where the batch begins, and whether that is so for want of an option that says it."""

    offsets: Offsets
    by_default: bool


def tell(end: Offsets, start: FirstStart) -> None:
    """Of a first batch that ends at `end`. Driver, in the reader's process."""
    if place := _place(end):
        said = {"begins": encode(start.offsets), "byDefault": start.by_default}
        with suppress(OSError):
            place.write_text(json.dumps(said))


def told(line: str) -> FirstStart | None:
    """What the reader told of the first batch that ends as the line says; None if it is not known,
    as of Spark's own source, or in the user's process."""
    try:
        place = _place(position_of(line))
        said = json.loads(place.read_text()) if place else None
        if not isinstance(said, Mapping):
            return None
        return FirstStart(decode(said["begins"]), said["byDefault"] is True)
    except (OSError, ValueError, KeyError):
        return None


def _place(end: Offsets) -> Path | None:
    directory = driver_directory()
    name = hashlib.sha256(encode_text(end).encode()).hexdigest()[:16]
    return Path(directory, f"eo-kafka-first-{name}") if directory else None
