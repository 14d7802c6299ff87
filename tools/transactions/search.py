"""Finds transactions, eo-kafka's and others', and the ledgers behind them. Only reads.

By pattern of the id, by id, by job, by query, or by what is open on a topic's partitions. Every
broker is asked, and the ledgers are read after the transactions were listed: the rules of
`transaction_verdict` need that order.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.every_broker import list_transactions
from ...clients.kafka.first_contact import nobody_listens
from ...clients.kafka.hidden_ids import hidden, not_described, why_not_all
from ...clients.kafka.lost_markers import Asker, outcome
from ...clients.kafka.partition_transactions import Missing, Open, ids_of_producers, open_producers
from ...clients.kafka.transactional_id import TransactionalIds, parse_id
from ...core.errors import CorruptLedger, EnvironmentRefused, EoKafkaError, LedgerError, cut
from ...core.transaction import DecisionState, Described, Identity, TransactionState
from ...state.ledger import records
from ...state.ledger.job_topics import LEDGER_NAME
from ...state.ledger.ledger import DECISION_PARTITION, Ledger, fold
from ...state.ledger.log_reader import read_records
from ...state.ledger.owner import anothers, is_of
from ...state.ledger.topics import TOKEN_PARTITION
from .verdict import OPEN_STATES, JobLedger, Judged, Standing, judge, replaced

Driver = tuple[str, int]  # of whom a task is: its job's hash, its generation's slot


class TransactionSearch(ControlPlane):
    """A control plane that also lists. One operator's command uses it, then closes it.

    `ledgers`: topic -> job, of the ledgers whose names are not the default.
    """

    def __init__(self, settings: Mapping[str, str], ledgers: Mapping[str, str]) -> None:
        if problem := nobody_listens(settings.get("bootstrap.servers", "")):
            raise EnvironmentRefused(problem)
        super().__init__(settings)
        self._settings = settings
        self._named = dict(ledgers)
        self.left_out: dict[str, str] = {}  # jobs whose ledgers cannot be read, and why

    def ids(self, pattern: str, states: Collection[TransactionState] = OPEN_STATES) -> list[str]:
        """The transactional ids that match the regular expression and are in one of the states
        (none: in any). Brokers answer only those that the principal may Describe."""
        rows = self.ask(list_transactions, self.admin, [state.value for state in states])
        found = {row.transactional_id for row in rows}
        return sorted(name for name in found if re.match(pattern, name))

    def hidden_jobs(self, prefix: str, jobs: Collection[str]) -> dict[str, str]:
        """Those of the jobs, and why, whose ids under the prefix this principal may not Describe:
        they are not listed, and may be open. Without jobs it is asked of any."""
        named = {TransactionalIds(prefix, job).coordinator: job for job in jobs or ["(any)"]}
        return {named[name]: not_described(prefix) for name in sorted(hidden(self, named))}

    def ledgers(self) -> dict[str, str]:
        """Topic -> job, of all ledgers there are."""
        names = self.topics()
        found = ((name, LEDGER_NAME.fullmatch(name)) for name in names)
        by_default = {name: match["job"] for name, match in found if match}
        renamed = set(self._named.values())
        return {
            **{topic: job for topic, job in by_default.items() if job not in renamed},
            **{topic: job for topic, job in self._named.items() if topic in names},
        }

    def read_ledger(self, topic: str, job: str) -> JobLedger:
        """The ledger up to its last stable offset; fences nobody. Raises CorruptLedger, and
        LedgerError if it is another job's: that would call everything undecided."""
        stable = self.end_offset(topic, DECISION_PARTITION, committed=True)
        found = read_records(self._settings, topic, DECISION_PARTITION, 0, stable)
        return self._of_job(topic, job, fold((key, value) for _, key, value in found))

    def _of_job(self, topic: str, job: str, ledger: Ledger) -> JobLedger:
        if strange := anothers(self, topic, job, ledger):
            raise LedgerError(f"{strange} Nothing was done.")
        return self._with_tokens(JobLedger(topic, job, ledger))

    def _with_tokens(self, job: JobLedger) -> JobLedger:
        unfinished = job.ledger.unfinished()
        tokens, is_stable, is_lost = [], True, False
        for partition in {decision.token_partition for decision in unfinished}:
            there = [one for one in unfinished if one.token_partition == partition]
            start = min(one.token_from for one in there)
            stable = self.end_offset(job.topic, partition, committed=True)
            is_stable &= stable >= self.end_offset(job.topic, partition, committed=False)
            begin = self.end_offset(job.topic, partition, None)
            is_lost |= begin > start or (is_stable and stable < max(d.token_until for d in there))
            tokens += [
                records.decode_token(key, value)
                for _, key, value in read_records(
                    self._settings, job.topic, partition, start, stable
                )
                if value is not None
            ]
        return replace(job, tokens=tuple(tokens), tokens_stable=is_stable, tokens_lost=is_lost)

    def judge(
        self,
        ids: Collection[str],
        jobs: Collection[str] = (),
        closed: Mapping[str, Ledger] | None = None,
    ) -> list[Judged]:
        """Describe the ids, then read the ledgers of their jobs, but those that are `closed` to
        drivers and read already. With `jobs`, also what the ledgers of these have decided and not
        settled, open or not."""
        described = self.describe(ids)
        wanted = {
            topic: job
            for topic, job in self.ledgers().items()
            if job in jobs or any(is_of(name, job) for name in ids)
        }
        known = closed or {}
        read = [
            self._of_job(topic, job, known[topic])
            if topic in known
            else self.read_ledger(topic, job)
            for topic, job in wanted.items()
        ]
        by_name = {
            name: next((job for job in read if is_of(name, job.job)), None) for name in described
        }
        elsewhere = self._drivers_of_others(described, by_name)
        judged = [
            judge(one, by_name[name], elsewhere=_driver(name) in elsewhere)
            for name, one in described.items()
        ]
        seen = {one.participant.identity for one in judged if one.participant}
        for job in read:
            if job.job in jobs:
                judged += self._decided(job, seen)
        return judged

    def named(self, ids: Collection[str]) -> list[Judged]:
        """As `judge`, of ids that somebody gave. Raises EoKafkaError where nobody has one."""
        found = self.judge(ids)
        unknown = [
            f"'{one.described.transactional_id}'"
            for one in found
            if one.described.state is TransactionState.MISSING
            and not (one.job and one.described.transactional_id in one.job.named)
        ]
        if unknown:
            raise EoKafkaError(
                f"No coordinator knows {cut(', '.join(unknown))}, and no ledger names it: it is "
                "misspelt, was never used, or has expired. Nothing was done. 'eo-kafka txn list "
                "--all' shows the ids there are; other programs' by --topic TOPIC."
            )
        return found

    def _drivers_of_others(
        self, described: Mapping[str, Described], by_name: Mapping[str, JobLedger | None]
    ) -> set[Driver]:
        """The drivers of those whose token is in another ledger than their job's that is read: the
        job has got option ledgerTopic since, and this is its ledger of before."""
        found, known = set(), dict[str, bool]()
        for name, one in described.items():
            driver, job = _driver(name), by_name[name]
            topics = {topic for topic, _ in one.partitions}
            if driver is None or job is None or job.topic in topics:
                continue
            for topic in topics:
                numbers = {number for where, number in one.partitions if where == topic}
                if numbers != {TOKEN_PARTITION}:
                    continue
                if topic not in known:
                    known[topic] = bool(LEDGER_NAME.fullmatch(topic)) or self._is_ledger(topic)
                if known[topic]:
                    found.add(driver)
        return found

    def _is_ledger(self, topic: str) -> bool:
        """By the first record where its decisions would be; if that may not be read, perhaps."""
        try:
            stable = self.end_offset(topic, DECISION_PARTITION, committed=True)
            found = read_records(self._settings, topic, DECISION_PARTITION, 0, stable, at_once=1)
            first = next(found, None)
            if first is not None:
                fold([first[1:]])
        except CorruptLedger:
            return False
        except EoKafkaError:
            return True
        return first is not None

    def of_job(self, job: str) -> list[Judged]:
        """The job's transactions that are open, under any prefix, and those that its ledger has
        decided and not settled."""
        listed = [name for name in self.ids("") if is_of(name, job)]
        return self.judge(listed, {job})

    def _decided(self, job: JobLedger, seen: Collection[Identity]) -> list[Judged]:
        """The transactions of the job's DECIDED batches but those `seen`."""
        missing = [
            (decision, part)
            for decision in job.ledger.unfinished()
            for part in decision.participants
            if part.has_transaction and part.identity not in seen
        ]
        described = self.describe(part.identity.transactional_id for _, part in missing)
        found = []
        for decision, part in missing:
            one = judge(described[part.identity.transactional_id], job)
            found.append(one if one.participant == part else replaced(job, decision, part))
        return found

    def on_topic(self, topic: str) -> list[Judged]:
        """Every transaction that is open on the topic's partitions, whoever's it is, by asking
        their leaders (DescribeProducers). By id: leaders give them in no order."""
        found = self._on_topic(topic)
        if hung := {key for key, one in found.items() if one.hung}:
            time.sleep(1.0)  # it may have been just ending: look again
            again = self._on_topic(topic)
            found = {key: one for key, one in again.items() if not one.hung or key in hung}
        return sorted(found.values(), key=lambda one: one.described.transactional_id)

    def _on_topic(self, topic: str) -> dict[tuple[int, int], Judged]:
        open_there = self._open_on(topic)
        producers = {one.producer_id for one in open_there}
        ids, not_all = ids_of_producers(self, producers, may_lack=True), ""
        if untold := producers - ids.keys():
            not_all = why_not_all(self)
            ids |= {} if not_all else self._of_decisions(untold)
        by_id = {one.described.transactional_id: one for one in self.judge(set(ids.values()))}
        newest = {producer: by_id[name] for producer, name in ids.items()}
        found: dict[tuple[int, int], Judged] = {}
        others = defaultdict[tuple[int, int], list[Open]](list)
        for one in open_there:
            key = (one.producer_id, one.epoch)
            known = newest.get(one.producer_id)
            if known is not None and _knows(known.described, one):
                found[key] = known
            else:
                others[key].append(one)
        for key, some in others.items():
            known = newest.get(key[0])
            hides = not_all if known is None else ""
            found[key] = _not_seen(some, hides) if hides else self._hung(known, tuple(some))
        return found

    def _of_decisions(self, producers: Collection[int]) -> dict[int, str]:
        """The ids under which decisions name producers: Kafka gives an id another producer when
        its epochs are used up. By those ledgers that can be read."""
        found = {}
        for topic, job in self.ledgers().items():
            with suppress(EoKafkaError):
                for name, decided in self.read_ledger(topic, job).named.items():
                    mine = {part.identity.producer_id for _, part in decided}
                    found.update(dict.fromkeys(mine & set(producers), name))
        return found

    def _hung(self, known: Judged | None, hung: tuple[Open, ...]) -> Judged:
        """`known` is the newest transaction of its id: perhaps this one."""
        name = known.described.transactional_id if known else "(no transactional id)"
        described = Described(
            *(name, TransactionState.ONGOING, hung[0].producer_id, hung[0].epoch),
            partitions=frozenset(one.at for one in hung),
        )
        one = judge(described, known.job if known else None)
        return replace(
            one,
            described=replace(described, state=TransactionState.MISSING),
            hung=hung,
            ended=self._how_it_ended(known.described, one, hung[0]) if known else None,
        )

    def _how_it_ended(self, now: Described, one: Judged, where: Open) -> Missing | None:
        """As the next start of the query would find out."""
        mine = Identity(now.transactional_id, where.producer_id, where.epoch)
        state = one.decision.state if one.decision else DecisionState.VOID
        decided = {} if state is DecisionState.VOID else {mine: state is DecisionState.DONE}
        return outcome(Asker(self, TransactionalIds("", ""), lambda: decided), where, now)

    def _open_on(self, topic: str) -> list[Open]:
        (described,) = self.call(self.admin.describe_topics, [topic])
        if described.get("error_code"):
            raise EnvironmentRefused(
                f"Topic '{topic}' does not exist or may not be described by this principal."
            )
        numbers = [one["partition_index"] for one in described["partitions"]]
        return open_producers(self, [(topic, number) for number in numbers])


def _not_seen(where: Sequence[Open], not_all: str) -> Judged:
    """A transaction that is open on partitions, and that no coordinator told of; perhaps as ids
    are hidden: `not_all` says why."""
    described = Described(
        *("(id not seen)", TransactionState.ONGOING, where[0].producer_id, where[0].epoch),
        partitions=frozenset(one.at for one in where),
    )
    return Judged(described, Standing.NOT_SEEN, not_all=not_all)


def _driver(transactional_id: str) -> Driver | None:
    """The job (its hash) and the generation's slot; None for what is no task's."""
    parts = parse_id(transactional_id)
    task = parts.task if parts else None
    return (parts.job_hash, task.generation_slot) if parts and task else None


def _knows(described: Described, one: Open) -> bool:
    """Whether the coordinator has the transaction that is open at the partition. It may be one
    epoch ahead while it ends it."""
    ending = described.state is not TransactionState.ONGOING
    is_it = (described.producer_id, described.epoch) == (one.producer_id, one.epoch)
    ahead = (described.producer_id, described.epoch) == (one.producer_id, one.epoch + 1)
    return described.state in OPEN_STATES and (
        (is_it and one.at in described.partitions) or (ending and (is_it or ahead))
    )
