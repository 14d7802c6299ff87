"""Position of a stream of a map that is a topic, as Spark's checkpoint holds it. No I/O.

Besides offsets it holds when the stream had last read all that there was. A removal is a record
without a value, and Kafka takes it out of a compacted topic, but not earlier than
`delete.retention.ms` after it was written: so a stream that reads on within that time, counted from
when it had read everything, has missed none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import SourceError, cut
from ...core.offsets import Position, TopicPartition, decode_position, encode_position

_TIME_MAX = 2**63


def now_ms() -> int:
    """The time, in milliseconds since 1970."""
    return int(time.time() * 1000)


@dataclass(frozen=True)
class TopicPosition:
    """One offset of a stream: its position in the topic, and when it had last read all there
    was."""

    map: str
    position: Position
    caught_up_ms: int

    def encode(self) -> dict[str, Any]:
        """For Spark's log; always the same for the same position."""
        return {
            "map": self.map,
            "offsets": encode_position(self.position),
            "caughtUp": self.caught_up_ms,
        }

    @classmethod
    def decode(cls, written: Any) -> TopicPosition:
        """Raises SourceError for anything but what `encode` writes."""
        try:
            name, offsets, caught_up = (written[key] for key in ("map", "offsets", "caughtUp"))
            if not isinstance(name, str) or type(caught_up) is not int:
                raise ValueError
            if not 0 <= caught_up < _TIME_MAX:
                raise ValueError
            found = cls(name, decode_position(offsets), caught_up)
            if any(at.topic != name for at in found.position.offsets):
                raise ValueError
            if found.encode() != written:  # it says more than this version reads
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise SourceError(
                f"The offset in the checkpoint is not one of a map that is a topic: {cut(written)}."
                " If a newer eo-kafka wrote it, run that version."
            ) from None
        return found


def after(
    start: TopicPosition,
    end: Position,
    newest: Mapping[TopicPartition, int],
    looked_ms: int,
    stale_ms: int,
) -> TopicPosition:
    """Where a batch ends, at `end` of what a look at `looked_ms` found to be the `newest` offsets.

    Without anything to read that is `start` itself, so that there is no batch; but when `start`
    was caught up more than `stale_ms` ago, an empty batch renews that in the checkpoint.
    """
    caught_up = looked_ms if end.offsets == newest else start.caught_up_ms
    same = end == start.position
    if same and caught_up - start.caught_up_ms < max(stale_ms, 1):
        return start
    if same:  # the batch before read it
        end = end._replace(anew=frozenset())
    return TopicPosition(start.map, end, caught_up)


def too_late(
    read_until_ms: int, rows: int, offsets: int, clock: Callable[[], int] = now_ms
) -> bool:
    """Whether a removal may be missing from what was read just now: it took too long, and there
    are fewer rows than offsets. (Ends of transactions have offsets, too: they look the same.)"""
    return rows < offsets and clock() > read_until_ms
