"""What travels between driver and tasks: the plan goes out, one report a task comes back.

Both are pickled by Spark between our own processes and never reach a topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eo_kafka.errors import LedgerError
from eo_kafka.transaction import Decision, DecisionState, Identity, Participant


@dataclass(frozen=True)
class Lost:
    """A decided batch of which some partitions committed and some never will."""

    decision: Decision
    missing: tuple[Participant, ...]


@dataclass(frozen=True)
class WritePlan:
    """What S1 found out, for the tasks of the next batch (which batch, S1 cannot know).

    `decisions` are the newest rounds the ledger keeps, by batch: all are DONE or VOID, but for
    the one in `lost`.
    """

    generation: int
    coordinator: Identity
    owner: str | None
    end_txn_version: int
    token_from: int
    decisions: dict[int, Decision] = field(default_factory=dict)
    lost: Lost | None = None

    def round_of(self, batch: int) -> int:
        """The round under which `batch` is written now."""
        known = self.decisions.get(batch)
        return known.round + 1 if known else 0

    def must_write(self, batch: int, partition: int) -> bool:
        """Whether the task of `partition` writes its rows, or only runs through them.

        Raises LedgerError for a batch older than the ledger remembers.
        """
        known = self.decisions.get(batch)
        if known is None:
            newest = max(self.decisions, default=-1)
            if batch < newest:
                raise LedgerError(
                    f"Batch {batch} is to be written again, but the job is at batch {newest} and "
                    f"its ledger no longer knows what became of {batch}: the checkpoint is older "
                    "than the ledger remembers. Nothing was written. Restore a newer checkpoint, "
                    "or start under a new 'jobName' if repeating its rows is acceptable."
                )
            return True
        if known.state is DecisionState.VOID:
            return True
        if self.lost is not None and self.lost.decision.batch == batch:
            return any(part.partition == partition for part in self.lost.missing)
        return False


@dataclass(frozen=True)
class TaskReport:
    """What one task did. `prepared` is None where it wrote nothing: it had no rows, or was told to
    run through them (`skipped`) because they are committed already."""

    partition: int
    batch: int
    round: int
    skipped: bool
    query_id: str
    generation: int
    end_txn_version: int
    token_from: int
    rows: int
    digest: str
    prepared: Participant | None
    missing: tuple[Participant, ...] = ()  # of an earlier round, to be replaced by this one
