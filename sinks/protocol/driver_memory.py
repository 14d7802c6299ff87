"""Tells a driver's other processes which generation its last S1 took.

Spark runs `abort()` in another process than S1, with a fresh writer. It has to know whether the
ledger's newest generation is its own driver's: then what is open is this driver's, too, and else a
newer one's. All Python processes of a driver are told one directory, that is this driver's alone.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from ...core.process.driver_directory import driver_directory
from ..options import SinkOptions
from . import after_driver


def begin(options: SinkOptions, generation: int) -> None:
    """S1 took `generation`. Without a place to keep that, `abort()` ends only what was reported."""
    if found := driver_directory():
        with suppress(OSError):
            Path(found, _name(options)).write_text(str(generation))
        after_driver.tell(found, whose(options), options, generation)


def end(options: SinkOptions) -> None:
    """The batch has ended, by `commit()` or `abort()`."""
    if found := driver_directory():
        after_driver.tell(found, whose(options), options, None)


def remembered(options: SinkOptions) -> int | None:
    """The generation that this driver took last for the job; None if that is not known."""
    try:
        return int(Path(driver_directory(), _name(options)).read_text())
    except (OSError, ValueError):
        return None


def _name(options: SinkOptions) -> str:
    return f"eo-kafka-{whose(options)}"


def whose(options: SinkOptions) -> str:
    """A name for the job in that directory."""
    job, ledger = options.job_and_ledger
    named = repr((options.kafka.get("bootstrap.servers"), ledger, job))
    return hashlib.sha256(named.encode()).hexdigest()[:16]
