"""Which batch a progress report of Spark's is about."""

from __future__ import annotations

from typing import Any


def ended_batch(report: Any) -> int | None:
    """The newest batch that had ended when a query's `lastProgress` was made; None: none had.

    A query that waits for input reports, too, every ten seconds, and then of the batch that comes
    next: nothing was added in it."""
    if report is None:
        return None
    batch: int = report.batchId
    if "addBatch" not in report.durationMs:
        batch -= 1
    return batch if batch >= 0 else None
