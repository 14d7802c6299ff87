"""Position of a stream of a map that is a topic, as Spark's checkpoint holds it. No I/O.

Besides offsets it holds when the stream had last read all that there was. A removal is a record
without a value, and Kafka takes it out of a compacted topic, but not earlier than
`delete.retention.ms` after it was written: so a stream that reads on within that time, counted from
when it had read everything, has missed none. The setting may be changed meanwhile, so the smallest
one that was seen since then is kept, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import SourceError, cut
from ...core.offsets import Position, TopicPartition, decode_position, encode_position

_TIME_MAX = 2**63
_CLOCKS_MS = 300_000  # so much the clocks of two drivers may differ
_RENEWALS = 4  # so many times in `delete.retention.ms` an idle stream says that it is there
_KEPT = "removalsKept"


def now_ms() -> int:
    """The time, in milliseconds since 1970."""
    return int(time.time() * 1000)


@dataclass(frozen=True)
class TopicPosition:
    """One offset of a stream: its position in the topic, and when it had last read all there was.
    `kept_ms`: the smallest `delete.retention.ms` that was seen since; None where an eo-kafka wrote
    it that did not look."""

    map: str
    position: Position
    caught_up_ms: int
    kept_ms: int | None = None

    def encode(self) -> dict[str, Any]:
        """For Spark's log; always the same for the same position."""
        written = {
            "map": self.map,
            "offsets": encode_position(self.position),
            "caughtUp": self.caught_up_ms,
        }
        return written if self.kept_ms is None else {**written, _KEPT: self.kept_ms}

    @classmethod
    def decode(cls, written: Any) -> TopicPosition:
        """Raises SourceError for anything but what `encode` writes."""
        try:
            name, offsets, caught_up = (written[key] for key in ("map", "offsets", "caughtUp"))
            if not isinstance(name, str) or type(caught_up) is not int:
                raise ValueError
            kept = written.get(_KEPT)
            if type(kept) not in (int, type(None)):
                raise ValueError
            if not (0 <= caught_up < _TIME_MAX and 0 <= (kept or 0) < _TIME_MAX):
                raise ValueError
            found = cls(name, decode_position(offsets), caught_up, kept)
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
    kept_ms: int,
) -> TopicPosition:
    """Where a batch ends, at `end` of what a look at `looked_ms` found to be the `newest` offsets,
    when removals were kept for `kept_ms`.

    Without anything to read that is `start` itself, so that there is no batch; but now and then,
    and where the setting was lowered or the clock set back, an empty batch renews in the
    checkpoint that all was read.
    """
    smallest_ms = _smallest(start.kept_ms, kept_ms)
    is_caught_up = end.offsets == newest
    if end == start.position:
        age_ms = looked_ms - start.caught_up_ms if is_caught_up else 0
        is_fresh = -_CLOCKS_MS <= age_ms < max(smallest_ms // _RENEWALS, 1)
        if is_fresh and start.kept_ms in (None, smallest_ms):
            return start
        end = end._replace(anew=frozenset())  # the batch before read it
    if is_caught_up:
        return TopicPosition(start.map, end, looked_ms, kept_ms)
    return TopicPosition(start.map, end, start.caught_up_ms, smallest_ms)


def read_until_ms(start: TopicPosition, end: TopicPosition, kept_ms: int, looked_ms: int) -> int:
    """Until when a batch must be read so that no removal can be gone. 0 where nobody knows: `start`
    was caught up at a time that is yet to come, so the clock that said so was ahead."""
    if start.caught_up_ms > looked_ms + _CLOCKS_MS:
        return 0
    return start.caught_up_ms + _smallest(start.kept_ms, end.kept_ms, kept_ms)


def _smallest(*seen_ms: int | None) -> int:
    return min(one for one in seen_ms if one is not None)


def too_late(
    read_until_ms: int, rows: int, offsets: int, clock: Callable[[], int] = now_ms
) -> bool:
    """Whether a removal may be missing from what was read just now: it took too long, and there
    are fewer rows than offsets. (Ends of transactions have offsets, too: they look the same.)"""
    return rows < offsets and clock() > read_until_ms
