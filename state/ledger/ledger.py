"""What a ledger's decision partition says, folded from its records. No I/O.

Partition 0 holds the owner, the generation and the decisions, written by coordinator transactions
only. Tokens stand in partitions of their own: a prepared transaction pins the last stable offset of
every partition it wrote to, and a decision behind an open token could not be read by the recovery
that needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count, takewhile

from ...core.errors import CorruptLedger
from ...core.transaction import Begun, Decision, DecisionState, Identity, IllegalMove
from . import records
from .blob_names import SnapshotHead
from .succession import SUCCESSION_KEY, Succession, decode_succession

DECISION_PARTITION = 0
DECISIONS_KEPT = 100  # as many batches as Spark keeps by default (minBatchesToRetain)


@dataclass
class Ledger:
    """The job's memory at one position of partition 0."""

    owner: str | None = None
    generation: int = 0
    # The newest round of each (sink, batch).
    decisions: dict[tuple[str, int], Decision] = field(default_factory=dict)
    # Set while tasks may have committed without a decision: from this offset of the token
    # partition on, visible tokens count also where no decision names them.
    one_phase_from: int | None = None
    begun: Begun | None = None  # the batch that S1 saw last of such tasks
    snapshot: SnapshotHead | None = None  # the newest, decided together with its batch
    # Set while blobs are sent ahead of a decision: from this offset of the state topic on, there
    # may be some that no manifest names.
    loading_from: int | None = None
    loading_topic: str = ""  # that state topic, if it is known
    succession: Succession = field(default_factory=Succession)
    topic_id: str = ""  # of the topic that it was read from
    checkpoint: str = ""  # where the owner's is, if that is known

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Fold in the next record. Raises CorruptLedger."""
        if key == records.GENERATION_KEY and value is not None:
            generation = records.decode_generation(value)
            if generation < self.generation:
                raise CorruptLedger(
                    f"The ledger's generation went back from {self.generation} to {generation}: "
                    "somebody else writes into the ledger topic."
                )
            self.generation = generation
        elif key == records.OWNER_KEY:
            whose = (None, "") if value is None else records.decode_owner(value)
            self.owner, self.checkpoint = whose
        elif key == SUCCESSION_KEY:
            self.succession = Succession() if value is None else decode_succession(value)
        elif key == records.ONE_PHASE_KEY:
            self.one_phase_from = None if value is None else records.decode_one_phase(value)
        elif key == records.BEGUN_KEY:
            self.begun = None if value is None else records.decode_begun(value)
        elif key == records.SNAPSHOT_KEY:
            self.snapshot = None if value is None else records.decode_snapshot(value)
        elif key == records.LOADING_KEY:
            known = (None, "") if value is None else records.decode_loading(value)
            self.loading_from, self.loading_topic = known
        elif key.startswith(records.DECISION):
            self._apply_decision(key, value)
        else:
            raise CorruptLedger(f"Unknown ledger record {key[:200]!r}.")

    def _apply_decision(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._forget(key)
            return
        decision = records.decode_decision(key, value)
        at = (decision.sink, decision.batch)
        previous = self.decisions.get(at)
        try:
            # Compaction may have taken the earlier states of the first record that is left.
            if previous is not None:
                decision.check_follows(previous)
        except IllegalMove as error:
            raise CorruptLedger(
                f"The ledger contradicts itself ({error}): somebody else writes into it."
            ) from None
        self.decisions[at] = decision

    def _forget(self, key: bytes) -> None:
        at = records.batch_of(key)
        found = self.decisions.get(at) if at is not None else None
        if found and records.decision_key(found.sink, found.batch, found.round) == key:
            del self.decisions[found.sink, found.batch]

    def of_sink(self, sink: str) -> dict[int, Decision]:
        """The decisions of one sink, by batch."""
        return {batch: found for (name, batch), found in self.decisions.items() if name == sink}

    def unfinished(self) -> list[Decision]:
        """Decided batches whose participants are not all known to be committed, oldest first."""
        return sorted(
            (found for found in self.decisions.values() if found.state is DecisionState.DECIDED),
            key=lambda found: (found.batch, found.sink),
        )

    def decided(self) -> dict[Identity, bool]:
        """The transactions that decisions name, and whether these are DONE."""
        counts = (one for one in self.decisions.values() if one.state is not DecisionState.VOID)
        done = DecisionState.DONE
        return {part.identity: one.state is done for one in counts for part in one.participants}

    def written(self) -> set[str]:
        """The topics that the newest decisions name, of each sink."""
        newest = {name: max(self.of_sink(name)) for name, _ in self.decisions}
        parts = (part for at in newest.items() for part in self.decisions[at].participants)
        lists = {id(part.topics): part.topics for part in parts}  # equal ones are one object
        return {name for topics in lists.values() for name, _ in topics}

    def ends(self, sink: str) -> tuple[str, ...]:
        """Where a query would go on that continues: where the newest batch that is not VOID ended,
        a line a source, or what this owner continues from. Empty if that is not known."""
        mine = self.of_sink(sink).values()
        counts = [one for one in mine if one.state is not DecisionState.VOID]
        newest = max(counts, key=lambda one: one.batch, default=None)
        return newest.offsets if newest else self.succession.continued_from

    def since_snapshot(self, sink: str) -> list[Decision]:
        """The decisions from the newest snapshot's batch on, oldest first, up to a batch that is
        missing or does not say where its sources ended; none without a snapshot."""
        if self.snapshot is None:
            return []
        mine = self.of_sink(sink)
        batches = count(self.snapshot.batch)
        known = takewhile(lambda batch: batch in mine and _is_repeatable(mine[batch]), batches)
        return [mine[batch] for batch in known]

    def interrupted(self, sink: str) -> Begun | None:
        """The batch after the newest decided one, if its plan is known and tasks of it may have
        committed by themselves. Batches that read nothing may lie between."""
        begun, following = self.begun, max(self.of_sink(sink), default=-1) + 1
        return begun if begun and begun.plan and begun.batch >= following else None

    def tombstones(self, sink: str, keep: int = DECISIONS_KEPT) -> list[tuple[bytes, None]]:
        """Records that make room: all rounds of all batches but the newest `keep`, and but those
        that a restore of the snapshot repeats. With 0, of all."""
        mine = self.of_sink(sink)
        old = sorted(mine)[: max(0, len(mine) - keep)]
        newest = max(_staged_batches(mine), default=None)
        if keep:  # what its target shows, if all newer ones had no rows, stays known
            old = [batch for batch in old if batch != newest]
        if self.snapshot is not None and keep:
            # From a gap on (snapshots were switched off) no restore can go: it is refused.
            repeated = {one.batch for one in self.since_snapshot(sink)}
            old = [batch for batch in old if batch not in repeated]
        return [
            (records.decision_key(sink, batch, round_), None)
            for batch in old
            for round_ in range(mine[batch].round + 1)
        ]


def _staged_batches(decisions: dict[int, Decision]) -> list[int]:
    return [b for b, one in decisions.items() if any(part.staged for part in one.participants)]


def _is_repeatable(decision: Decision) -> bool:
    # eo-kafka 0.1 recorded offsets only then, and no target
    return bool(decision.offsets) and (decision.repeatable or not decision.target)


def with_state(decision: Decision, state: DecisionState) -> Decision:
    """The same decision, moved on."""
    return replace(decision, state=state)


def without_participants(decision: Decision) -> Decision:
    """What became of the batch, and not of whom."""
    return replace(decision, participants=(), offsets=(), starts=(), source_ids=())


class Folding:
    """Applies records in order to `ledger`. Decisions wait for the end: most of a long log are
    taken away by a tombstone that stands behind them, as compaction takes them, and need not be
    decoded. Nothing else that a ledger says depends on them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: dict[int, tuple[bytes, bytes]] = {}  # in their order
        self._of_key: dict[bytes, list[int]] = {}
        self._count = 0

    def add(self, key: bytes, value: bytes | None) -> None:
        """The next record. Raises CorruptLedger."""
        if value is None or not key.startswith(records.DECISION):
            for number in self._of_key.pop(key, ()):
                del self._waiting[number]
            self._ledger.apply(key, value)
            return
        self._count += 1
        self._waiting[self._count] = key, value
        self._of_key.setdefault(key, []).append(self._count)

    def finish(self) -> None:
        """What still waits. Raises CorruptLedger."""
        self._of_key.clear()
        for number in list(self._waiting):
            self._ledger.apply(*self._waiting.pop(number))


def fold(found: Iterable[tuple[bytes, bytes | None]], ledger: Ledger | None = None) -> Ledger:
    """Apply records in order to `ledger`, or to an empty one."""
    ledger = ledger if ledger is not None else Ledger()
    folding = Folding(ledger)
    for key, value in found:
        folding.add(key, value)
    folding.finish()
    return ledger
