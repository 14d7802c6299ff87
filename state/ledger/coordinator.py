"""The job's coordinator: the only writer of the ledger's decision partition.

Whoever holds the coordinator's transactional id may write; taking it (a fence) shuts out all
others, finally. That alone does not say who *should* write, because an old driver can fence a new
one. The generation says it: after a fence the ledger is read to its end, and a newer generation
stops us.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ...clients.kafka import outages, topic_lists
from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.control_requests import End, TopicPartition
from ...core.errors import EnvironmentRefused, Fenced, OutcomeUnknown
from ...core.transaction import Identity, TransactionState
from . import lost_ledger, records
from .appender import Appender, AppendFailed, Record
from .job import Job
from .ledger import DECISION_PARTITION, Ledger
from .ledger_memory import LedgerMemory
from .markers import Markers
from .owner import check_owner
from .topics import TOKEN_PARTITION

log = logging.getLogger(__name__)

SETTLED_TIMEOUT_S = 90.0
_SILENT_S = 3.0
BEHIND_TIMEOUT_S = 60.0
ATTEMPTS = 5
COMPLETED_TIMEOUT_S = 0.5


@dataclass(frozen=True)
class Write:
    """What goes into one transaction: of the ledger, and of the state topic."""

    records: Sequence[Record]
    state: Sequence[Record] = ()


Attempt = Callable[[Ledger], "Write | None"]


class Coordinator:
    """Fences, reads and appends. Lives on the driver, for one call of Spark's. `problem`: why the
    last append that failed did. `outputs` and `committed`: see Markers."""

    def __init__(
        self,
        options: Job,
        control: ControlPlane,
        outputs: Collection[str] = (),
        committed: Collection[Identity] = (),
    ) -> None:
        self._options = options
        self._control = control
        _, self.topic = options.job_and_ledger
        self.markers = Markers(options, control, outputs, committed)
        self.ids = options.ids
        self._memory = LedgerMemory(options.kafka, self.topic)
        self._appender = Appender(options)
        self._learnt: Identity | None = None
        self._end_at_fence: int | None = None
        self.problem = ""

    @property
    def identity(self) -> Identity | None:
        """Who we are to Kafka since the last fence; None until something was appended after it.
        It is learnt by a request of its own, before which another driver may have taken the id:
        then the answer is who that is, and only an append of ours that lands says it was not."""
        return self._learnt if self._appender.proven else None

    @property
    def barrier(self) -> int:
        """What stood among the tokens at the last append with a barrier stands before this."""
        return self._appender.barrier

    @property
    def ledger(self) -> Ledger:
        """As far as it was read."""
        return self._memory.ledger

    def look_first(self, *, may_be_new: bool) -> tuple[int, int]:
        """Before a batch's first fence: a position before all tokens of that batch, and the version
        of EndTxn. Reads the ledger, as far as it is stable, so that who is refused has fenced
        nobody.

        Unless it `may_be_new`, raise LedgerError if the ledger is empty though Kafka remembers that
        the job wrote into one; or if the ledger has no owner and its first records were deleted.
        """
        tokens = (self.topic, TOKEN_PARTITION, False)
        found = self._control.look(
            [self.ids.coordinator],
            [self._stable_end, tokens],
            [self.topic],
            version=True,
            others=self.markers.outputs,
        )
        described = found.described[self.ids.coordinator]
        state = described.state
        self._wait_completed(state)
        self.markers.saw({} if state.is_completing else found.leader_epochs)
        stable, token_from = found.ends
        is_lost = not stable and lost_ledger.is_remembered(described)
        if is_lost and not may_be_new:
            self._check_still_empty()
        self._appender.as_new = not stable and not is_lost
        if self.topic not in found.topic_ids:
            topic_lists.warn_of_no_ids(self._options.kafka.get("bootstrap.servers", ""))
        self._memory.recall(found.topic_ids.get(self.topic, ""), stable)
        ledger = self._memory.read_to(stable)
        # Whose owner is there lacks nothing of that owner's: its first decision names it.
        if stable and ledger.owner is None and not ledger.succession.replaced and not may_be_new:
            self._check_nothing_deleted()
        return token_from, found.end_txn_version

    def look_whether_replaced(self, held: Identity | None, generation: int) -> None:
        """Before the fence of a batch's decision: raise Fenced if another driver has taken the id
        from its `held` owner and a newer generation with it. That one goes on undisturbed."""
        found = self._control.describe_one(self.ids.coordinator)
        self._appender.keep_to(found)
        # Not fenced, a read may end before one's own generation: only a newer one says something.
        if found.identity != held and self.read(fenced=False).generation > generation:
            self.check_generation(generation)

    def _check_still_empty(self) -> None:
        # Once more, after it and not with it: another driver's first record may have come between.
        if not self._control.end_offset(self.topic, DECISION_PARTITION, committed=False):
            raise lost_ledger.emptied(self._options)

    def _check_nothing_deleted(self) -> None:
        # Compaction alone never moves a log's beginning.
        if begin := self._control.end_offset(self.topic, DECISION_PARTITION, None):
            raise lost_ledger.cut_short(self._options, begin)

    def _wait_completed(self, state: TransactionState) -> None:
        """Wait a moment for the id's last transaction, if Kafka still writes its markers: it does
        so after it has answered, and puts off who takes the id meanwhile, whom librdkafka lets ask
        again after half a second."""
        deadline = time.monotonic() + COMPLETED_TIMEOUT_S
        while state.is_completing and time.monotonic() < deadline:
            time.sleep(0.005)
            state = self._control.describe_one(self.ids.coordinator).state

    def fence(self, *, as_new: bool = False) -> None:
        """Take the coordinator's id. Every earlier holder's next write fails from here on.
        `as_new`: the ledger is about to be deleted, and the next one is not to count as lost."""
        from confluent_kafka import KafkaException

        self.settle()
        self._appender.as_new |= as_new
        try:
            self._appender.take()
        except KafkaException as error:
            if outages.is_no_answer(error.args[0]):
                raise OutcomeUnknown(
                    f"The coordinator's transactional id '{self.ids.coordinator}' could not be "
                    f"taken: {error.args[0].str()}.{self._why}{outages.refused_login()} Is Kafka "
                    "up, with enough brokers for its transaction log? Has each partition of "
                    f"{self._appender.own_topics} as many replicas in sync as min.insync.replicas "
                    "asks for ('kafka-topics.sh --bootstrap-server ... --describe "
                    "--under-min-isr-partitions' lists those that lack some)? Start the query "
                    "again then: it goes on from what the ledger says."
                ) from None
            raise EnvironmentRefused(
                f"The coordinator's transactional id '{self.ids.coordinator}' cannot be used: "
                f"{error.args[0].str()}. Is the principal allowed to Write and Describe it, and "
                "has Kafka enough brokers for its transaction log?"
            ) from None
        found = self._control.look([self.ids.coordinator], [self._end], [self.topic])
        self._learnt = found.described[self.ids.coordinator].identity
        self._end_at_fence = found.ends[0]  # asked after the fence, for the read that follows it
        self._appender.as_new &= not found.ends[0]
        self._memory.recall(found.topic_ids.get(self.topic, ""), found.ends[0])

    def settle(self, also: Collection[TopicPartition] | None = ()) -> frozenset[TopicPartition]:
        """See Markers.settle."""
        return self.markers.settle(lambda: self.read(fenced=False), also)

    @property
    def _end(self) -> End:
        return self.topic, DECISION_PARTITION, False

    @property
    def _stable_end(self) -> End:
        return self.topic, DECISION_PARTITION, True

    def keep(self) -> None:
        """At the end, for this process's next call: what was read, and a producer that connects
        now. It fences nobody yet."""
        self._appender.open_ahead()
        self._memory.keep()

    def read(self, *, fenced: bool = True) -> Ledger:
        """Bring `ledger` up to the partition's end. After a fence no transaction is open on it, so
        the last stable offset reaches the high watermark; not `fenced`, it may be behind. Whether
        that was all, the first append after a fence shows. Raises OutcomeUnknown."""
        end, self._end_at_fence = self._end_at_fence, None
        at_least = self._appender.point.at_least
        if end is None or end < at_least:
            end = self._reach(self._end if fenced else self._stable_end, at_least)
        if fenced:
            self._appender.point.read_to(end)
        return self._memory.read_to(end)

    def read_since(self, generation: int, *, fenced: bool = True) -> Ledger:
        """`read`, with a `generation` in it that is known to be there: one's own."""
        ledger = self.read(fenced=fenced)
        while ledger.generation < generation:
            asked = self._end if fenced else self._stable_end
            end = self._reach(asked, self._memory.position + 1)
            if fenced:
                self._appender.point.read_to(end)
            ledger = self._memory.read_to(end)
        return ledger

    def _reach(self, asked: End, at_least: int) -> int:
        end = self._control.reach(asked, at_least, BEHIND_TIMEOUT_S)
        if end < at_least:
            raise OutcomeUnknown(
                f"Ledger '{self.topic}' ends at offset {end}, as the broker says that answers, and "
                f"records up to {at_least} were acknowledged. Its leader is cut off from the other "
                "brokers, or records of it are lost (an unclean leader election, a topic that was "
                "deleted). Nothing was decided; start the query again when all brokers see each "
                "other."
            )
        return end

    def read_settled(self) -> Ledger:
        """All of the ledger that is there now, fencing nobody: who looks only waits for a decision
        that is being written. Raises OutcomeUnknown if that takes longer than Kafka lets it."""
        end = self._control.end_offset(*self._end)
        stable = self._control.reach(self._stable_end, end, _SILENT_S)
        if stable < end:
            log.warning(
                "Ledger '%s' has an open transaction: its driver writes a decision, or died in it. "
                "Kafka ends it within a minute; this is waited for.",
                self.topic,
            )
            stable = self._control.reach(self._stable_end, end, SETTLED_TIMEOUT_S)
        if stable < end:
            raise OutcomeUnknown(
                f"A transaction stays open on ledger '{self.topic}', so the newest decision "
                "is unknown. Nothing was changed; try again."
            )
        return self._memory.read_to(stable)

    def append(
        self,
        records: Sequence[Record],
        state: Sequence[Record] = (),
        *,
        barrier: int | None = None,
    ) -> None:
        """Write `records` into the ledger and `state` into the state topic, in one small
        transaction; with `barrier`, a generation, also what later reads of the tokens go by, and
        what stops the tasks of older ones. Raises AppendFailed when it is not certain that they
        landed, and right after what was read."""
        if self._appender.proven:  # not the first since the fence
            self.settle()
        self._end_at_fence = None
        self._appender.append(records, state, barrier=barrier)

    def count_on_state(self, end: int) -> None:
        """What stands in the state topic before `end`, asked for after the fence, is counted on:
        the next append there must land right behind it."""
        self._appender.state_point.read_to(end)

    def check_owner(self, query_id: str | None) -> None:
        """Raise ForeignLedger if the ledger is another query's."""
        check_owner(self._options, self.ledger.owner, query_id)

    def write(self, generation: int, attempt: Attempt) -> None:
        """Write under `generation` until it is certain: fence, read to the end, stop if a newer
        generation is there, append what `attempt` answers. What landed already it answers again
        where `identity` is asked for later; None: nothing is left to do.

        `attempt` may append by itself what is to come before. Raises Fenced, or OutcomeUnknown
        after ATTEMPTS rounds, or what `attempt` raises.
        """
        for count in range(ATTEMPTS):
            if self._learnt is not None:  # a fence of ours may have been broken by a newer driver
                self.look_whether_replaced(self._learnt, generation)
            self.fence()
            ledger = self.read_since(generation)
            self.check_generation(generation)
            try:
                write = attempt(ledger)
                if write is None:
                    return
                self.append(write.records, write.state)
                return
            except AppendFailed as error:
                self._warn(error)
            time.sleep(0.05 * 2**count)
        raise OutcomeUnknown(
            f"{ATTEMPTS} attempts to write to ledger '{self.topic}' had no certain "
            f"outcome.{self._why} "
            "Nothing is lost: the next start reads the ledger and goes on from what it says."
        )

    def take_again(self, generation: int) -> None:
        """Fence anew under one's own `generation`. Written once more, it proves that the fence is
        ours. Raises Fenced, OutcomeUnknown."""
        again = (records.GENERATION_KEY, records.encode_generation(generation))
        self.write(generation, lambda _: Write([again]))

    def check_generation(self, generation: int) -> None:
        """Raise Fenced unless the ledger's newest generation is `generation`."""
        newest = self.ledger.generation
        if newest != generation:
            raise Fenced(
                f"Generation {newest} of job '{self._options.job}' has taken over from "
                f"{generation}: another driver runs the same job. This one stops and has "
                "written nothing that counts. Run one of them."
            )

    def try_append(self, records: Sequence[Record], *, barrier: int | None = None) -> bool:
        """Append; False when it is not certain that the records landed."""
        try:
            self.append(records, barrier=barrier)
        except AppendFailed as error:
            self._warn(error)
            return False
        return True

    @property
    def _why(self) -> str:
        return f" The last append failed: {self.problem}." if self.problem else ""

    def _warn(self, error: AppendFailed) -> None:
        self.problem = str(error).rstrip(".")
        log.warning("Ledger '%s': %s; asking again from the fence.", self.topic, error)
