"""Finds the moment at which a batch's rows are in the sink, and Spark has not noted the batch."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from . import checkpoint_log
from .driver import Driver
from .records import Arrivals, Watch


def stopped_half_written(
    driver: Driver, checkpoint: Path, servers: str, topic: str, seconds: float
) -> int | None:
    """The batch that is half-written. The driver stands still then, so that the note does not come
    between the look and what is done to it. None: it did not come to that, or ended."""
    deadline = time.monotonic() + seconds
    with Watch(servers, topic) as sink:
        batch, last = -2, sink.ends()
        before = last
        with Arrivals(servers, topic, last) as rows:
            while driver.exit_code is None and time.monotonic() < deadline:
                ends = sink.ends()
                newest = checkpoint_log.newest(checkpoint / "offsets")
                if newest != batch:  # planned when `last` was known: without any of its rows
                    batch, before = newest, last
                there = any(at >= before[number] for number, at in rows.newest().items())
                if batch >= 0 and there and _stands_in(driver, checkpoint, batch):
                    return batch
                last = ends
    return None


def _stands_in(driver: Driver, checkpoint: Path, batch: int) -> bool:
    if checkpoint_log.is_noted(checkpoint, batch):
        return False
    driver.signal_all(signal.SIGSTOP)
    if not checkpoint_log.is_noted(checkpoint, batch):
        return True
    driver.signal_all(signal.SIGCONT)
    return False
