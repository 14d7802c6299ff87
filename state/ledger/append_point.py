"""Where a log must go on for whoever alone may append to it. No I/O.

A partition's leader that is cut off from the other brokers goes on naming itself the leader: it
takes no record, but tells an old end of its log. Who reads up to that does not see the newest
records. Two things are certain all the same: an offset that was acknowledged (`acks=all`) stands in
the log; and after a fence nobody else appends. So the first record after a fence must land exactly
where the reading ended; if it lands later, something was not read.
"""

from __future__ import annotations

from collections.abc import Sequence


class AppendPoint:
    """One partition, as the holder of its only writer's transactional id knows it."""

    def __init__(self) -> None:
        self.at_least = 0  # the log's end is here or later
        self._read_to: int | None = None
        self._proven = False

    def fenced(self) -> None:
        """Nobody else appends from here on. What is read now counts."""
        self._read_to, self._proven = None, False

    def read_to(self, end: int) -> None:
        """The log was read up to `end`, which was asked for after the fence."""
        self._read_to = max(end, self._read_to or 0)

    def landed(self, offsets: Sequence[int]) -> str:
        """Records of an open transaction were acknowledged at `offsets`; what is wrong with that,
        or ""."""
        first = min(offsets)
        if first < 0:  # of a batch without an offset: those of its other records are invented
            return "it is not known where a record landed"
        self.at_least = max(self.at_least, *(offset + 1 for offset in offsets))
        if not self._proven and self._read_to is not None and first != self._read_to:
            return f"it was read to offset {self._read_to}, and goes on at {first}"
        self._proven = True  # by the first; from then on what is between are transactions' markers
        return ""
