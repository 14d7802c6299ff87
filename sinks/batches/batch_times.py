"""Whether a batch with the same records has the watermark and the time of day that it had.

What a query with state gives, and keeps, may depend on both. Runs on the driver, in `commit(N)`.
"""

from __future__ import annotations

from ...core.transaction import Decision
from .batch_identity import BatchIdentity


def other_times(written: Decision, now: BatchIdentity) -> str:
    """What differs, as the end of a sentence; "" if nothing does, or nothing depends on it."""
    return _other_watermark(written, now) or _other_time_of_day(written, now)


def _other_watermark(written: Decision, now: BatchIdentity) -> str:
    """Spark's checkpoint holds the least of several only, so after a restart there may be an older
    one."""
    before, here = written.watermark_ms, now.planned.watermark_ms
    if before is None or here is None or before == here:
        return ""
    if not now.keeps_state:
        return ""  # of no use there; `job redo` leaves it out
    return (
        f"it held the same records with the watermark at {before} ms, and this one has it at "
        f"{here} ms, so it would give and keep other rows"
    )


def _other_time_of_day(written: Decision, now: BatchIdentity) -> str:
    """A batch that Spark runs again has the time that it had. One that it plans anew, from an older
    copy of the checkpoint, has another: timers may end in it that ended in none or in a later one,
    and what they give would be skipped with it."""
    before, here = written.time_ms, now.planned.time_ms
    if before is None or here is None or before == here:
        return ""
    if (operator := now.operator_by_the_clock) is None:
        return ""
    return (
        f"it held the same records with the time of day at {before} ms, and this one has it at "
        f"{here} ms, on which what operator {operator} gives and keeps may depend"
    )
