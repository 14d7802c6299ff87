"""Tells from a running query's figures whether a batch may outlast its transaction. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...core.transaction import alarm_ms
from ..shared.command_line import duration


@dataclass(frozen=True)
class Rate:
    """Of the newest batch. `behind`: records that wait in its sources, as far as they say so."""

    batch: int
    took_ms: float
    rows: int
    behind: int
    is_limited: bool  # maxOffsetsPerTrigger


def too_slow(rate: Rate, timeout_ms: int) -> Iterator[str]:
    """A sentence for each thing that is wrong. A transaction lasts from a batch's first row to its
    commit: about as long as the batch."""
    seconds, most = rate.took_ms / 1000, timeout_ms / 1000
    remedy = "Set maxOffsetsPerTrigger lower, or transactionTimeout higher (max)."
    if rate.took_ms >= timeout_ms:
        yield (
            f"Batch {rate.batch} took {duration(seconds)}, longer than a transaction may be open "
            f"({duration(most)}). {remedy}"
        )
    elif rate.took_ms > alarm_ms(timeout_ms):
        yield (
            f"Batch {rate.batch} took {duration(seconds)}, and a transaction may be open for "
            f"{duration(most)}: a batch that takes longer can never commit. {remedy}"
        )
    if rate.behind and not rate.is_limited and rate.rows > 0:
        needed = rate.behind * seconds / rate.rows
        if needed > most:
            yield (
                f"{rate.behind:,} records wait, and at the present rate one batch of all of them "
                f"takes {duration(needed)}, longer than a transaction may be open "
                f"({duration(most)}). Set maxOffsetsPerTrigger."
            )
