"""Which offsets of one partition were kept: exact, in little space. No I/O.

A share group hands out a partition's offsets from its start offset on. It fetches nothing new while
from there to the newest one handed out it is as far as `share.partition.max.record.locks` allows,
10,000 offsets at most; the last fetch may go beyond that, to the end of a producer's batch. So what
comes again is near the highest offset. Offsets further below than `SPAN` are forgotten, and it is
said of them that they are: nobody guesses.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise

SPAN = 100_000  # ten times what Kafka allows, for producers' batches that are that long


@dataclass(frozen=True)
class KeptOffsets:
    """The offsets from `floor` on that were kept. `edges` are where a run of them begins, where it
    ends, where the next one begins, and so on."""

    floor: int = 0
    edges: tuple[int, ...] = ()

    def __contains__(self, offset: int) -> bool:
        return bisect_right(self.edges, offset) % 2 == 1

    @property
    def end(self) -> int:
        """One more than the highest that was kept."""
        return self.edges[-1] if self.edges else self.floor

    @property
    def count(self) -> int:
        """How many that are remembered."""
        return sum(
            end - begin for begin, end in zip(self.edges[::2], self.edges[1::2], strict=True)
        )

    def is_forgotten(self, offset: int) -> bool:
        """Whether it is so low that it is not known any more if it was kept."""
        return offset < self.floor

    def with_more(self, offsets: Iterable[int], span: int = SPAN) -> KeptOffsets:
        """These and `offsets`, but for those that are forgotten."""
        edges = list(self.edges)
        for offset in sorted(offsets):
            if offset < self.floor:
                continue
            begin, end = bisect_left(edges, offset), bisect_right(edges, offset + 1)
            # Even: outside of a run, which begins or ends here.
            edges[begin:end] = [offset] * (begin % 2 == 0) + [offset + 1] * (end % 2 == 0)
        floor = max(self.floor, (edges[-1] if edges else 0) - span)
        gone = bisect_right(edges, floor)
        return KeptOffsets(floor, (*[floor] * (gone % 2), *edges[gone:]))

    def packed(self) -> list[int]:
        """As it is remembered: the floor, and from edge to edge how far it is."""
        both = (self.floor, *self.edges)
        return [
            self.floor,
            *(after - before for before, after in pairwise(both)),
        ]

    @classmethod
    def unpacked(cls, steps: list[int]) -> KeptOffsets:
        """Of `packed`. Raises ValueError for what that does not give."""
        floor, *edges = accumulate(steps)
        is_rising = all(step > 0 for step in steps[2:]) and all(step >= 0 for step in steps[:2])
        if not is_rising or len(edges) % 2:
            raise ValueError(f"no set of offsets: {steps}")
        return cls(floor, tuple(edges))
