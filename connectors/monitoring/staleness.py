"""How long ago the oldest record that a query has not read came: known from offsets alone.

Each batch's planning sees how far a partition reaches. What it saw first beyond the query's
position is the oldest record that waits, and is as old as that look, at least. Free of I/O; one
object a partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Looks that are kept of a partition; of a query that is far behind, every other is let go.
MOST = 500


@dataclass
class Staleness:
    """Of one partition: when its end was first seen beyond which offset."""

    _seen: list[tuple[int, float]] = field(default_factory=list)  # both grow
    _read: int = 0

    def look(self, read: int, end: int, at_s: float) -> None:
        """A batch ended at offset `read`, and its planning had seen `end`, at that time."""
        if read < self._read:  # the query began anew, or the topic did
            self._seen.clear()
        self._read = read
        self._seen = [one for one in self._seen if one[0] > read]
        if end > read and (not self._seen or end > self._seen[-1][0]):
            self._seen.append((end, at_s))
        if len(self._seen) > MOST:
            self._seen = [*self._seen[:1], *self._seen[1::2]]

    def age_s(self, now_s: float) -> float:
        """For how long the oldest record that is not read has been there; 0: all is read."""
        return max(0.0, now_s - self._seen[0][1]) if self._seen else 0.0
