"""Cuts the ranges of a batch into more tasks: `minPartitions`, `maxRecordsPerPartition`. Pure.

Source: KafkaOffsetRangeCalculator of Spark's connector, whose arithmetic users have tuned for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from eo_kafka.offsets import OffsetRange


def split(
    ranges: Iterable[OffsetRange], least: int | None, most_records: int | None
) -> list[OffsetRange]:
    """`ranges` in order, those with more than `most_records` offsets cut evenly, and large ones cut
    further until there are about `least`. Empty ranges are dropped; offsets must be known."""
    found = [one for one in ranges if one.end > one.start]
    if most_records is not None:
        found = [
            piece for one in found for piece in _cut(one, math.ceil(_size(one) / most_records))
        ]
    if least is None or len(found) >= least:
        return found
    total = sum(map(_size, found))
    # Small ranges stay whole, and take no part in sharing out the tasks among the large ones.
    whole = [one for one in found if _share(one, total, least) == 1]
    large = total - sum(map(_size, whole))
    tasks = max(least - len(whole), 1)
    kept = set(whole)
    return [
        piece
        for one in found
        for piece in _cut(one, 1 if one in kept else _share(one, large, tasks))
    ]


def _size(one: OffsetRange) -> int:
    return one.end - one.start


def _share(one: OffsetRange, total: int, tasks: int) -> int:
    # Half goes up, as Java rounds.
    return max(math.floor(_size(one) / total * tasks + 0.5), 1)


def _cut(one: OffsetRange, parts: int) -> list[OffsetRange]:
    """Pieces as equal as whole offsets allow, the later ones larger."""
    pieces, start = [], one.start
    for left in range(parts, 0, -1):
        end = start + (one.end - start) // left
        if end > start:
            pieces.append(OffsetRange(one.partition, start, end))
        start = end
    return pieces
