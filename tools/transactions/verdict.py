"""What ledger and token say of a transaction, and what an operator may do with it. No I/O.

The rules rest on the order of looking: transactions are listed first, the ledger is read after.
A generation that had a task by the time of the list is then in the ledger, so a transaction whose
generation slot is not the newest generation's belongs to an older one, which nobody can decide any
more (docs/design.md, "What S1 may abort is settled by order").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from ...clients.kafka.partition_transactions import Missing, Open
from ...clients.kafka.transactional_id import GENERATION_SLOTS, IdParts, TaskParts, parse_id
from ...core.transaction import (
    Decision,
    DecisionState,
    Described,
    Participant,
    Token,
    TransactionState,
    alarm_ms,
    without_token,
)
from ...state.ledger.job_topics import LEDGER_NAME
from ...state.ledger.ledger import Ledger

# The broker looks for transactions that timed out every ten seconds by default.
OVERDUE_MS = 60_000
OPEN_STATES = frozenset(
    {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
        TransactionState.PREPARE_EPOCH_FENCE,
    }
)


_AS_WHOM = (
    "Ask again as a principal that may Describe all transactional ids (TransactionalId '*'), topic "
    "'__transaction_state' and the cluster, while all brokers are up"
)


class Standing(Enum):
    """What the ledger says of a transaction."""

    DECIDED = "decided"  # to be committed
    SETTLED = "settled"  # of a batch that is DONE or VOID
    CURRENT = "not decided"  # of the newest generation: its driver may be about to decide
    OLDER = "not decided, stale"  # of an older generation: nobody can decide it any more
    COORDINATOR = "coordinator"
    NO_LEDGER = "no ledger"  # a batch save(), a ledger of another name, or one that was emptied
    FOREIGN = "not ours"
    NOT_SEEN = "not known"  # no coordinator told whose it is, and may have been kept from it


class TokenState(Enum):
    """Whether a `read_committed` reader sees the transaction's token, and with it its rows."""

    VISIBLE = "visible"
    NOT_VISIBLE = "not visible"
    OPEN = "still open"
    HIDDEN = "hidden"  # behind other transactions that are open
    LOST = "unknown: tokens are lost"
    NONE = "none"  # no decision names the transaction, and it is not open


@dataclass(frozen=True)
class JobLedger:
    """A job's ledger up to its last stable offset, and the visible tokens of its DECIDED batches.

    `tokens_stable`: no transaction is open on their partition; `tokens_lost`: some are gone.
    """

    topic: str
    job: str
    ledger: Ledger
    tokens: Sequence[Token] = ()
    tokens_stable: bool = True
    tokens_lost: bool = False

    @cached_property
    def named(self) -> Mapping[str, Sequence[tuple[Decision, Participant]]]:
        """What decisions say of a transactional id, oldest first."""
        found = defaultdict(list)
        for decision in self.ledger.decisions.values():
            for participant in decision.participants:
                found[participant.identity.transactional_id].append((decision, participant))
        return found

    @cached_property
    def not_visible(self) -> frozenset[tuple[str, int, Participant]]:
        """Participants of decided batches that have no visible token: sink, batch, and they."""
        tokens = list(self.tokens)
        return frozenset(
            (decision.sink, decision.batch, participant)
            for decision in self.ledger.decisions.values()
            if decision.state is DecisionState.DECIDED
            for participant in without_token(decision, tokens)
        )


@dataclass(frozen=True)
class Judged:
    """A transaction with all that is known about it. `hung`: where it is open, while its
    coordinator does not know that (it will never be ended by itself), and `ended` how it did, as
    far as that is known. `not_all`: why its id may be one that this principal does not see."""

    described: Described
    standing: Standing
    parts: IdParts | None = None
    job: JobLedger | None = None
    decision: Decision | None = None
    participant: Participant | None = None
    token: TokenState = TokenState.NONE
    hung: tuple[Open, ...] = ()
    ended: Missing | None = None
    not_all: str = ""

    @property
    def is_open(self) -> bool:
        """Whether readers of its partitions wait for it."""
        return self.described.state in OPEN_STATES or bool(self.hung)

    def open_for_ms(self, now_ms: int) -> int:
        """For how long readers have waited for it, by two machines' clocks; 0 if they do not."""
        start = self.described.start_ms
        return now_ms - start if self.is_open and start > 0 else 0

    def needs_attention(self, now_ms: int) -> str | None:
        """Why somebody must act, or None. A query that runs passes through none of this for longer
        than its commit takes."""
        if self.not_all:
            return (
                f"open, and no coordinator told whose it is: {self.not_all}. It may be alive, or "
                f"of a batch that is decided. Or it hangs, and never times out. {_AS_WHOM}"
            )
        if self.hung:
            return self._hung()
        if self.standing is Standing.DECIDED and self.token is TokenState.NOT_VISIBLE:
            return "decided, but Kafka aborted it: the next start of the query writes it again"
        if self.token is TokenState.LOST:
            return "decided, and its ledger has lost tokens: start the query, which says what to do"
        return self._open_too_long(now_ms) if self.is_open else None

    def _hung(self) -> str:
        (topic, *_) = self.hung[0]
        if self.ended is None and self.parts is None:
            return (
                "hung: its coordinator does not know that it is open, so it never times out. If "
                f"its rows are not wanted, 'eo-kafka txn abort --topic {topic} --force' ends it"
            )
        if self.ended is None:
            return (
                "hung: it has ended, and Kafka has not written that here (KAFKA-20734). Whether it "
                "was committed is not known any more: docs/troubleshooting.md says how to end it"
            )
        was, word = ("committed", "commit") if self.ended.commit else ("aborted", "abort")
        command = f"'eo-kafka txn {word} --topic {topic}"
        return f"hung: it was {was}, and Kafka has not written that here (KAFKA-20734): " + (
            f"the next start of its query does it, or {command}'"
            if self.parts
            else f"{command} --force' does it. So says its coordinator of its id's newest one"
        )

    def _open_too_long(self, now_ms: int) -> str | None:
        left = self.described.remaining_ms(now_ms)
        if left < -OVERDUE_MS:
            return "its timeout is over and the broker has not aborted it"
        if self.standing is Standing.DECIDED:
            return "decided and not committed yet: start the query, or commit it"
        if self.standing is Standing.OLDER:
            return "left over: it holds up readers until it is aborted or times out"
        if self.open_for_ms(now_ms) > alarm_ms(self.described.timeout_ms):
            return "open for more than half its timeout, or 15 minutes, and not decided"
        return None


def judge(described: Described, job: JobLedger | None, *, elsewhere: bool = False) -> Judged:
    """What `job`'s ledger, read after the transaction was described, says of it; `job` None where
    no ledger was found. `elsewhere`: its driver has written tokens into another ledger."""
    parts = parse_id(described.transactional_id)
    if parts is None:
        return Judged(described, Standing.FOREIGN)
    if job is None:
        return Judged(described, Standing.NO_LEDGER, parts)
    if parts.task is None:
        return Judged(described, Standing.COORDINATOR, parts, job)
    if not _may_decide(described, parts.task, job, elsewhere):
        return Judged(described, Standing.NO_LEDGER, parts)
    for decision, participant in job.named.get(described.transactional_id, ()):
        if _covers(participant, described):
            return _named(described, parts, job, decision, participant)
    newest = job.ledger.generation % GENERATION_SLOTS
    standing = Standing.CURRENT if parts.task.generation_slot == newest else Standing.OLDER
    token = TokenState.OPEN if described.state in OPEN_STATES else TokenState.NONE
    return Judged(described, standing, parts, job, token=token)


def _may_decide(described: Described, task: TaskParts, job: JobLedger, elsewhere: bool) -> bool:
    """Whether the ledger can be the one that the task's driver writes. It has the generation of
    every task that was listed before it was read: one that has none of the task's slot was emptied,
    or is another. And a token says where the task's ledger is."""
    topics = {topic for topic, _ in described.partitions}
    elsewhere &= job.topic not in topics
    elsewhere |= any(LEDGER_NAME.fullmatch(topic) for topic in topics - {job.topic})
    return job.ledger.generation >= max(1, task.generation_slot) and not elsewhere


def replaced(job: JobLedger, decision: Decision, participant: Participant) -> Judged:
    """A decided transaction that is the last of its id no more: it has ended some way."""
    gone = Described(
        participant.identity.transactional_id,
        TransactionState.MISSING,
        participant.identity.producer_id,
        participant.identity.epoch,
    )
    return _named(gone, parse_id(gone.transactional_id), job, decision, participant)


def _covers(participant: Participant, described: Described) -> bool:
    """Whether the coordinator still has this very transaction under its id. Version 5 of EndTxn
    raises the epoch by one while it ends a transaction."""
    mine = participant.identity
    ending = described.state is not TransactionState.ONGOING
    return described.producer_id == mine.producer_id and (
        described.epoch == mine.epoch or (ending and described.epoch == mine.epoch + 1)
    )


def _named(
    described: Described,
    parts: IdParts | None,
    job: JobLedger,
    decision: Decision,
    participant: Participant,
) -> Judged:
    decided = decision.state is DecisionState.DECIDED
    return Judged(
        described,
        Standing.DECIDED if decided else Standing.SETTLED,
        parts,
        job,
        decision,
        participant,
        _token(described, job, decision, participant),
    )


def _token(
    described: Described, job: JobLedger, decision: Decision, participant: Participant
) -> TokenState:
    if decision.state is not DecisionState.DECIDED:  # DONE says that it was visible
        done = decision.state is DecisionState.DONE
        return TokenState.VISIBLE if done else TokenState.NOT_VISIBLE
    if (decision.sink, decision.batch, participant) not in job.not_visible:
        return TokenState.VISIBLE
    if described.state in OPEN_STATES:
        return TokenState.OPEN
    aborted = described.state is TransactionState.COMPLETE_ABORT
    if not (aborted or job.tokens_stable):
        return TokenState.HIDDEN
    if described.state is TransactionState.COMPLETE_COMMIT:
        return TokenState.VISIBLE  # its rows are: only its token is lost
    return TokenState.LOST if job.tokens_lost and not aborted else TokenState.NOT_VISIBLE


def hung_refusal(judged: Judged, commit: bool, force: bool) -> str | None:
    """Why the end of a transaction that hangs is not written; None if it may be. What was committed
    is never aborted, nor the other way round."""
    if judged.not_all:  # not with --force: nobody would hear of it if decided rows were lost
        return (
            f"{judged.not_all}. So it may be alive, or of a batch that is decided: its rows would "
            f"be lost. {_AS_WHOM}"
        )
    ended = judged.ended
    if ended is not None and ended.commit is not commit:
        other = ("committed", "commit") if ended.commit else ("aborted", "abort")
        return "it was {}, which cannot be undone: 'txn {}' writes its end".format(*other)
    if force or (ended is not None and judged.parts is not None):
        return None
    if judged.parts is None:
        return "it is another program's, and only that one knows whether it is complete"
    return (
        "whether it was committed is not known any more. Find out whether its rows are wanted, as "
        "docs/troubleshooting.md says; then --force"
    )


def commit_refusal(judged: Judged) -> str | None:
    """Why this transaction may not be committed without --force; None if it may."""
    if judged.standing is Standing.DECIDED:
        return None
    reasons = {
        Standing.SETTLED: "its batch is settled, there is nothing left to commit",
        Standing.CURRENT: "no decision names it: its rows would be repeated by the batch's replay",
        Standing.OLDER: "no decision names it: its rows have been, or will be, written again",
        Standing.COORDINATOR: "a half-written decision must not become visible",
        Standing.NO_LEDGER: "no ledger was found that decides about it (name it with --job and "
        "--ledger-topic, if the job has one of another name)",
        Standing.FOREIGN: "it belongs to another program, and only that one knows whether it "
        "is complete",
    }
    return reasons[judged.standing]


def abort_refusal(judged: Judged, yes: bool) -> str | None:
    """Why this transaction may not be aborted without --force, or, where `yes` is all that is
    missing, without --yes; None if it may."""
    if judged.standing is Standing.OLDER:
        return None
    if judged.standing in (Standing.CURRENT, Standing.COORDINATOR):
        return None if yes else _NEEDS_YES[judged.standing]
    reasons = {
        Standing.DECIDED: "its batch is decided: readers will see part of it until the query is "
        "started again, and lose it for good if the replay's rows differ",
        Standing.SETTLED: "its batch is settled",
        Standing.NO_LEDGER: "no ledger was found that could have decided it, so nobody knows "
        "whether it is decided (name it with --job and --ledger-topic); a batch save() has none, "
        "and fails if this is aborted",
        Standing.FOREIGN: "it is another program's",
    }
    return reasons[judged.standing]


_NEEDS_YES = {
    Standing.CURRENT: "its driver may be alive and about to decide. It is safe, nothing is lost or "
    "repeated, but a running query stops and its next start writes the batch again: --yes to do it",
    Standing.COORDINATOR: "a driver may be writing to the ledger in it. It is safe, nothing in it "
    "counts yet, but a running driver has to write it again: --yes to do it",
}
