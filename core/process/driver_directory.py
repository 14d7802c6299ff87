"""The directory that all Python processes of a driver are told, and that is this driver's alone."""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path

_DIRECTORIES = "SPARK_LOCAL_DIRS"  # Spark's word for it, before the first of several a comma
_seen: set[str] = set()


def driver_directory() -> str:
    """Where it is; empty if it is not told. In the processes that Spark starts it is the driver's,
    and Spark removes it when the driver ends; elsewhere it may be what an administrator set."""
    found = os.environ.get(_DIRECTORIES, "").split(",")[0]
    return found if os.path.isdir(found) else ""


def is_sparks() -> bool:
    """Whether Spark started this process, which is none of the user's programs then."""
    started_as = getattr(sys.modules.get("__main__"), "__spec__", None)
    return started_as is not None and started_as.name.startswith("pyspark.")


def is_seen(name: str) -> bool:
    """Whether this process, or another one that Spark started here, has `remember`ed it."""
    mark = _mark(name)
    return name in _seen or (mark is not None and mark.exists())


def remember(name: str) -> None:
    """For all processes that Spark starts on this machine for this application."""
    if name in _seen:
        return
    _seen.add(name)
    if mark := _mark(name):
        with suppress(OSError):
            mark.touch()


def _mark(name: str) -> Path | None:
    name = f"eo-kafka-seen-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    directory = driver_directory() if is_sparks() else ""
    return Path(directory, name) if directory else None
