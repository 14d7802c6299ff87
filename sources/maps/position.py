"""Position of a stream in a map's journal, and what it shows to be lost. No I/O.

A position is the next sequence of each partition, the cluster's id, and *anchors*: a digest of the
last event before each position. Sequences start again when the cluster does, or the map is
destroyed, and soon name other events; ids and anchors tell.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...clients.hazelcast.internals import Bounds
from ...core.errors import SourceError, cut

_SHOWN = 5
_DIGEST_DIGITS = 12
# A replica writes an expiry into its journal when it makes it: sequences differ between replicas
_EXPIRED = (
    "a member left, in order or not, while entries expired or were evicted (time-to-live, "
    "max-idle, eviction), which each replica's journal has in places of its own"
)
_PAGE = "docs/maps.md, 'Maps whose entries expire', says what can be done."


@dataclass(frozen=True)
class MapPosition:
    """One offset of a stream. `sequences` and `anchors` go by partition; an anchor is empty where
    no event is known to be before the position."""

    map: str
    cluster: str
    sequences: tuple[int, ...]
    anchors: tuple[str, ...]

    def encode(self) -> dict[str, Any]:
        """For Spark's log; always the same for the same position."""
        return {
            "map": self.map,
            "cluster": self.cluster,
            "sequences": list(self.sequences),
            "anchors": list(self.anchors),
        }

    @classmethod
    def decode(cls, written: Any) -> MapPosition:
        """Raises SourceError for anything but what `encode` writes."""
        try:
            name, cluster = written["map"], str(uuid.UUID(written["cluster"]))
            sequences, anchors = written["sequences"], written["anchors"]
            if not (
                isinstance(name, str)
                and all(type(one) is int and 0 <= one < 2**63 for one in sequences)
                and all(isinstance(one, str) and len(one) in (0, _DIGEST_DIGITS) for one in anchors)
                and len(sequences) == len(anchors) > 0
            ):
                raise ValueError
            found = cls(name, cluster, tuple(sequences), tuple(anchors))
            if found.encode() != written:  # it says more than this version reads
                raise ValueError
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SourceError(
                f"The offset in the checkpoint is not one of a map: {cut(written)}. If a newer "
                "eo-kafka wrote it, run that version."
            ) from None
        return found


class JournalRange(NamedTuple):
    """The events of a partition from `start` up to, not including, `end`. `before` and `last` are
    digests of the events at start - 1 and end - 1, empty where not known."""

    partition: int
    start: int
    end: int
    before: str
    last: str

    def __str__(self) -> str:
        return f"partition {self.partition} from sequence {self.start} to {self.end}"


class Beginning(NamedTuple):
    """From where on the next batch can be read, and why that is not where the last one ended."""

    sequences: tuple[int, ...]
    losses: tuple[str, ...]


def ranges(start: MapPosition | None, end: MapPosition) -> list[JournalRange]:
    """What a batch reads; nothing if it only fixes where the query starts. A partition that is
    shorter than it was is read from its beginning: only `failOnDataLoss=false` plans such ends."""
    if start is None:
        return []
    found = []
    same = start.cluster == end.cluster and len(start.sequences) == len(end.sequences)
    for partition, (until, last) in enumerate(zip(end.sequences, end.anchors, strict=True)):
        if same and start.sequences[partition] <= until:
            begin, before = start.sequences[partition], start.anchors[partition]
        else:
            begin, before = 0, ""
        if begin < until:
            found.append(JournalRange(partition, begin, until, before, last))
    return found


def beginning(start: MapPosition, cluster: str, bounds: Sequence[Bounds]) -> Beginning:
    """Compare a position with what the journal holds now."""
    oldest = tuple(one.oldest for one in bounds)
    if start.cluster != cluster:
        return Beginning(oldest, (restarted(start.map, start.cluster, cluster),))
    if len(start.sequences) != len(bounds):
        return Beginning(
            oldest,
            (
                f"Map '{start.map}' had {len(start.sequences)} partitions and has {len(bounds)}: "
                "sequences of before say nothing of them.",
            ),
        )
    overwritten, shorter, begins = [], [], list(start.sequences)
    for partition, (position, one) in enumerate(zip(start.sequences, bounds, strict=True)):
        if position < one.oldest:
            overwritten.append(f"partition {partition}: sequences {position} to {one.oldest - 1}")
        elif position > one.newest + 1:
            shorter.append(
                f"partition {partition}: read up to sequence {position - 1}, now ends with "
                f"{one.newest}"
            )
        else:
            continue
        begins[partition] = one.oldest
    losses = []
    if overwritten:
        losses.append(
            f"Events of map '{start.map}' were overwritten, or outlived the journal's "
            f"time-to-live, before they were read ({_some(overwritten)}). All partitions share "
            "the journal's capacity, which is too small for the rate of changes and the time "
            "between batches."
        )
    if shorter:
        losses.append(
            f"The journal of map '{start.map}' is shorter than what was read of it "
            f"({_some(shorter)}): the map was destroyed and made again, or members died that had "
            f"the only copies, or {_EXPIRED}. Read from their beginning, these partitions may give "
            f"events again that were read. {_PAGE}"
        )
    return Beginning(tuple(begins), tuple(losses))


def restarted(name: str, before: str, now: str) -> str:
    """What is wrong when the cluster is another one."""
    return (
        f"Map '{name}' is now in another cluster than the one that was read (id {before}, now "
        f"{now}): all its members were restarted, or the client failed over. Sequences start "
        "again, and earlier events that were not read are gone."
    )


def replaced(name: str, wanted: JournalRange, sequence: int) -> str:
    """What is wrong when an anchor holds another event."""
    return (
        f"Map '{name}', {wanted}: sequence {sequence} is no longer the same event. The map was "
        "destroyed and created again, or members died that had the only copies, and earlier events "
        f"that were not read are gone; or {_EXPIRED}, and events may be missing or come again from "
        f"here on. {_PAGE}"
    )


def missing(name: str, wanted: JournalRange, position: int, bounds: Bounds) -> str:
    """What is wrong when a range cannot be read as it was planned."""
    held = (
        "no event"
        if bounds.newest < bounds.oldest
        else f"sequences {bounds.oldest} to {bounds.newest}"
    )
    if position == wanted.start - 1 and bounds.oldest == wanted.start:
        return (
            f"Map '{name}', {wanted}: the event before it (sequence {position}) is not in the "
            f"journal any more, which holds {held}. So nothing shows that this is still the "
            "journal that was read. Its capacity, which all partitions share, must exceed what is "
            "written between two batches; a time-to-live must outlast it."
        )
    return (
        f"Map '{name}', {wanted}: sequence {position} is not in the journal, which holds {held}. "
        "It was overwritten, or the map was destroyed, or members died that had the only copies, "
        f"or {_EXPIRED}. {_PAGE}"
    )


def _some(parts: Sequence[str]) -> str:
    more = len(parts) - _SHOWN
    return "; ".join(parts[:_SHOWN]) + (f"; and {more} more partitions" if more > 0 else "")
