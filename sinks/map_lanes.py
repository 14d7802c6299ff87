"""Staged rows into their map, chunk by chunk, each exactly once whoever is at it. Driver, S7.

A chunk is applied in one transaction of the members' own, which also locks a marker, compares it,
and moves it on: rows and marker change together or not at all. A driver that was paused in the
middle and goes on finds the lock lost, and its transaction is refused by the members; one that
comes late finds a newer holder in the marker. Nothing is left to a look before a put.

Chunks are shared out over LANES markers by their task's partition, so that some are under way at a
time, and those of one task stay in order.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from eo_kafka.crash_points import crash_point
from eo_kafka.errors import EoKafkaError, Fenced, LedgerError, OutcomeUnknown, cut
from eo_kafka.hazelcast_client import client, explained
from eo_kafka.sinks.map_merge import merged
from eo_kafka.sinks.map_objects import Entries, entries_of
from eo_kafka.sinks.map_staging import ChunkKey, Staging, is_json, merge_of

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

MARKERS = "__eo_kafka.applied"
LANES = 4  # part of what markers mean: of another number they would count other chunks
# How long a transaction's locks outlive a driver that is paused in it; a dead one's go with its
# connection.
TRANSACTION_S = 15
PATIENCE_S = 120.0
T = TypeVar("T")


@dataclass(frozen=True)
class Marker:
    """A lane's state: the generation of the driver that applies, that of the decision it applies,
    and how many of the decision's chunks in this lane are in the map."""

    holder: int = 0
    decision: int = 0
    done: int = 0

    def taken(self, holder: int, decision: int) -> Marker | None:
        """As `holder` takes it, to apply `decision`; None where a newer decision is being
        applied."""
        if self.decision > decision:
            return None
        return Marker(holder, decision, self.done if self.decision == decision else 0)

    def encode(self) -> str:
        """JSON."""
        return json.dumps({"v": 1, **self.__dict__})

    @classmethod
    def decode(cls, written: Any) -> Marker:
        """Raises LedgerError for what is not ours."""
        try:
            fields = json.loads(written)
            found = cls(fields["holder"], fields["decision"], fields["done"])
            if fields["v"] != 1 or any(
                type(number) is not int for number in found.__dict__.values()
            ):
                raise ValueError
        except (LookupError, TypeError, ValueError):
            raise LedgerError(
                f"Map '{MARKERS}' holds what eo-kafka has not written there: {cut(written)}. "
                "Nothing was applied."
            ) from None
        return found


class Lanes:
    """The lanes of one sink, for the driver of generation `holder`. Used by several threads."""

    def __init__(self, staging: Staging, job: str, sink: str, holder: int) -> None:
        self._staging = staging
        self._target = staging.target
        self._job, self._sink = job, sink
        self._holder = holder

    def take(self, lane: int, decision: int) -> int:
        """Shut out every earlier driver from a lane; how many chunks of `decision` (a generation)
        are applied. Raises Fenced, OutcomeUnknown."""

        def move(transaction: Any, marker: Marker | None) -> Marker:
            known = marker or Marker()
            taken = known.taken(self._holder, decision)
            if taken is None:
                raise self._newer(known)
            return taken

        return self._moved(lane, move).done

    def apply(self, lane: int, decision: int, number: int, key: ChunkKey) -> None:
        """Put and remove a chunk's entries; it is the lane's `number`th of `decision`. Applied
        already: nothing. Raises Fenced, OutcomeUnknown, LedgerError."""
        rows = self._retried(lambda: self._staging.read(key))

        def move(transaction: Any, marker: Marker | None) -> Marker | None:
            if marker is None or marker.decision != decision:
                raise self._vanished(key)  # all members were started anew: the lane had been taken
            if marker.done > number:
                return None  # an attempt of this landed, and its answer was lost
            if rows is None:  # and nobody who has taken over has removed it
                raise self._vanished(key)
            stored = transaction.get_map(self._target.map)
            _put(stored, self._entries(stored, rows))
            crash_point("S7.in_chunk")
            return replace(marker, done=number + 1)

        self._moved(lane, move)
        crash_point("S7.after_chunk")

    def _entries(self, stored: Any, rows: pa.Table) -> Entries:
        connected, json = client(self._target.hazelcast), is_json(rows)
        function, known = merge_of(rows), self._target.merge
        if function is None:
            return entries_of(connected, rows, json)
        if function != known:  # what the members hold does not say what code is run here
            raise LedgerError(
                f"Rows wait to be merged by '{cut(function)}', and option 'mergeFunction' is "
                f"{known!r} now. The batch stays decided: start the query with the function of "
                "then, and change it once that is done."
            )
        return merged(connected, stored, rows, json, function)

    def _moved(self, lane: int, move: Callable[[Any, Marker | None], Marker | None]) -> Marker:
        """The marker, after `move` was made in one transaction with it."""
        key = f"{self._job}/{self._sink}/{lane}"

        def attempt() -> Marker:
            from hazelcast.transaction import TWO_PHASE

            connected = client(self._target.hazelcast)
            with connected.new_transaction(TRANSACTION_S, 1, TWO_PHASE) as transaction:
                markers = transaction.get_map(MARKERS)
                written = markers.get_for_update(key)
                before = None if written is None else Marker.decode(written)
                if before is not None and before.holder > self._holder:
                    raise self._newer(before)
                after = move(transaction, before)
                if after is not None and after != before:
                    markers.set(key, after.encode())
            return after or before or Marker()

        return self._retried(attempt)

    def _retried(self, request: Callable[[], T]) -> T:
        """Until it has an answer: what is asked again finds out what became of the last time."""
        from hazelcast.errors import HazelcastError

        deadline, pause = time.monotonic() + PATIENCE_S, 0.05
        while True:
            try:
                return request()
            except EoKafkaError as error:
                if not error.retriable:
                    raise
                last: EoKafkaError = error
            except (HazelcastError, TimeoutError, OSError) as error:
                last = explained(error, self._target.map, self._target.hazelcast)
            if time.monotonic() > deadline:
                raise OutcomeUnknown(
                    f"A decided batch could not be applied within {PATIENCE_S:.0f} s ({last}) It "
                    "stays decided and staged: start the query again, and it goes on with that; "
                    "nothing is applied twice."
                ) from None
            log.warning("Applying staged rows: %s", last)
            time.sleep(pause)
            pause = min(1.0, pause * 2)

    def _newer(self, known: Marker) -> Fenced:
        return Fenced(
            f"Generation {known.holder} of job '{self._job}' has taken over {self._target.place} "
            f"from {self._holder}: another driver runs the same job, and this one has applied "
            "nothing more. Run one of them. Only if the job's ledger was deleted and began anew: "
            f"remove the keys that begin with '{self._job}/' from map '{MARKERS}'."
        )

    def _vanished(self, key: ChunkKey) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"What was staged for batch {key.batch} (partition {key.partition}) went away while it "
            f"was applied to {self._target.place}: members were lost with all copies. Start the "
            "query again: it finds out what is left, and writes it again or says why it cannot."
        )


def _put(stored: Any, entries: Entries) -> None:
    for key, value in entries.items():
        if value is None:
            stored.delete(key)
        else:
            stored.set(key, value)


def lane_of(partition: int) -> int:
    """The lane of a task's chunks."""
    return partition % LANES
