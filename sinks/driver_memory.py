"""What the Python processes of one driver tell each other: which generation its last S1 took.

Spark runs `abort()` in another process than S1, with a fresh writer. It has to know whether the
ledger's newest generation is its own driver's: then what is open is this driver's, too, and else a
newer one's. All Python processes of a driver are told one directory, that is this driver's alone.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from eo_kafka.sinks.options import SinkOptions

_DIRECTORIES = "SPARK_LOCAL_DIRS"  # Spark's word for it, before the first of several a comma


def remember(options: SinkOptions, generation: int) -> None:
    """S1 took `generation`. Without a place to keep that, `abort()` ends only what was reported."""
    path = _path(options)
    if path is not None:
        with suppress(OSError):
            path.write_text(str(generation))


def remembered(options: SinkOptions) -> int | None:
    """The generation that this driver took last for the job; None if that is not known."""
    path = _path(options)
    try:
        return int(path.read_text()) if path is not None else None
    except (OSError, ValueError):
        return None


def _path(options: SinkOptions) -> Path | None:
    directory = os.environ.get(_DIRECTORIES, "").split(",")[0]
    job, ledger = options.job_and_ledger
    whose = repr((options.kafka.get("bootstrap.servers"), ledger, job))
    name = hashlib.sha256(whose.encode()).hexdigest()[:16]
    return Path(directory, f"eo-kafka-{name}") if directory else None
