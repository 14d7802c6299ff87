"""What a batch is beyond its number: its sources' begin and end, its watermark, and its target.

A batch that the ledger has as written is skipped. Its number alone does not say that it is the same
batch: a checkpoint may have been restored from an older copy, or lost its newest files; one job's
name may be used for two writes. To skip such a batch would lose its records silently. So each
decision records what its batch was, and a batch is compared before it is skipped or completed
(batch_checks.py).

Equal offsets are proof enough for sources that read the same records again: eo-kafka's, and Spark's
own for Kafka; rows may then differ (`rand()`, the time of day). Where there are no such offsets, as
with a file source or a `batchId` given by hand, the rows themselves are compared by their digest.

Runs on the driver, in `commit(N)`. The checkpoint is read once a batch: two small files.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...core.errors import CheckpointError
from ...core.transaction import Decision
from ...state.ledger.ledger import Ledger
from ...state.snapshots import operators
from ...state.snapshots.batch_ends import begins_of, ids_of, topics_of
from ...state.snapshots.checkpoint import Checkpoint, open_checkpoint
from ...state.snapshots.offset_log import (
    NOT_PLANNED,
    PlannedBatch,
    is_repartition,
    parse,
    plan_of,
    planned_batch,
)
from ...state.snapshots.processing_time import described_in, operator_by_the_clock
from ..options import SinkOptions
from .committable import TaskReport

# Their ids come with each commit's look: of more topics, the answer would cost more than the look.
SOURCE_TOPICS_MAX = 100
Plans = Callable[[int], str]


@dataclass(frozen=True)
class BatchIdentity:
    """What the batch that is to be committed is. No line is known where there is no checkpoint."""

    batch: int
    target: str
    starts: tuple[str, ...] = ()
    planned: PlannedBatch = NOT_PLANNED
    checkpoint: Checkpoint | None = None

    @classmethod
    def of(cls, options: SinkOptions, first: TaskReport) -> BatchIdentity:
        """As the checkpoint says, if the report of the first task knows where it is. Raises
        CheckpointError if it cannot be read, or is not the one that the batch was planned by."""
        batch, target = first.batch, options.target
        if first.checkpoint is None:
            return cls(batch, target)
        checkpoint = open_checkpoint(first.checkpoint)
        mine = planned_batch(checkpoint, batch)
        if first.planned and first.planned != _digest(mine.ends):
            raise CheckpointError(
                f"offsets/{batch} of checkpoint '{checkpoint.url}' has changed since the batch "
                "was planned: somebody replaced the checkpoint while this query runs, or a "
                "second driver works on it. Nothing was decided. Stop all drivers and start "
                "one."
            )
        if batch == 0:
            return cls(batch, target, begins_of(mine.ends), mine, checkpoint)
        before = planned_batch(checkpoint, batch - 1, NOT_PLANNED)  # Spark may have purged it
        return cls(batch, target, before.ends, mine, checkpoint)

    @property
    def ends(self) -> tuple[str, ...]:
        """Where its sources end, a line each."""
        return self.planned.ends

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics that it read, of sources that say them."""
        return ids_of(self.ends)

    @property
    def keeps_state(self) -> bool:
        """Whether the query has state, as far as its checkpoint is known."""
        known = self.checkpoint
        return known is not None and bool(operators.descriptions(known.paths()))

    @property
    def operator_by_the_clock(self) -> str | None:
        """An operator of the query whose state may depend on the time of day, if there is one."""
        return operator_by_the_clock(described_in(self.checkpoint)) if self.checkpoint else None

    @property
    def topics_asked_for(self) -> set[str]:
        """The topics that its sources read, unless they are too many to ask for in each batch."""
        found = {topic for line in self.ends for topic in topics_of(line)}
        return found if len(found) <= SOURCE_TOPICS_MAX else set()

    def sources(
        self, options: SinkOptions, ledger: Ledger, seen: Mapping[str, str]
    ) -> list[tuple[str, str]]:
        """The ids of those topics: as `seen` now, else as the decision before has them."""
        before = decision_before(options, self.batch, ledger)
        known = {**dict(before.source_ids if before else ()), **seen}
        return [(name, known[name]) for name in self.topics_asked_for & known.keys()]

    def on(
        self, decision: Decision, source_ids: Sequence[tuple[str, str]], *, repeatable: bool
    ) -> Decision:
        """The decision, with what its batch is."""
        return replace(
            decision,
            repeatable=repeatable,
            offsets=self.ends,
            starts=self.starts,
            target=self.target,
            watermark_ms=self.planned.watermark_ms,
            time_ms=self.planned.time_ms,
            source_ids=tuple(sorted(source_ids)),
        )


def planned(options: SinkOptions, ledger: Ledger, plans: Plans) -> dict[int, str]:
    """S1: a digest of where the batch ends that is about to run, by its number: the next, or the
    newest once more. At S6 the file may be another driver's, on a checkpoint that was restored in
    place, and would say of this driver's rows what they are not (the model found that)."""
    newest = max(ledger.of_sink(options.sink), default=-1)
    which = {newest, newest + 1, next_batch(options, ledger, plans)} - {-1}
    found = {n: parse(plans(n)).ends for n in which}
    return {batch: _digest(ends) for batch, ends in found.items() if ends}


def checkpoint_of(options: SinkOptions) -> Checkpoint | None:
    """The query's, as far as its options say where that is."""
    return open_checkpoint(options.checkpoint) if options.checkpoint else None


def plans_of(options: SinkOptions) -> Plans:
    """`plans_in` the query's checkpoint, as far as that is known."""
    checkpoint = checkpoint_of(options)
    return plans_in(checkpoint) if checkpoint is not None else lambda _: ""


def plans_in(checkpoint: Checkpoint) -> Plans:
    """The text that Spark planned a batch with, '' if it has not; each is read once. The function
    raises CheckpointError."""
    return functools.cache(lambda batch: plan_of(checkpoint, batch, ""))


def next_batch(options: SinkOptions, ledger: Ledger, plans: Plans) -> int:
    """S1: the number of the batch after the newest decided one. Spark's repartition of state is a
    batch without a decision: it is passed, if a later one is planned. Raises CheckpointError."""
    mine = ledger.of_sink(options.sink)
    batch = max(mine, default=-1) + 1
    ends = mine[batch - 1].offsets if mine else ()
    while was_repartition(plans, batch, ends) and plans(batch + 1):
        batch += 1
    return batch


def was_repartition(plans: Plans, batch: int, ends: Sequence[str]) -> bool:
    """Whether a batch after one that ended at `ends` was Spark's repartition of state."""
    before = replace(parse(plans(batch - 1)), ends=tuple(ends))
    return is_repartition(before, parse(plans(batch)))


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def decision_before(options: SinkOptions, batch: int, ledger: Ledger) -> Decision | None:
    """The newest decision of a batch before this one."""
    mine = ledger.of_sink(options.sink)
    return mine.get(max((known for known in mine if known < batch), default=-1))
