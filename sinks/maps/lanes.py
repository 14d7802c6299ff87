"""Applies staged rows to their map, chunk by chunk, each exactly once. Driver, S7.

A chunk is applied in one transaction of the members' own, which also locks a marker, compares it,
and moves it on: rows and marker change together. A driver that was paused in the middle and goes
on finds the lock lost, and its transaction is refused by the members; one that comes late finds a
newer holder in the marker. Nothing is left to a look before a put.

A commit without an answer, or with an error, may leave a part of this: its member died, or one that
lives refused some of the changes. So what a transaction is to change is written ahead of its commit
(sinks/maps/write_ahead.py), and whoever finds that takes the lane, which finishes it: entry by
entry, what is not made is made. The marker alone proves nothing then.

Chunks are shared out over LANES markers by their task's partition, so that some are under way at a
time, and those of one task stay in order. Two that merge rows of the same key are not: the second
would overtake a change of which nobody knows yet whether it was made.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from ...clients.hazelcast import internals
from ...clients.hazelcast.client import client, explained
from ...clients.hazelcast.transactions import Transaction
from ...core.crash_points import crash_point
from ...core.errors import EoKafkaError, Fenced, LedgerError, OutcomeUnknown, cut
from .applied import MARKERS, Done, Marker, marker_key
from .merge import merged
from .objects import Entries, entries_of
from .staging import ChunkKey, Staging, is_json, merge_of
from .write_ahead import Change, State, WriteAhead, WriteAheads

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

# How long a transaction's locks outlive a driver that is paused in it; a dead one's go with its
# connection.
TRANSACTION_S = 15
PATIENCE_S = 120.0
T = TypeVar("T")


class Lanes:
    """The lanes of one decision, a generation and a digest, for the driver of generation `holder`.
    Used by several threads, each with lanes of its own."""

    def __init__(
        self,
        staging: Staging,
        job: str,
        sink: str,
        holder: int,
        decision: int,
        digest: str,
        done: Done | None = None,
    ) -> None:
        """`done`: what must be applied before."""
        self._staging = staging
        self._target = staging.target
        self._job, self._sink = job, sink
        self._holder, self._decision, self._digest = holder, decision, digest
        self._ahead = WriteAheads(staging, sink)
        self._before = done
        self._free = threading.Condition()
        self._busy: set[object] = set()  # keys whose rows a lane is merging
        self._failed: BaseException | None = None

    def take(self, lane: int) -> int:
        """Shut out every earlier driver from a lane, and finish what its last transaction left; how
        many chunks of the decision are applied. Raises Fenced, OutcomeUnknown, LedgerError."""

        def move(transaction: Transaction, marker: Marker | None) -> Marker:
            if self._before is not None:  # once it is taken, it does not say that any more
                self._before.check({lane: marker})
            known = marker or Marker()
            taken = known.taken(self._holder, self._decision, self._digest)
            if taken is None:
                raise self._newer(known)
            ahead = self._ahead.read(lane, known.holder)
            if ahead is None or not self._is_mine(ahead):
                return taken
            # An older chunk's is of one that is whole: the next is begun only then. And a later
            # one's was written when the members went back: chunks before it are gone
            if not taken.done - 1 <= ahead.number <= taken.done:
                return taken
            self._ahead.write(lane, self._holder, ahead)  # this may be left in parts, too
            self._finish(transaction, ahead)
            return replace(taken, done=ahead.number + 1)

        done = self.retried(lambda: self._moved(lane, 2 * TRANSACTION_S, move)).done
        self._forget(lane)
        return done

    def apply(self, lane: int, number: int, key: ChunkKey) -> None:
        """Put and remove a chunk's entries; it is the lane's `number`th. Applied already: nothing.
        Raises Fenced, OutcomeUnknown, LedgerError."""
        rows = self.retried(lambda: self._staging.read(key))

        def move(transaction: Transaction, marker: Marker | None) -> Marker:
            marker = self._at(marker, number, key)
            if rows is None:  # and nobody who has taken over has removed it
                raise self._vanished(key)
            changes = self._put(transaction, rows)
            self._ahead.write(
                lane,
                self._holder,
                WriteAhead(
                    self._decision,
                    number,
                    merged=merge_of(rows) is not None,
                    changes=tuple(changes),
                    digest=self._digest,
                ),
            )
            crash_point("S7.in_chunk")
            return replace(marker, done=number + 1)

        begun = False

        def attempt() -> None:
            nonlocal begun
            if begun and self.take(lane) > number:
                return  # the one before has landed, or is finished now
            begun = True
            self._moved(lane, TRANSACTION_S, move)

        merging = None if rows is None or merge_of(rows) is None else rows.column("key")
        with self._alone([] if merging is None else merging.to_pylist()):
            self.retried(attempt)
            self._forget(lane)
        crash_point("S7.after_chunk")

    def pass_over(self, lane: int, number: int, key: ChunkKey) -> None:
        """Count a chunk that is given up as applied. Raises Fenced, OutcomeUnknown, LedgerError."""

        def move(_: Transaction, marker: Marker | None) -> Marker:
            return replace(self._at(marker, number, key), done=number + 1)

        def attempt() -> None:
            if self.take(lane) == number:  # else it has landed
                self._moved(lane, TRANSACTION_S, move)

        self.retried(attempt)

    def _forget(self, lane: int) -> None:
        """A commit was answered without an error: all that was written ahead is made."""
        self.retried(lambda: self._ahead.remove([lane], self._holder))

    @contextmanager
    def _alone(self, keys: Iterable[object]) -> Iterator[None]:
        """No other lane has these keys meanwhile. After an error no lane goes on, and each raises
        it: what became of the keys is for the next start to find out."""
        mine = set(keys)
        with self._free:
            self._free.wait_for(lambda: self._failed or self._busy.isdisjoint(mine))
            if self._failed:
                raise self._failed
            self._busy |= mine
        try:
            yield
        except BaseException as error:
            self._failed = error
            raise
        finally:
            with self._free:
                self._busy -= mine
                self._free.notify_all()

    def _is_mine(self, found: Marker | WriteAhead) -> bool:
        """Whether it is of the decision that is applied here."""
        return found.decision == self._decision and found.digest in ("", self._digest)

    def _at(self, marker: Marker | None, number: int, key: ChunkKey) -> Marker:
        """The marker, if the chunk `key` is next. Else all members were started anew, or went back:
        this driver had taken the lane, and has applied what is before it."""
        if marker is None or not self._is_mine(marker) or marker.done != number:
            raise self._vanished(key)
        return marker

    def _put(self, transaction: Transaction, rows: pa.Table) -> Iterator[Change]:
        to_bytes = partial(internals.to_bytes, client(self._target.hazelcast))
        entries = [
            (to_bytes(key), value) for key, value in self._entries(transaction, rows).items()
        ]
        # Lanes that lock the same entries do so in the same order, or they wait for each other
        for key, value in sorted(entries, key=itemgetter(0)):
            after = None if value is None else to_bytes(value)
            yield Change.of(key, transaction.put(self._target.map, key, after), after)

    def _entries(self, transaction: Transaction, rows: pa.Table) -> Entries:
        connected, json = client(self._target.hazelcast), is_json(rows)
        function, known = merge_of(rows), self._target.merge
        if function is None:
            return entries_of(connected, rows, json)
        if function != known:  # what the members hold does not say what code is run here
            raise LedgerError(
                f"Rows wait to be merged by '{cut(function)}', and option 'mergeFunction' is "
                f"{known!r} now. The batch stays decided. Start the query with the old "
                "function, and change it when the batch is done."
            )
        lock = partial(transaction.lock, self._target.map)
        return merged(connected, lock, rows, json, function)

    def _finish(self, transaction: Transaction, ahead: WriteAhead) -> None:
        """Make what is not made of a chunk whose transaction may have been left in parts."""
        # Whoever holds a lock has it until its change is made, or will never be
        now = [transaction.lock(self._target.map, change.key) for change in ahead.changes]
        unsure = []
        for change, value in zip(ahead.changes, now, strict=True):
            state = change.state(value)
            if state is State.OVERTAKEN and ahead.merged:
                unsure.append(change.key)
            elif state is State.NOT_MADE or (state is State.OVERTAKEN and value is None):
                # An entry that is gone may have expired: a row too many is better than a lost one
                transaction.put(self._target.map, change.key, change.after)
            # else made, or replaced since: the other writer came later
        if unsure:
            self._lost_in_others(unsure)

    def _lost_in_others(self, keys: list[bytes]) -> None:
        connected = client(self._target.hazelcast)
        named = ", ".join(cut(internals.to_object(connected, key)) for key in keys)
        sentence = (
            f"It is unknown whether rows of keys {named} are merged into {self._target.place}: "
            "a commit had no answer, or was refused in part, and these entries are no longer what "
            "they were: somebody else has written them since, or they have expired."
        )
        if self._target.fail_on_loss:
            raise LedgerError(
                f"{sentence} The batch stays decided. Set each entry to the value that it should "
                "have with the row. Then set option 'failOnDataLoss' to false until the batch "
                "is written: these entries are left as they are."
            )
        log.warning("%s They are left as they are, as 'failOnDataLoss' is false.", sentence)

    def _moved(
        self, lane: int, seconds: int, move: Callable[[Transaction, Marker | None], Marker]
    ) -> Marker:
        """The marker, after `move` was made in one transaction with it."""
        connected = client(self._target.hazelcast)
        key = internals.to_bytes(connected, marker_key(self._job, self._sink, lane))
        with Transaction(connected, seconds) as transaction:
            written = transaction.lock(MARKERS, key)
            before = None
            if written is not None:
                before = Marker.decode(internals.to_object(connected, written))
            if before is not None and before.holder > self._holder:
                self._ahead.remove([lane], self._holder)  # whoever took the lane has its own
                raise self._newer(before)
            after = move(transaction, before)
            if after != before:
                transaction.put(MARKERS, key, internals.to_bytes(connected, after.encode()))
        return after

    def retried(self, request: Callable[[], T]) -> T:
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
        happened = (
            f"Generation {known.holder} of job '{self._job}' has taken over "
            f"{self._target.place} from {self._holder}: another driver runs the same job, and "
            "this one has applied nothing more. Run one of them."
        )
        if known.holder <= self._holder and known.decision == self._decision:
            happened = (
                f"What generation {known.decision} of job '{self._job}' applied to "
                f"{self._target.place} was of another ledger than the batch that waits now, which "
                "stays decided. Perhaps a job of this name on another Kafka writes the same map: "
                "give each its own 'jobName'."
            )
        return Fenced(
            f"{happened} Only if the job's ledger was deleted and is new: remove the keys that "
            f"begin with '{self._job}/' from map '{MARKERS}'."
        )

    def _vanished(self, key: ChunkKey) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"Rows of batch {key.batch} (partition {key.partition}) disappeared while they were "
            f"applied to {self._target.place}: members were lost with all copies, or a split brain "
            "has healed. Start the query again: it writes the rows again, or says why it cannot."
        )
