"""Plans where the batches of a map's journal end. Runs on the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from ...clients.hazelcast import internals
from ...clients.hazelcast.client import answer, client
from ...clients.hazelcast.internals import Bounds, JournalItems
from ...core.errors import ReadTimeout
from ...core.offsets import TopicPartition
from ..rate_limit import rate_limited
from .columns import event_digest
from .declared import OLDEST
from .options import MapOptions
from .position import MapPosition, beginning

if TYPE_CHECKING:
    from hazelcast.future import Future

T = TypeVar("T")
_LOOKS = 5


class MapPlanner:
    """Plans the batches of one query."""

    def __init__(self, options: MapOptions) -> None:
        self._options = options
        self._until: MapPosition | None = None  # where a run ends that ends by itself

    def end(self, start: MapPosition | None, most: int | None, *, now: bool) -> MapPosition:
        """Where the batch from `start` ends, within about `most` events. Without a start it is
        where the query starts. With `now`, no batch goes further than what this call sees first.

        Raises DataLossError, unless failOnDataLoss is false; ReadTimeout, EnvironmentRefused.
        """
        for _ in range(_LOOKS):
            found = self._look(start, most, now=now)
            if found is not None:
                return found
        raise ReadTimeout(
            f"The journal of {self._options.place} changed {_LOOKS} times while it was looked at: "
            "it is overwritten faster than its ends can be read, or the cluster keeps restarting."
        )

    def newest(self) -> dict[str, object]:
        """How far the journal goes, for the progress report."""
        cluster, bounds = self._bounds()
        return {"cluster": cluster, "sequences": [one.newest + 1 for one in bounds]}

    def _look(
        self, start: MapPosition | None, most: int | None, *, now: bool
    ) -> MapPosition | None:
        """One look at the journal; None when it changed meanwhile."""
        name = self._options.map
        cluster, bounds = self._bounds()
        newest = tuple(one.newest + 1 for one in bounds)
        if start is None:
            oldest = self._options.starting == OLDEST
            ends = tuple(one.oldest for one in bounds) if oldest else newest
            position = self._anchored(cluster, bounds, ends, None)
        else:
            found = beginning(start, cluster, bounds)
            for loss in found.losses:
                self._options.report_loss(loss)
            if now and self._until is not None and self._until.cluster == cluster:
                newest = tuple(
                    min(one, until)
                    for one, until in zip(newest, self._until.sequences, strict=True)
                )
            ends = _limited(name, most, found.sequences, newest)
            position = self._anchored(cluster, bounds, ends, start)
        if self._bounds_of_cluster() != cluster:
            return None
        if now and self._until is None:
            self._until = MapPosition(name, cluster, newest, ("",) * len(newest))
        return position

    def _anchored(
        self,
        cluster: str,
        bounds: Sequence[Bounds],
        ends: tuple[int, ...],
        start: MapPosition | None,
    ) -> MapPosition | None:
        """The position `ends`, with the digest of the event before each. None if one was
        overwritten since the look at `bounds`."""
        options, hz = self._options, client(self._options.hazelcast)
        known: dict[int, str] = {}
        if start is not None and start.cluster == cluster:
            known = {
                partition: anchor
                for partition, anchor in enumerate(start.anchors)
                if start.sequences[partition] == ends[partition]
            }
        asked = {
            partition: internals.read_journal(hz, options.map, partition, end - 1, 1)
            for partition, end in enumerate(ends)
            # the event before the oldest one is not there to be asked for
            if partition not in known and end > bounds[partition].oldest
        }
        anchors = []
        for partition, end in enumerate(ends):
            if partition not in asked:
                anchors.append(known.get(partition, ""))
                continue
            found: JournalItems = self._answer(asked[partition])
            if not found.items or found.first() != end - 1:
                return None
            anchors.append(event_digest(found.items[0]))
        return MapPosition(options.map, cluster, ends, tuple(anchors))

    def _bounds(self) -> tuple[str, list[Bounds]]:
        hz = client(self._options.hazelcast)
        cluster = internals.cluster_id(hz)
        asked = [
            internals.journal_bounds(hz, self._options.map, partition)
            for partition in range(hz.partition_service.get_partition_count())
        ]
        return cluster, [self._answer(one) for one in asked]

    def _bounds_of_cluster(self) -> str:
        return internals.cluster_id(client(self._options.hazelcast))

    def _answer(self, asked: Future[T]) -> T:  # type: ignore[type-var,unused-ignore]
        found: T = answer(asked, self._options.map, self._options.hazelcast)
        return found


def _limited(
    name: str, most: int | None, begins: Sequence[int], newest: Sequence[int]
) -> tuple[int, ...]:
    if most is None:
        return tuple(newest)
    begin = {TopicPartition(name, number): one for number, one in enumerate(begins)}
    end = {TopicPartition(name, number): one for number, one in enumerate(newest)}
    limited = rate_limited(most, begin, end)
    return tuple(limited[at] for at in end)
