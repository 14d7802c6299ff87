"""Writes the ends of transactions that Kafka has left out (KAFKA-20734).

When a transaction ends, its coordinator has a marker written to each of its partitions. Kafka
4.3.0, 4.3.1 and 4.4.0 take a partition that has no leader at that moment for one that was deleted:
the transaction counts as complete, and stays open there for ever. Its rows, and all behind them,
are hidden from `read_committed` readers, and the next transaction under the same id that writes
there takes them along: committed ones are lost with it, or aborted ones appear.

A partition that was without a leader has a newer leader epoch. So while the epochs stay, nothing is
asked; where one is new, the markers that are missing are written before an id is used again, and
before a batch counts as written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from ...core.errors import EnvironmentRefused, OutcomeUnknown, RepairNeeded
from ...core.transaction import Described, Identity
from ...core.transaction import TransactionState as S
from .control_errors import is_leaderless, is_not_allowed, is_not_offered
from .control_requests import LEADERLESS, TopicPartition
from .partition_transactions import (
    Missing,
    Open,
    ids_of_producers,
    open_producers,
    write_markers,
)
from .transactional_id import TransactionalIds

if TYPE_CHECKING:
    from .control_plane import ControlPlane

log = logging.getLogger(__name__)

SETTLE_TIMEOUT_S = 60.0
# What is known of each process's control plane: under which leader epoch nothing was left out.
_settled: WeakKeyDictionary[ControlPlane, dict[TransactionalIds, dict[TopicPartition, int]]]
_settled = WeakKeyDictionary()
_told: WeakKeyDictionary[ControlPlane, set[object]] = WeakKeyDictionary()
_ABORTED = (S.COMPLETE_ABORT, S.PREPARE_ABORT, S.PREPARE_EPOCH_FENCE)
_COMMITTED = (S.COMPLETE_COMMIT, S.PREPARE_COMMIT)
# So long a coordinator is waited for that lists nothing of the id yet: where the log may not be
# described, a list is not known to be whole.
_TOLD_WITHIN_S = 1.0
_MARKERS_TAKE_S = 0.05  # as a rule, when Kafka has answered an EndTxn
_SHOWN = 5  # partitions in a sentence


@dataclass(frozen=True)
class Asker:
    """Who asks about the transactions of a job.

    `decided` tells of those that decisions of the job name whether that decision is DONE. A task
    that has just taken an id tells what Kafka said of it `before`; `raises_epoch`: the driver ends
    the tasks' transactions, by EndTxn of version 5.
    """

    control: ControlPlane
    ids: TransactionalIds
    decided: Callable[[], Mapping[Identity, bool]] = dict
    before: Described | None = None
    raises_epoch: bool = False


def settle(
    asker: Asker,
    leader_epochs: Mapping[TopicPartition, int],
    must: Collection[TopicPartition] | None = None,
) -> frozenset[TopicPartition]:
    """See to it that each transaction of the job that has ended has done so in all of these
    partitions. Driver, several times a batch; task, before its first row to a topic.

    Args:
        asker: Where brokers are asked. What was seen is remembered as long as its control plane is.
        leader_epochs: Of partitions, from a `look` after the end of the transactions.
        must: Partitions whose leader is waited for; None: all.

    Returns:
        The partitions that have no leader, and were left out.

    Raises:
        EnvironmentRefused: Kafka does not let this principal write what is missing.
        RepairNeeded: What became of a transaction is not known any more.
        OutcomeUnknown: Brokers do not answer, or a partition stays without a leader.
    """
    settled = _settled.setdefault(asker.control, {}).setdefault(asker.ids, {})
    unclear = {at: epoch for at, epoch in leader_epochs.items() if settled.get(at) != epoch}
    left = frozenset(
        at
        for at, epoch in unclear.items()
        if epoch == LEADERLESS and not (must is None or at in must)
    )
    wanted = sorted(unclear.keys() - left)
    unknown = _settle(asker, {at: unclear[at] for at in wanted}) if wanted else frozenset()
    settled.update({at: unclear[at] for at in wanted if at not in unknown})
    return left


def forget(asker: Asker) -> None:
    """What was seen for ids that are used no more."""
    _settled.get(asker.control, {}).pop(asker.ids, None)


def _settle(asker: Asker, epochs: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
    """Returns where something is left: of which nobody tells whose it is, or a task does not know
    how it ended; or the driver's batch is open, whose end may be left out under this epoch, too, by
    a coordinator that has not heard of it."""
    control = asker.control
    deadline, behind = time.monotonic() + _MARKERS_TAKE_S, _behind(control, list(epochs))
    # Beside a task, others' transactions are open
    while behind and asker.before is None and time.monotonic() < deadline:
        time.sleep(0.005)
        behind = _behind(control, behind)
    began = time.monotonic()
    while behind:
        found = _look(asker, _open_on(control, behind), epochs)
        if found.missing:
            _write(control, found.missing)
        if found.not_known:
            raise RepairNeeded(found.not_known)
        took = time.monotonic() - began
        is_sure = took > _TOLD_WITHIN_S or _told.setdefault(control, set()).issuperset(found.untold)
        if is_sure and not found.missing and not found.is_ending:
            _tell_of_unknown(control, found.untold)
            return found.others.union(one.at for one in found.untold) | found.still_open
        if took > SETTLE_TIMEOUT_S:
            raise OutcomeUnknown(
                f"Kafka has not written the ends of this job's transactions to partitions "
                f"{_named(behind)} within {SETTLE_TIMEOUT_S:.0f} s: rows there cannot be read yet. "
                "Nothing is lost. Start the query again when all brokers are up."
            )
        time.sleep(0.02)
        behind = _behind(control, behind)
    return frozenset()


def _behind(control: ControlPlane, places: list[TopicPartition]) -> list[TopicPartition]:
    """Where a transaction is open, of this job or another. Waits for leaders."""
    stable, high = [(*at, True) for at in places], [(*at, False) for at in places]
    try:
        ends = control.look(ends=[*stable, *high]).ends
    except OutcomeUnknown as error:
        if not is_leaderless(error):
            raise
        raise OutcomeUnknown(
            f"{error} Without its leader nobody can see whether the transactions of this job have "
            "ended there, and rows there cannot be read. Nothing is lost. Bring its broker back, "
            "or give the partition other replicas; then start the query again."
        ) from error
    pairs = zip(places, ends, ends[len(places) :], strict=False)
    return [at for at, lso, end in pairs if lso < end]


class Found(NamedTuple):
    """The markers that are `missing`; whether Kafka is about to write others; of which nobody knows
    how they ended: of others, as far as a task can say, and the first one otherwise; those of which
    nobody tells whose they are; and where the job's own are open, which a task does not ask."""

    missing: list[Missing]
    is_ending: bool = False
    others: frozenset[TopicPartition] = frozenset()
    not_known: str = ""
    untold: frozenset[Open] = frozenset()
    still_open: frozenset[TopicPartition] = frozenset()


def _look(asker: Asker, there: list[Open], epochs: Mapping[TopicPartition, int]) -> Found:
    control, ids = asker.control, asker.ids
    producers = {one.producer_id for one in there}
    names = _known(asker, producers) | ids_of_producers(control, producers, stem=ids.stem)
    untold = _untold(control, [one for one in there if one.producer_id not in names], epochs)
    names = {
        producer: name
        for producer, name in names.items()
        if name == ids.coordinator or ids.is_task(name)
    }
    described = control.describe(sorted(names.values()))
    mine = [(one, described[names[one.producer_id]]) for one in there if one.producer_id in names]
    ended = [(one, now) for one, now in mine if not _is_open(one, now)]
    complete = [(one, now) for one, now in ended if not _is_ending(now)]
    is_task = asker.before is not None
    now_open = frozenset(one.at for one, now in mine if not is_task and _is_open(one, now))
    if not complete:
        return Found([], bool(ended), untold=untold, still_open=now_open)
    # Kafka calls a transaction complete after its last marker. So what is open still, by an answer
    # that is later than that one, stays open.
    still = set(_open_on(control, sorted({one.at for one, _ in complete})))
    hang = [(one, now, outcome(asker, one, now)) for one, now in complete if one in still]
    missing = [end for _, _, end in hang if end is not None]
    unknown = [(one, now) for one, now, end in hang if end is None]
    mine_alone = asker.before.transactional_id if asker.before else None
    not_known = [
        _not_known(one, now) for one, now in unknown if mine_alone in (None, now.transactional_id)
    ]
    others = frozenset(one.at for one, _ in unknown)
    is_ending = len(complete) < len(ended)
    return Found(missing, is_ending, others, next(iter(not_known), ""), untold, now_open)


def _untold(
    control: ControlPlane, there: list[Open], epochs: Mapping[TopicPartition, int]
) -> frozenset[Open]:
    """Without those that began under this leader epoch: the partition had a leader all the time."""
    if not there:
        return frozenset()
    begins = control.epoch_ends({one.at: (epochs[one.at] - 1, epochs[one.at]) for one in there})
    return frozenset(one for one in there if not 0 <= begins[one.at] <= one.start)


def _known(asker: Asker, producers: Collection[int]) -> dict[int, str]:
    """The ids of producers that may not have them any more: an id gets another one when its epochs
    are used up, after some 32,000 takes and ends, or when Kafka has forgotten it, after a week."""
    known: list[Identity | Described] = [*asker.decided()]
    if asker.before:
        known.append(asker.before)
    return {one.producer_id: one.transactional_id for one in known if one.producer_id in producers}


def _open_on(control: ControlPlane, places: list[TopicPartition]) -> list[Open]:
    """Of those topics that the principal may look at."""
    found = []
    for topic in sorted({topic for topic, _ in places}):
        try:
            found += open_producers(control, [at for at in places if at[0] == topic])
        except EnvironmentRefused as error:
            _tell_not_seen(control, topic, error)
    return found


def _is_open(one: Open, now: Described) -> bool:
    return now.is_open(Identity(now.transactional_id, one.producer_id, one.epoch))


def _is_ending(now: Described) -> bool:
    return now.state.is_completing or now.state is S.PREPARE_EPOCH_FENCE


def outcome(asker: Asker, one: Open, now: Described) -> Missing | None:
    """How it ended; None where that is not known."""
    name = now.transactional_id
    is_done = asker.decided().get(Identity(name, one.producer_id, one.epoch))
    if is_done:
        return Missing(one, name, one.epoch, commit=True)
    by_driver = (is_done is not None or asker.raises_epoch) and name != asker.ids.coordinator
    before = asker.before if asker.before and asker.before.transactional_id == name else now
    for told in (now, before):
        # Of the id's newest transaction. That one has the epoch of `one`; or, where Kafka or
        # EndTxn 5 has ended it, the next: who takes the id then begins with a later one.
        later = told.epoch - one.epoch if told.producer_id == one.producer_id else -1
        # One that is decided may have committed by an older EndTxn, and the next was aborted
        if told.state in _ABORTED and (later == 0 or (later == 1 and is_done is None)):
            return Missing(one, name, told.epoch, commit=False)
        if told.state in _COMMITTED and (later == 0 or (later == 1 and by_driver)):
            return Missing(one, name, told.epoch, commit=True)
    return None


def _not_known(one: Open, now: Described) -> str:
    name = now.transactional_id
    return (
        f"A transaction has ended, and Kafka has not written that to partition {one.partition} of "
        f"'{one.topic}' (KAFKA-20734: it had no leader then). Whether it was committed is not "
        f"known any more: id '{name}', producer {one.producer_id}, epoch {one.epoch}, from offset "
        f"{one.start} on; its id is {now.state.value} now, epoch {now.epoch}. Its rows, and all "
        "behind them in that partition, are hidden from read_committed readers. Find out whether "
        f"the rows are wanted, as docs/troubleshooting.md says. Then 'eo-kafka txn commit {name} "
        f"--topic {one.topic} --force', or 'abort', ends it, and what stopped can go on."
    )


def _write(control: ControlPlane, missing: list[Missing]) -> None:
    where = _named([one.where.at for one in missing])
    try:
        control.ask(write_markers, control.admin, missing)
    except EnvironmentRefused as error:
        if not is_not_allowed(error):
            raise
        raise EnvironmentRefused(
            f"Kafka has not written the ends of {len(missing)} transactions of this job to "
            f"partitions {where}: they had no leader then (KAFKA-20734, Kafka 4.3.0 to 4.4.0). "
            "Rows there, and all behind them, are hidden from read_committed readers until that is "
            "mended, and this principal may not do it. "
            "Nothing is lost. Allow it Alter on the cluster for one start of the query: it writes "
            "what is missing and goes on."
        ) from error
    log.warning(
        "Kafka had not written the ends of %d transactions of this job to partitions %s: they had "
        "no leader then (KAFKA-20734, Kafka 4.3.0 to 4.4.0). They are written now (%d committed).",
        *(len(missing), where, sum(one.commit for one in missing)),
    )


def _tell_not_seen(control: ControlPlane, topic: str, error: EnvironmentRefused) -> None:
    """Once for each topic. Brokers that lack the request are none of Apache Kafka."""
    if is_not_offered(error):
        return
    if not is_not_allowed(error):
        raise error
    if _is_new(control, topic):
        log.warning(
            "A transaction is open in topic '%s'. Whether it has ended, and Kafka has left that "
            "out (KAFKA-20734, Kafka 4.3.0 to 4.4.0), cannot be seen: the principal has no Read on "
            "the topic.",
            topic,
        )


def _tell_of_unknown(control: ControlPlane, there: Collection[Open]) -> None:
    """Once for each topic. It may be another program's, whose ids may not be seen."""
    for one in sorted(there):
        _is_new(control, one)  # and not waited for again
        if _is_new(control, ("unknown", one.topic)):
            log.warning(
                "A transaction is open in partition %d of topic '%s' from offset %d on, and no "
                "coordinator tells whose it is (producer %d, epoch %d). If it stays open, readers "
                "of the partition stand still there: 'eo-kafka txn list --topic' says more.",
                *(one.partition, one.topic, one.start, one.producer_id, one.epoch),
            )


def _is_new(control: ControlPlane, said: object) -> bool:
    told = _told.setdefault(control, set())
    is_new = said not in told
    told.add(said)
    return is_new


def _named(places: Collection[TopicPartition]) -> str:
    named = [f"{topic}-{partition}" for topic, partition in sorted(set(places))]
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return ", ".join(named[:_SHOWN]) + more
