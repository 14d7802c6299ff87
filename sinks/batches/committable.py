"""What travels between driver and tasks: the plan to them, a report back from each.

Both are pickled by Spark between our own processes and never reach a topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...core.errors import LedgerError
from ...core.process.moment import Moment
from ...core.transaction import Decision, DecisionState, Identity, Participant
from ..options import BATCH_WRITES


@dataclass(frozen=True)
class Torn:
    """A batch of which some partitions are committed, and others are not and never will be.

    Either it was decided, and the broker aborted `missing` of the decision's participants; or
    (`decided` is False) its one-phase tasks were interrupted: then `decision` is what the tokens
    add up to, its participants are all committed, and nobody knows what else there was.
    """

    decision: Decision
    missing: tuple[Participant, ...]
    decided: bool = True

    @property
    def committed(self) -> tuple[Participant, ...]:
        """The participants whose rows are visible."""
        missing = {*self.missing}
        return tuple(part for part in self.decision.participants if part not in missing)

    def shows(self, partition: int, rows: int, digest: str) -> bool:
        """Whether just these rows of the task of `partition` are visible."""
        content = (partition, rows, digest)
        return any((part.partition, part.rows, part.digest) == content for part in self.committed)

    def lacks(self, partition: int) -> bool:
        """Whether `partition` has to be staged again."""
        return any(part.partition == partition for part in self.missing)


@dataclass(frozen=True)
class WritePlan:
    """What S1 found out, for the tasks of the next batch (which batch, S1 cannot know).

    `decisions` are the newest rounds the ledger keeps, by batch: all are DONE or VOID, but for
    the one in `torn`. Most are without their participants, whom no task asks for.
    """

    generation: int
    coordinator: Identity
    owner: str | None
    end_txn_version: int
    token_from: int
    decisions: dict[int, Decision] = field(default_factory=dict)
    torn: Torn | None = None
    began: Moment | None = None  # before any task of the batch
    planned: Mapping[int, str] = field(default_factory=dict)  # where it ends (batch_identity.py)
    ledger_id: str = ""  # of the ledger's topic
    aborted: int = 0  # transactions that were open, and that nothing had decided

    def torn_at(self, batch: int) -> Torn | None:
        """What is left of an earlier run of `batch`, if it was interrupted half-way."""
        return self.torn if self.torn and self.torn.decision.batch == batch else None

    def round_of(self, batch: int) -> int:
        """The round under which `batch` is written now."""
        torn = self.torn_at(batch)
        known = torn.decision if torn else self.decisions.get(batch)
        return known.round + 1 if known else 0

    def must_write(self, batch: int, partition: int) -> bool:
        """Whether the task of `partition` writes its rows, or only runs through them. What it
        sends to topics it writes in every replay of a torn batch (replay.py).

        Raises LedgerError for a batch older than the ledger remembers.
        """
        torn = self.torn_at(batch)
        if torn is not None:
            return torn.lacks(partition)
        known = self.decisions.get(batch)
        if known is None:
            newest = max(self.decisions, default=-1)
            if batch < newest and (self.owner or "").startswith(BATCH_WRITES):
                raise LedgerError(self._lower_number(batch, newest))
            if batch < newest:
                raise LedgerError(
                    f"Batch {batch} runs again, but the job is at batch {newest} and its ledger "
                    f"has forgotten batch {batch}: the checkpoint is too old. Nothing was "
                    "written. A query without state goes on where the job is after 'eo-kafka job "
                    "redo JOB CHECKPOINT --bootstrap-servers ...'. Else restore a newer "
                    "checkpoint; or, if repeated rows are acceptable, start under a new 'jobName'."
                )
            return True
        return known.state is DecisionState.VOID

    def _lower_number(self, batch: int, newest: int) -> str:
        """Of a `batchId`, which somebody gave: there is no checkpoint that could be too old."""
        job, oldest = (self.owner or "").removeprefix(BATCH_WRITES), min(self.decisions)
        known = (
            f"The ledger has older batches, and not batch {batch}: it was not written, unless "
            "before a 'job reset'."
        )
        if batch < oldest:
            known = (
                f"The ledger remembers none before batch {oldest}: look whether the output has "
                f"batch {batch}."
            )
        return (
            f"The numbers of job '{job}' must rise, and its newest is {newest}. {known} Nothing "
            f"was written now. Rows that are not there yet get a 'batchId' above {newest}, or a "
            "'jobName' of their own."
        )


@dataclass(frozen=True)
class TaskReport:
    """What one task did. `participant` is None where it wrote nothing: it had no rows, or was told
    to run through them (`skipped`) because they are committed already. Its transaction is open,
    unless it is `committed` (one-phase)."""

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
    participant: Participant | None
    committed: bool = False
    torn: Torn | None = None  # from the plan; in partition 0's report only, it can be long
    checkpoint: str | None = None  # where Spark keeps it, as far as the task could see
    coordinator: Identity | None = None  # the plan's, as `began` and `planned`
    began: Moment | None = None
    planned: str | None = None
    token_until: int = 0  # the offset after its token's; 0 without one
    open_s: float = 0.0  # how long the task's transaction was, at S5, by the task's own clock
    size: int = 0  # bytes of the keys and values that it sent to topics
    aborted: int = 0  # the plan's
    run: str = ""  # another one with each start of the query; "" if the task was not told

    @property
    def prepared(self) -> Participant | None:
        """The transaction that waits for the decision, if there is one."""
        return None if self.committed else self.participant


def torn_of(reports: Iterable[TaskReport]) -> Torn | None:
    """What was left of an earlier run of the batch that the tasks report."""
    return next((report.torn for report in reports if report.torn), None)
