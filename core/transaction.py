"""The two-phase commit as data: participants, decisions, legal moves. No I/O.

Everything that sends a request asks this module what an answer means. Sources: Kafka's
`TransactionCoordinator.scala` (the comment table of EndTxn answers) and the measurements in
the project's protocol notes; the moves were attacked with an exhaustive model
(tests/models/test_commit_model.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum


class TransactionState(str, Enum):
    """What DescribeTransactions says of a transactional id (Kafka's own names)."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    MISSING = "Missing"  # ours: the coordinator does not know the id (never used, or expired)

    @property
    def is_completing(self) -> bool:
        """Whether the outcome is settled, and Kafka still writes the markers that say it."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


@dataclass(frozen=True)
class Identity:
    """One transaction: a transactional id and the (producer id, epoch) that opened it.

    The pair never covers two transactions, so an EndTxn for it can hit no other.
    """

    transactional_id: str
    producer_id: int
    epoch: int


# Of a producer id. Who takes the transactional id next gets another producer id with it; on Kafka 4
# it gets one, too, when a transaction ends that has this epoch, and Kafka tells no more how that
# ended. So none is begun with it: the id is taken once more.
LAST_EPOCH = 32_766
ALARM_MS = 900_000
NO_TRANSACTION = Identity("", -1, -1)  # of who took part, and has none that could be ended


@dataclass(frozen=True)
class Described:
    """A coordinator's answer about one transactional id. Times in ms of the broker's clock."""

    transactional_id: str
    state: TransactionState
    producer_id: int = -1
    epoch: int = -1
    timeout_ms: int = 0
    start_ms: int = -1
    partitions: frozenset[tuple[str, int]] = frozenset()

    @property
    def identity(self) -> Identity:
        """The transaction the coordinator has under this id now."""
        return Identity(self.transactional_id, self.producer_id, self.epoch)

    def is_open(self, identity: Identity) -> bool:
        """Whether exactly this transaction can still be ended."""
        return self.state is TransactionState.ONGOING and self.identity == identity

    def is_abort_of(self, identity: Identity, end_txn_version: int) -> bool:
        """Whether exactly this transaction, which is decided, was aborted: nobody commits it by
        another version of EndTxn. The next epoch is that of its abort, by version 5 or by Kafka; or
        of the next transaction, if an older version has committed this one."""
        same = self.epoch == identity.epoch or (
            end_txn_version >= 5 and self.epoch == identity.epoch + 1
        )
        is_it = same and self.producer_id == identity.producer_id
        return is_it and self.state is TransactionState.COMPLETE_ABORT

    def remaining_ms(self, now_ms: int) -> int:
        """Time until the broker may abort it. The clock starts at the first partition added."""
        return self.start_ms + self.timeout_ms - now_ms


@dataclass(frozen=True)
class Staged:
    """Rows of a task that wait beside their target, the map or table `place`, staged by task
    attempt `attempt`. Of a map: `chunks` entries of the job's staging map on the Hazelcast cluster
    with the id `home`. Of a table: `chunks` rows of the staging table, or in the prepared
    transaction, `home`."""

    place: str
    home: str
    attempt: int
    chunks: int


@dataclass(frozen=True)
class Participant:
    """What one task of a batch prepared, as it reported it (S5): a Kafka transaction, rows that are
    staged for a map or table, or both, of the same rows.

    `topics` are the names and ids of what its rows were written to: a topic that was deleted and
    made again has another id, and the rows are gone, whatever their token says.
    """

    partition: int
    round: int
    generation: int
    identity: Identity
    rows: int
    digest: str
    topics: tuple[tuple[str, str], ...] = ()
    staged: Staged | None = None

    @property
    def has_transaction(self) -> bool:
        """Whether there is one that can be ended."""
        return self.identity != NO_TRANSACTION

    @property
    def has_token(self) -> bool:
        """Whether a token says what became of it; rows that are only staged have none."""
        return self.staged is None or self.has_transaction


class DecisionState(str, Enum):
    """What partition 0 of the ledger says of a batch."""

    DECIDED = "DECIDED"  # every participant shall be committed
    DONE = "DONE"  # every participant's token is visible
    VOID = "VOID"  # none of them ever committed: as if never decided


# From (None: nothing written) to what may stand next. A decision of a later round repeats the
# participants that committed and replaces those that were lost.
LEGAL: dict[DecisionState | None, frozenset[DecisionState]] = {
    None: frozenset({DecisionState.DECIDED, DecisionState.DONE}),
    DecisionState.DECIDED: frozenset(DecisionState),
    DecisionState.VOID: frozenset(DecisionState),
    DecisionState.DONE: frozenset({DecisionState.DONE}),
}


class IllegalMove(Exception):
    """A ledger record that no legal history can contain."""


@dataclass(frozen=True)
class Begun:
    """The batch whose tasks commit by themselves, as Spark planned it: the text of `offsets/N` in
    the checkpoint, "" if that is not known. Where tasks have committed, only the same records
    complete the batch, and the checkpoint may be lost."""

    batch: int
    plan: str

    @property
    def ends(self) -> tuple[str, ...]:
        """Where its sources end, a line each."""
        return tuple(self.plan.split("\n")[2:])


@dataclass(frozen=True)
class Decision:
    """A batch's fate. Its tokens stand in the sink's token partition, from `token_from` on and
    before `token_until` (0: not known, as in ledgers of eo-kafka 0.1).

    What the batch was, so that another one of the same number is never taken for it: `starts` and
    `offsets` are where its sources began and ended, a line for each as Spark wrote it (none where
    there is no checkpoint to read them from, nor in ledgers of eo-kafka 0.1); `source_ids` the
    topics among them and their ids, as far as the sink's cluster has them; `target` what the rows
    went to; `watermark_ms` the watermark that Spark gave it (0: none yet; None: not known);
    `time_ms` the time of day that Spark gave it (None: not known).
    `repeatable`: it was decided with snapshots on, so that a restore of an older one may
    repeat it from these offsets. `accepted`: a person has said that it counts as written, whatever
    a replay brings.
    """

    sink: str
    batch: int
    round: int
    state: DecisionState
    generation: int
    end_txn_version: int
    token_partition: int
    token_from: int
    participants: tuple[Participant, ...]
    offsets: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    source_ids: tuple[tuple[str, str], ...] = ()
    target: str = ""
    repeatable: bool = False
    accepted: bool = False
    token_until: int = 0
    watermark_ms: int | None = None
    time_ms: int | None = None

    @property
    def rows(self) -> int:
        """Of all participants together."""
        return sum(part.rows for part in self.participants)

    def check_follows(self, previous: Decision | None) -> None:
        """Raise IllegalMove unless this record may come after `previous` in the ledger."""
        before = previous.state if previous else None
        legal = self.state in LEGAL[before]
        if previous and legal and self != previous:  # equal: written again after a lost answer
            later = self.round > previous.round and before is not DecisionState.DONE
            moves_on = before is DecisionState.DECIDED and self.state is not before
            accepts = self == replace(previous, accepted=True)
            # A later round may begin with its last state: compaction keeps only that.
            legal = later or accepts or (moves_on and self.round == previous.round)
        if not legal:
            raise IllegalMove(
                f"batch {self.batch}: {self.state.value} of round {self.round} after "
                + (f"{previous.state.value} of round {previous.round}" if previous else "nothing")
            )


class EndTxnAnswer(Enum):
    """What to do after an EndTxn was answered."""

    ENDED = "the outcome asked for is durable with the coordinator"
    RETRY = "ask again"
    LOOK = "this transaction has ended some way; its token says which"
    REFUSED = "the cluster will not do it: a person must act"


NO_ANSWER = "NETWORK"  # ours, beside Kafka's error names: none arrived
_ANSWERS = {
    "NONE": EndTxnAnswer.ENDED,
    "CONCURRENT_TRANSACTIONS": EndTxnAnswer.RETRY,
    "COORDINATOR_LOAD_IN_PROGRESS": EndTxnAnswer.RETRY,
    "COORDINATOR_NOT_AVAILABLE": EndTxnAnswer.RETRY,
    "NOT_COORDINATOR": EndTxnAnswer.RETRY,
    "REQUEST_TIMED_OUT": EndTxnAnswer.RETRY,
    NO_ANSWER: EndTxnAnswer.RETRY,
    "PRODUCER_FENCED": EndTxnAnswer.LOOK,
    "INVALID_PRODUCER_EPOCH": EndTxnAnswer.LOOK,
    "INVALID_TXN_STATE": EndTxnAnswer.LOOK,
    "INVALID_PRODUCER_ID_MAPPING": EndTxnAnswer.LOOK,
    "TRANSACTIONAL_ID_NOT_FOUND": EndTxnAnswer.LOOK,
}


def end_txn_answer(error: str) -> EndTxnAnswer:
    """Classify an EndTxn error by its Kafka name; an unknown one is REFUSED, never guessed."""
    return _ANSWERS.get(error, EndTxnAnswer.REFUSED)


@dataclass(frozen=True)
class Token:
    """A record in a data transaction: that it is visible says that the transaction committed."""

    sink: str
    partition: int
    batch: int
    round: int
    generation: int
    rows: int
    digest: str
    # Where the rows went, with the topics' ids: a task that commits by itself has no decision that
    # says so
    topics: tuple[tuple[str, str], ...] = ()

    def answers(self, participant: Participant, batch: int) -> bool:
        """Whether this token is the one `participant` wrote for `batch`."""
        return self.said == _said_by(participant, batch)

    @property
    def said(self) -> tuple[int, int, int, int, str]:
        """By what a token answers for a participant."""
        return self.batch, self.partition, self.round, self.generation, self.digest


def _said_by(one: Participant, batch: int) -> tuple[int, int, int, int, str]:
    return batch, one.partition, one.round, one.generation, one.digest


def with_ids(recorded: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of topics as they were recorded, those whose id is known. Before, eo-kafka wrote "None" where
    brokers knew no ids; once they do, the topic has one, and is the same."""
    return {name: topic_id for name, topic_id in recorded if topic_id != "None"}


def gone_topics(written: Iterable[Participant | Token], topic_ids: Mapping[str, str]) -> list[str]:
    """The topics that rows went to and that are not there any more, or were made again: `topic_ids`
    are the ids of what is there."""
    gone = {at for one in written for at in with_ids(one.topics).items() - topic_ids.items()}
    return sorted({name for name, _ in gone})


def without_token(decision: Decision, tokens: list[Token]) -> tuple[Participant, ...]:
    """The participants of `decision` that have a token, and no visible one speaks for them."""
    said = {token.said for token in tokens}  # a look at each token by each would be quadratic
    return tuple(
        participant
        for participant in decision.participants
        if participant.has_token and _said_by(participant, decision.batch) not in said
    )


def alarm_ms(timeout_ms: int) -> int:
    """After how long somebody should know that a transaction is open, however long it may be."""
    return min(ALARM_MS, timeout_ms // 2)
