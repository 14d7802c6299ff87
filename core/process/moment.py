"""A monotonic clock that all processes of a machine share.

S1 and S6 of a batch run in different processes on the driver; their wall clock may be set between
them, and is another than Kafka's.
"""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Moment:
    """`seconds` on the clock of `machine`, which is another one after each start."""

    machine: str
    seconds: float

    @classmethod
    def now(cls) -> Moment:
        """This moment."""
        return cls(_machine(), seconds())

    def age_s(self) -> float | None:
        """How long ago it was; None if that was on another machine."""
        return seconds() - self.seconds if self.machine == _machine() else None


def seconds() -> float:
    """Goes on while the machine sleeps, as `time.monotonic` does not."""
    if hasattr(time, "CLOCK_BOOTTIME"):  # as Kafka's clock does
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def _machine() -> str:
    """Linux says which start of it this is, and whether a container has a clock of its own."""
    names = [platform.node()]
    with suppress(OSError):
        names.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        names.append(os.readlink("/proc/self/ns/time"))
    return " ".join(names)
