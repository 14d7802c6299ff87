"""S7: end every participant of a decision, and find out by the tokens what became of each.

Used by the commit of a batch and by the recovery of one; it is safe to repeat, by anybody, because
an EndTxn names a (producer id, epoch) that never covers two transactions.
"""

from __future__ import annotations

import logging
import time

from eo_kafka.crash_points import armed, crash_point
from eo_kafka.errors import EnvironmentRefused, OutcomeUnknown
from eo_kafka.sinks.control_plane import ControlPlane
from eo_kafka.sinks.coordinator import Coordinator
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.state import records
from eo_kafka.state.log_reader import read_records
from eo_kafka.transaction import (
    Decision,
    EndTxnAnswer,
    Identity,
    Participant,
    end_txn_answer,
    without_token,
)

log = logging.getLogger(__name__)

END_TIMEOUT_S = 120.0
STABLE_TIMEOUT_S = 120.0
STRAGGLERS_AFTER_S = 0.5


class Finisher:
    """Ends transactions of one job. Lives on the driver, for one call of Spark's."""

    def __init__(self, options: SinkOptions, control: ControlPlane, coordinator: Coordinator):
        self._options = options
        self._control = control
        self._coordinator = coordinator

    def finish(self, decision: Decision) -> tuple[Participant, ...]:
        """Commit every participant; return those that did not commit and never will.

        Raises OutcomeUnknown when the cluster gives no answer in time, EnvironmentRefused when it
        refuses; both leave the decision as it is, for the next start.
        """
        if not decision.participants:
            return ()
        self._end_all(decision)
        crash_point("S7.after_last_end_txn")
        return self._not_committed(decision)

    def _end_all(self, decision: Decision) -> None:
        # Participants of earlier rounds are known to be committed.
        pending = {
            part.identity.transactional_id: part.identity
            for part in decision.participants
            if part.round == decision.round
        }
        deadline = time.monotonic() + END_TIMEOUT_S
        pause = 0.002
        while pending:
            wave = list(pending.values())
            if armed("S7.after_first_end_txn"):
                wave = wave[:1]
            refused = self._end_wave(wave, pending, decision.end_txn_version)
            crash_point("S7.after_first_end_txn")
            if refused:
                raise EnvironmentRefused(
                    f"Batch {decision.batch} is decided, but Kafka refuses to commit "
                    f"{len(refused)} transaction(s): {'; '.join(refused[:3])}. Put that right and "
                    "start the query again: it goes on with these commits."
                )
            if pending and time.monotonic() > deadline:
                raise OutcomeUnknown(
                    f"Batch {decision.batch} is decided, but {len(pending)} of its transactions "
                    f"got no final answer in {END_TIMEOUT_S:.0f} s. Start the query again: it "
                    "goes on with these commits, nothing is repeated."
                )
            if pending:
                time.sleep(pause)
                pause = min(0.2, pause * 2)

    def _end_wave(
        self, wave: list[Identity], pending: dict[str, Identity], version: int
    ) -> list[str]:
        refused = []
        for name, error in self._control.end(wave, commit=True, version=version).items():
            answer = end_txn_answer(error)
            if answer is EndTxnAnswer.REFUSED:
                refused.append(f"{name}: {error}")
            if answer is not EndTxnAnswer.RETRY:
                del pending[name]
        return refused

    def _not_committed(self, decision: Decision) -> tuple[Participant, ...]:
        """Read the sink's tokens from where this batch's begin to where all are settled.

        A token below the last stable offset that is not visible belongs to an aborted transaction;
        one that was never written, to a transaction that did not get that far.
        """
        topic, partition = self._coordinator.topic, decision.token_partition
        written = self._control.end_offset(topic, partition, committed=False)
        self._wait_stable(partition, written, decision)
        tokens = [
            records.decode_token(key, value)
            for _, key, value in read_records(
                self._options.kafka, topic, partition, decision.token_from, written
            )
            if value is not None
        ]
        return without_token(decision, tokens)

    def _wait_stable(self, partition: int, offset: int, decision: Decision) -> None:
        started = time.monotonic()
        pause, stragglers_at = 0.002, started + STRAGGLERS_AFTER_S
        while True:
            stable = self._control.end_offset(self._coordinator.topic, partition, committed=True)
            now = time.monotonic()
            if stable >= offset:
                return
            if now - started > STABLE_TIMEOUT_S:
                raise OutcomeUnknown(
                    f"Batch {decision.batch}: transactions stay open on the ledger's partition "
                    f"{partition} (stable to {stable} of {offset}). The batch is decided; start "
                    "the query again."
                )
            if now > stragglers_at:
                self.abort_stragglers(keep=decision.participants, version=decision.end_txn_version)
                stragglers_at = now + 1.0
            time.sleep(pause)
            pause = min(0.1, pause * 2)

    def abort_stragglers(self, keep: tuple[Participant, ...], version: int) -> int:
        """Abort the job's open transactions that are not in `keep`; return how many there were.

        Ids are used again by later generations, so what may be aborted is settled by order: list
        first, look at the coordinator after. If it is still ours, no newer driver had a task by
        the time of the listing, and an abort for exactly that (producer id, epoch) hits no other.
        A broker that is down must not hold this up: what it hides times out.
        """
        ids = self._coordinator.ids
        decided = [
            part for found in self._coordinator.ledger.unfinished() for part in found.participants
        ]
        kept = {part.identity for part in (*keep, *decided)}
        try:
            listed = self._control.open_transactions(ids.task_pattern(), ids.is_task)
        except OutcomeUnknown as error:
            log.warning("Open transactions of job '%s' not listed: %s", ids.job, error)
            return 0
        found = [described.identity for described in listed if described.identity not in kept]
        if not found:
            return 0
        now = self._control.describe([ids.coordinator])[ids.coordinator].identity
        if now != self._coordinator.identity:
            return 0
        answers = self._control.end(found, commit=False, version=version)
        log.info("Aborted %d open transactions that nothing decided: %s", len(found), answers)
        return len(found)
