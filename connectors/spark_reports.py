"""What Spark's progress reports say: which batch they are about, and where its sources stood."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from ..core.offsets import Position, TopicPartition, decode_position


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


def slowest(ends: Iterable[str | None]) -> dict[TopicPartition, int]:
    """The least of what several sources report of a partition."""
    return least(positions(ends))


def least(several: Iterable[Position]) -> dict[TopicPartition, int]:
    """Of several positions the least of each partition."""
    found: dict[TopicPartition, int] = {}
    for position in several:
        for at, offset in position.offsets.items():
            found[at] = min(offset, found.get(at, offset))
    return found


def positions(ends: Iterable[str | None]) -> Iterator[Position]:
    """What sources report as their ends; those that are not Kafka's say nothing."""
    for text in ends:
        with suppress(ValueError):
            yield decode_position(text) if text else Position({})
