"""Cuts or shares out a batch's ranges among tasks, by the options for partitions.

`minPartitions` and `maxRecordsPerPartition` cut them for more tasks, `maxPartitions` shares them
out among fewer. Pure: the same ranges make the same tasks, after a restart too.

Source: KafkaOffsetRangeCalculator of Spark's connector, whose arithmetic users have tuned for; it
has no `maxPartitions`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

from ..core.offsets import OffsetRange


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


def gather(ranges: Sequence[OffsetRange], most: int | None) -> list[tuple[OffsetRange, ...]]:
    """What each task reads: one of `ranges`, or, if they are more than `most`, several, shared out
    so that no task has much more than another. Offsets must be known then."""
    if most is None or len(ranges) <= most:
        return [(one,) for one in ranges]
    # The largest first, each to the task that has the fewest offsets until now.
    tasks: list[tuple[int, int, list[OffsetRange]]] = [(0, number, []) for number in range(most)]
    for one in sorted(ranges, key=_size, reverse=True):
        size, number, held = tasks[0]
        heapq.heapreplace(tasks, (size + _size(one), number, [*held, one]))
    return sorted(tuple(sorted(held)) for _, _, held in tasks)


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
