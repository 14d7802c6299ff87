"""`commit=idempotent` on executors: each task commits its own rows, none twice.

What makes that safe, step by step (S2 to S5 are those of the two-phase commit):

S1  After its fence the driver waits until no token is open, and reads them. A batch of which some
    tasks have committed without a decision is *torn*; its replay goes through two_phase.py, so that
    nothing of it becomes visible unless what is visible already comes back equal.
    A token names the topics of its rows by their ids: where such a topic was deleted, or made
    again, the rows went with it, and the replay writes them again.
S2  All attempts of a partition share one transactional id: taking it ends the attempt before. Then
    one looks whether an earlier attempt had committed: its token would be visible.
S3  When the rows end, one looks whether the JVM is still there: it may have failed, and the rest of
    the rows is lost with it. Spark ends no worker then, and runs the task again.
S5  With everything flushed, the token too, read the log up to that token, and only then commit.
    Either the barrier of a newer driver stands before it, a record that S1 writes with its
    generation: then this attempt aborts. Or the token stands before the barrier, and the newer
    driver's S1 waits for it. (Before that one looks at the coordinator, as in two_phase.py; but
    what a broker says of it that is cut off may be old.)
S6  The driver writes DONE for all tasks at once, if every topic of their rows is still there, and
    every visible token is one of theirs: an attempt that committed may have got lost, and the next
    one may have had no rows, and so no need to look.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from ...clients.kafka import control_plane
from ...core.crash_points import crash_point
from ...core.errors import WriteFailed
from ...core.process import worker_socket
from ...core.transaction import (
    Described,
    Identity,
    Participant,
    Token,
    TransactionState,
    gone_topics,
)
from ...state.ledger.barrier import newest_generation, write_barrier
from ...state.ledger.owner import check_owner
from ...state.ledger.settled_tokens import read_tokens
from ...state.ledger.topics import TOKEN_PARTITION
from ..batches import batch_checks
from ..batches.committable import TaskReport, WritePlan
from ..options import SinkOptions
from ..rows.fast import row_digest
from ..transactions.earlier_ends import EarlierEnds
from ..transactions.stragglers import abort_stragglers, end_all
from ..transactions.task_transaction import TaskTransaction
from . import two_phase
from .two_phase import TaskIdentity

if TYPE_CHECKING:
    import pyarrow as pa

# An attempt that died between its token and its commit hides the tokens behind it.
STRAGGLERS_AFTER_S = 10.0


def write(
    options: SinkOptions, plan: WritePlan, task: TaskIdentity, batches: Iterator[pa.RecordBatch]
) -> TaskReport:
    """Write and commit one partition's rows, or run through them if they are committed.

    Runs on an executor, once an attempt. Raises WriteFailed (Spark tries again), Fenced,
    ForeignLedger, OutcomeUnknown, BatchMismatch.
    """
    if plan.torn_at(task.batch) or not plan.must_write(task.batch, task.partition):
        return two_phase.write(options, plan, task, batches)
    check_owner(options, plan.owner, task.query_id)
    batch_checks.check_torn(options, task.batch, plan.torn)
    newest = max(plan.decisions, default=-1)
    batch_checks.check_next(options, task.batch, newest, task.checkpoint, plan.planned)
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return two_phase.report(plan, task, 0, "")
    attempt = _Attempt(options, plan, task)
    try:
        return attempt.write(chain([first], rows))
    except BaseException:
        attempt.transaction.abort()
        raise


class _Attempt:
    """One attempt of a task that has rows."""

    def __init__(self, options: SinkOptions, plan: WritePlan, task: TaskIdentity) -> None:
        self._options, self._plan, self._task = options, plan, task
        self._id = options.ids.task(options.sink, task.partition, plan.generation, 0)
        self._control = control_plane.shared(options.kafka)
        self._before: Described | None = None
        self.transaction = TaskTransaction(
            options,
            [self._id],
            task.name,
            self._before_open,
            lambda: two_phase.check_still_wanted(options, plan, task),
            EarlierEnds(
                self._control,
                options.ids,
                options.ledger_topic,
                is_usual=self._is_of_older_batch,
                raises_epoch=False,
            ),
        )

    def _before_open(self, name: str) -> Described:
        found = two_phase.check_not_replaced(self._options, self._plan, self._task, name)
        if found.state is TransactionState.ONGOING:
            # Whoever takes the id ends it, too, and Kafka would not tell how: it may be committing
            end_all(self._control, [found.identity], self._plan.end_txn_version)
            found = two_phase.check_not_replaced(self._options, self._plan, self._task, name)
        self._before = found
        return found

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        self.transaction.open()
        token = None if self._is_first() else self._committed_token()
        if token is not None:
            self.transaction.abort()
            return self._run_through(token, batches)
        for batch in batches:
            self.transaction.send(batch)
            crash_point("S3.while_writing")
        self._check_all_came()
        participant = two_phase.prepare(self.transaction, self._options, self._plan, self._task)
        self._check_newest(self.transaction.ours_until)
        crash_point("S5.prepared")
        self.transaction.commit()
        crash_point("one-phase.committed")
        return self._report(participant, self.transaction.size)

    def _check_all_came(self) -> None:
        if not worker_socket.jvm_holds_on():
            raise WriteFailed(
                f"{self._task.name}: Spark ended this attempt before all of its rows had come. "
                "Nothing of it is committed. Spark runs the task again, or says why not."
            )

    def _check_newest(self, until: int) -> None:
        """Raise Fenced if a newer driver has looked, or will, for the tokens before `until`, where
        a record of ours ends."""
        plan = self._plan
        between = plan.token_from, until
        if newest_generation(self._options, plan.ledger_id, *between) > plan.generation:
            raise two_phase.fenced(self._options, self._task)

    def _end_stragglers(self) -> None:
        _, ledger = self._options.job_and_ledger
        abort_stragglers(
            self._control,
            self._options.ids,
            self._plan.coordinator,
            (),
            self._plan.end_txn_version,
            pinning=(ledger, TOKEN_PARTITION),
            # What is listed may be a newer driver's, and its coordinator's broker cut off from us.
            before_end=lambda: self._check_newest(write_barrier(self._options)),
        )

    def _is_first(self) -> bool:
        """Whether it is certain, without asking for tokens, that no attempt of this generation had
        the id before: the last transaction under it is one that a decision names, or there was
        none; and nobody came between that look and our InitProducerId."""
        before, mine = self._before, self.transaction.identity
        if before is None or mine is None:
            return False
        if before.state is TransactionState.MISSING:
            return mine.epoch == 0
        expected = Identity(self._id, before.producer_id, before.epoch + 1)
        return mine == expected and self._is_of_older_batch(before)

    def _is_of_older_batch(self, found: Described) -> bool:
        """Or of none."""
        return found.state is TransactionState.MISSING or any(
            part.identity == found.identity
            for decision in self._plan.decisions.values()
            for part in decision.participants
        )

    def _committed_token(self) -> Token | None:
        """The token of an earlier attempt of this task whose transaction committed."""
        plan, task = self._plan, self._task
        # Taking the id has ended the attempts before: their tokens stand before this record of
        # ours, whatever end of the log a leader tells that is cut off.
        barrier = write_barrier(self._options)
        tokens = read_tokens(
            self._options,
            self._control,
            TOKEN_PARTITION,
            (plan.token_from, barrier),
            # A task that lives and is hit by this fails, and its next attempt looks for its token.
            self._end_stragglers,
            STRAGGLERS_AFTER_S,
        )
        wanted = (task.partition, task.batch, plan.round_of(task.batch), plan.generation)
        mine = (
            token
            for token in tokens
            if (token.partition, token.batch, token.round, token.generation) == wanted
        )
        found = next(mine, None)
        if found is not None:
            self._check_still_there(found)
        return found

    def _check_still_there(self, token: Token) -> None:
        there = self._control.topic_ids(name for name, _ in token.topics)
        if gone := gone_topics([token], there):
            raise WriteFailed(
                f"{self._task.name}: an earlier attempt committed {token.rows} rows, and {gone} "
                "were deleted since, or made again. Start the query again: it writes what is gone."
            )

    def _run_through(self, token: Token, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        rows, digest = row_digest(batches, self._options.topic)
        if (rows, digest) != (token.rows, token.digest):
            raise WriteFailed(
                f"{self._task.name}: an earlier attempt committed {token.rows} rows, and this one "
                f"brings {rows} that are not the same. Nothing was written now. "
                "commit=idempotent is for queries that give the same rows to the same partitions "
                "each time; use commit=two-phase for this one."
            )
        return self._report(
            Participant(
                partition=token.partition,
                round=token.round,
                generation=token.generation,
                identity=self._before.identity if self._before else Identity(self._id, -1, -1),
                rows=rows,
                digest=digest,
                topics=token.topics,
            )
        )

    def _report(self, participant: Participant, size: int = 0) -> TaskReport:
        return two_phase.report(
            self._plan,
            self._task,
            participant.rows,
            participant.digest,
            participant,
            committed=True,
            size=size,
        )
