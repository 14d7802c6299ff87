"""S7: ends every participant of a decision, and learns each outcome from its token.

Used by the commit of a batch and by the recovery of one; it is safe to repeat, by anybody, because
an EndTxn names a (producer id, epoch) that never covers two transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.control_requests import Look, TopicPartition
from ...core.crash_points import armed, crash_point
from ...core.errors import (
    CorruptLedger,
    EnvironmentRefused,
    EoKafkaError,
    LedgerError,
    OutcomeUnknown,
)
from ...core.transaction import (
    Decision,
    Described,
    EndTxnAnswer,
    Identity,
    Participant,
    Token,
    gone_topics,
    without_token,
)
from ...state.ledger.coordinator import ATTEMPTS, Coordinator
from ...state.ledger.settled_tokens import read_tokens, token_ends
from ..options import SinkOptions
from ..staged import StagedRows
from ..transactions.stragglers import abort_stragglers, beside, end_listed, list_open
from .lost_tokens import aborted_of, lost_sentence

log = logging.getLogger(__name__)

END_TIMEOUT_S = 120.0
STRAGGLERS_AFTER_S = 0.5
W = TypeVar("W", Participant, Token)


@dataclass(frozen=True)
class Outcome:
    """What became of a decision: the participants that are not visible and never will be without a
    replay, and whether other rows of the batch are (`torn`): then the replay must be equal."""

    missing: tuple[Participant, ...] = ()
    torn: bool = False


class Finisher:
    """Ends transactions of one job. Lives on the driver, for one call of Spark's."""

    def __init__(
        self,
        options: SinkOptions,
        control: ControlPlane,
        coordinator: Coordinator,
        *,
        by_hand: bool = False,
        wrote: Collection[TopicPartition] | None = None,
    ) -> None:
        """`wrote`: all that the participants have written to, where that is known. `by_hand`: a
        person accepts that rows went with their topic, and that tokens are lost."""
        self._options = options
        self._wrote = wrote
        self._by_hand = by_hand
        self._control = control
        self._coordinator = coordinator
        self.aborted = 0  # transactions that were open, and that nothing had decided

    def finish(self, decision: Decision) -> Outcome:
        """Commit every participant: its transaction, and then what it staged for a map or a table.

        Raises OutcomeUnknown when a cluster gives no answer in time, EnvironmentRefused when it
        refuses, LedgerError where staged rows or tokens are lost and nothing can be repeated; all
        leave the decision as it is, for the next start.
        """
        staged = self._staged(decision)
        given_up: set[int] = set()  # partitions whose staged rows are lost, and may be
        if staged is not None:
            staged.take()
            crash_point("S7.lanes_taken")
            lost = staged.lost()
            if lost:  # or done with: a driver that took over removes what it has applied
                staged.take()
            repeated = self._repeated(decision, staged)
            if lost and not repeated:
                return _without_lost(decision, staged)
            if lost:
                given_up = self._accepted(decision, lost, repeated)
        missing: set[Participant] = set()
        are_lost = False
        markers = self._coordinator.markers
        if any(part.has_token for part in decision.participants):
            listing = beside(lambda: self._list_others(decision))
            ended = self._end_all(decision)
            crash_point("S7.after_last_end_txn")
            self.end_others(decision, listing.result())
            seen = self._control.look(
                ends=token_ends(
                    self._options, decision.token_partition, decision.token_until or None
                ),
                topics=[name for part in decision.participants for name, _ in part.topics],
                others=markers.outputs,
            )
            markers.named.update((part.identity, False) for part in decision.participants)
            markers.saw(seen.leader_epochs)
            self._coordinator.settle(self._wrote)
            markers.saw(seen.leader_epochs)  # for DONE
            gone = self.gone(decision.participants, decision.batch, seen.topic_ids)
            found, are_lost = self._not_committed(decision, seen, ended, gone)
            missing = {*found, *gone}
        if staged is not None:
            staged.apply(but=given_up | {part.partition for part in missing})
            crash_point("S7.applied")
        lacking = tuple(part for part in decision.participants if part in missing)
        is_part = are_lost or len(lacking) < len(decision.participants)
        return Outcome(lacking, torn=bool(lacking) and is_part)

    def end_others(self, decision: Decision, listed: Sequence[Described] | None = None) -> None:
        """End what this sink has open and no decision names: attempts that were lost, or that lost
        against another one. They would hide the batch from readers until they time out; DONE says
        that it can be read. `listed`: what was found open, after our fence.

        Raises OutcomeUnknown, EnvironmentRefused, Fenced.
        """
        coordinator, mine = self._coordinator, self._coordinator.ledger.generation
        for _ in range(ATTEMPTS):
            found = self._list_others(decision) if listed is None else listed
            version = decision.end_txn_version
            ids, holder = self._options.ids, coordinator.identity
            ended = end_listed(self._control, ids, holder, found, version)
            if ended is not None:
                self.aborted += ended
                return
            # Perhaps only an operator's command: then what is open is still ours to end.
            listed = None
            coordinator.take_again(mine)
        raise OutcomeUnknown(
            f"Batch {decision.batch} is decided, but others keep taking the coordinator's "
            f"transactional id of job '{self._options.job}'. Stop them and start the query "
            "again: it goes on from there."
        )

    def _list_others(self, decision: Decision) -> list[Described]:
        mine = [part.identity for part in decision.participants]
        found = list_open(self._control, self._options.ids, self._options.sink, mine)
        kept = self._decided(decision.participants)
        return [one for one in found if one.identity not in kept]

    def forget(self, decision: Decision) -> None:
        """S8, once the decision is DONE: remove what was staged."""
        staged = self._staged(decision)
        if staged is None:
            return
        try:
            staged.remove()
        except EoKafkaError as error:  # the batch is written; this must not stop the query
            log.warning(
                "Batch %d: the next S1 removes what was staged (%s).", decision.batch, error
            )

    def _staged(self, decision: Decision) -> StagedRows | None:
        if all(part.staged is None for part in decision.participants):
            return None
        target = self._options.staging
        if target is None:
            mine = [part for part in decision.participants if part.round == decision.round]
            names = sorted({part.staged.place for part in mine if part.staged})
            raise LedgerError(
                f"Batch {decision.batch} is decided, and its staged rows for "
                f"'{', '.join(names)}' wait beside it, which this program cannot reach. Start the "
                "query that writes it, or give the command --map-config or --table-config: each "
                "finishes the batch."
            )
        # The ledger has been read under our fence: its newest generation is ours
        return target.rows_of(self._options, self._coordinator.ledger, decision)

    def _repeated(self, decision: Decision, staged: StagedRows) -> str:
        """What a replay of the lost participants could repeat, in words; "" if nothing: a row that
        replaces its entry may do so twice."""
        target = self._options.staging
        if any(part.has_token for part in decision.participants):
            return "its rows in the topic"  # Kafka transactions may have committed
        if target is not None and target.counts_twice and staged.in_part():
            return "the rows that are merged already"
        return ""

    def _accepted(self, decision: Decision, lost: set[int], repeated: str) -> set[int]:
        """The partitions whose staged rows are lost, if that is accepted. Raises LedgerError."""
        target = self._options.staging
        how = target.how_lost if target else ""
        sentence = (
            f"Batch {decision.batch} was decided, but the rows that partitions {sorted(lost)} "
            f"had staged for the {decision.target or 'map'} are lost {how}. Writing the batch "
            f"again would repeat {repeated}."
        )
        if target is None or target.fail_on_loss:
            raise LedgerError(
                f"{sentence} The batch stays decided. To go on without these rows, "
                "set option 'failOnDataLoss' to false until the next batch is written."
            )
        log.warning("%s Going on without these rows, as 'failOnDataLoss' is false.", sentence)
        return lost

    def gone(self, written: Sequence[W], batch: int, topic_ids: Mapping[str, str]) -> list[W]:
        """Those all of whose rows went with their topics. Neither EndTxn nor a token says so; a
        topic that was made again has another id. `topic_ids` are the ids of what is there, as one
        broker says; where it says that something went, all are asked.

        Raises LedgerError where only a part of one's rows did: to write those again would repeat
        the others. Raises OutcomeUnknown where the brokers do not agree.
        """
        if gone_topics(written, topic_ids):
            named = {name for part in written for name, _ in part.topics}
            topic_ids = self._control.agreed_topic_ids(named)
        gone = [part for part in written if gone_topics([part], topic_ids)]
        in_part = [part for part in gone if len(gone_topics([part], topic_ids)) < len(part.topics)]
        if in_part and not self._by_hand:
            raise LedgerError(
                f"Batch {batch}: topics {gone_topics(in_part, topic_ids)} were deleted after rows "
                "of the batch were written to them, and the same tasks wrote rows to other topics, "
                "too. Nothing was changed. To go on without the rows that are gone: "
                f"'eo-kafka job repair {self._options.job} --batch {batch} "
                "--accept-loss --bootstrap-servers ...'."
            )
        return [part for part in gone if part not in in_part]

    def _end_all(self, decision: Decision) -> set[str]:
        """The ids of those of which Kafka says that they are committed."""
        # Participants of earlier rounds are known to be committed.
        wanted = [
            part.identity
            for part in decision.participants
            if part.round == decision.round and part.has_transaction
        ]
        version = decision.end_txn_version
        if wanted and armed("S7.after_first_end_txn"):
            self._control.end_all(wanted[:1], True, version, END_TIMEOUT_S)
            crash_point("S7.after_first_end_txn")
        found = self._control.end_all(wanted, True, version, END_TIMEOUT_S).items()
        refused = [f"{name}: {of}" for name, (is_, of) in found if is_ is EndTxnAnswer.REFUSED]
        if refused:
            raise EnvironmentRefused(
                f"Batch {decision.batch} is decided, but Kafka refuses to commit {len(refused)} "
                f"transaction(s): {'; '.join(refused[:3])}. Correct that and start the query "
                "again: it goes on with these commits."
            )
        late = sum(answer is EndTxnAnswer.RETRY for _, (answer, _) in found)
        if late:
            raise OutcomeUnknown(
                f"Batch {decision.batch} is decided, but {late} of its transactions got no final "
                f"answer in {END_TIMEOUT_S:.0f} s. Start the query again: it goes on with these "
                "commits, nothing is repeated."
            )
        return {name for name, (answer, _) in found if answer is EndTxnAnswer.ENDED}

    def _not_committed(
        self, decision: Decision, seen: Look, ended: Collection[str], gone: Sequence[Participant]
    ) -> tuple[list[Participant], bool]:
        """The participants that no token speaks for; and whether tokens are lost, so that others
        are visible, or nobody knows of these. Raises LedgerError then, unless that is accepted."""
        tokens: list[Token] = []
        problem = ""
        try:
            tokens = read_tokens(
                self._options,
                self._control,
                decision.token_partition,
                (decision.token_from, decision.token_until or None),
                lambda: self.abort_stragglers(decision.end_txn_version, decision.participants),
                STRAGGLERS_AFTER_S,
                seen.ends,
                by_hand=self._by_hand,
            )
        except CorruptLedger:
            raise
        except LedgerError as error:
            problem = f" {error}"
        missing = [part for part in without_token(decision, tokens) if part not in gone]
        # A token that is not there says "aborted", unless it is known that there was one.
        committed = [
            part
            for part in missing
            if part.round < decision.round or part.identity.transactional_id in ended
        ]
        if not (problem or committed):
            return missing, False
        rest = [part for part in missing if part not in committed]
        aborted = aborted_of(self._control, decision, rest)
        if len(aborted) == len(rest) and not gone:
            log.warning(
                "Batch %d: the ledger has lost tokens, which say what is committed.%s Kafka itself "
                "says it of all transactions: those of partitions %s are, those of %s are aborted.",
                *(decision.batch, problem),
                *([part.partition for part in of] for of in (committed, aborted)),
            )
            return rest, bool(committed)
        sentence = lost_sentence(self._options, decision, committed, problem)
        if not self._by_hand:
            raise LedgerError(sentence)
        log.warning("%s This is accepted now.", sentence)
        return rest, True

    def abort_stragglers(self, version: int, keep: tuple[Participant, ...] = ()) -> None:
        """Abort the job's open transactions that are in no decision of the ledger, nor in `keep`
        (a decision made since the ledger was read). Raises OutcomeUnknown, EnvironmentRefused."""
        ids, holder = self._options.ids, self._coordinator.identity
        ended = abort_stragglers(self._control, ids, holder, self._decided(keep), version)
        self.aborted += ended or 0
        if ended:
            self._coordinator.settle()

    def _decided(self, also: tuple[Participant, ...]) -> set[Identity]:
        parts = [
            part for found in self._coordinator.ledger.unfinished() for part in found.participants
        ]
        return {part.identity for part in (*also, *parts)}


def _without_lost(decision: Decision, staged: StagedRows) -> Outcome:
    """Of a decision for a map or a table alone, when staged rows are lost: no more of it is
    applied. If none is, it is as if never decided."""
    torn = staged.begun or decision.round > 0
    return Outcome(staged.not_applied() if torn else decision.participants, torn)
