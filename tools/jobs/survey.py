"""Looks at all jobs of a cluster. Only reads, and fences nobody.

Transactions are listed before the ledgers are read, as tools/transactions/verdict.py needs it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import Any

from ...clients.kafka.cluster import connect
from ...clients.kafka.hidden_ids import hidden, not_described, of_no_prefix
from ...clients.kafka.topics import TIMEOUT_S
from ...clients.kafka.transactional_id import TransactionalIds, parse_id
from ...core.offsets import TopicPartition
from ...core.transaction import Described
from ...state.ledger.owner import anothers, ids_of_batches, is_of
from ...state.snapshots import export
from ..transactions.search import TransactionSearch
from .standing import Lag, Standing, State, lag_of, newest_of, read_offsets, standing
from .tails import Tail, ends, read_tails
from .watchers import watches

NOT_SEEN = (
    "Transactions are open and no ledger of theirs is seen: a batch save(), a job with option "
    "ledgerTopic (give --job and --ledger-topic), or a ledger that this principal may not Describe."
)


def survey(
    settings: Mapping[str, str],
    named: Mapping[str, str],
    only: str | None = None,
    prefix: str = "",
) -> list[Standing]:
    """Every job, by name; `only`: of this one alone. `named`: topic -> job, of ledgers whose names
    are not the default; one that is another job's cannot be read. `prefix`: of the transactional
    ids, where no batch tells it. Raises EnvironmentRefused, OutcomeUnknown: nothing can be seen."""
    with closing(Onlooker(settings, named)) as onlooker:
        return onlooker.look(only, prefix)


class Onlooker:
    """The same again and again, by clients that it keeps: a connection costs brokers more than a
    question. One thread at a time uses it; after an error it is closed, and another one made.
    Raises EnvironmentRefused."""

    def __init__(self, settings: Mapping[str, str], named: Mapping[str, str]) -> None:
        self._settings, self._named = settings, named
        self._admin, _ = connect(settings, TIMEOUT_S)
        self._search = TransactionSearch(settings, named)
        self._known: dict[str, tuple[str, Tail]] = {}  # by ledger: its topic's id, what it says

    def close(self) -> None:
        """Its connections."""
        self._search.close()

    def look(self, only: str | None = None, prefix: str = "") -> list[Standing]:
        """As `survey`."""
        search, admin = self._search, self._admin
        described = list(search.describe(_ours(search)).values())
        ledgers = {topic: job for topic, job in search.ledgers().items() if only in (None, job)}
        metadata = admin.list_topics(timeout=TIMEOUT_S).topics
        ids = search.look(others=ledgers).topic_ids if ledgers else {}
        same = {one: tail for one, (of, tail) in self._known.items() if ids.get(one) == of}
        tails = read_tails(self._settings, admin, ledgers, known=same)
        for topic in tails.keys() & self._named.keys():
            tail = tails[topic]
            tail.problem = tail.problem or anothers(search, topic, ledgers[topic], tail.ledger)
        self._known = {one: (ids[one], tails[one]) for one in ids if not tails[one].problem}
        lags = _lags(search, admin, tails, metadata)
        watched = watches(self._settings, admin, ledgers.values(), metadata)
        of_jobs = {job: tails[topic] for topic, job in ledgers.items()}
        unseen = _hidden(search, described, of_jobs, prefix)
        now_ms = int(time.time() * 1000)
        found: list[Standing] = []
        with_ledger: set[str] = set()
        for topic, job in sorted(ledgers.items(), key=lambda one: one[1]):
            mine = [one for one in described if is_of(one.transactional_id, job)]
            with_ledger.update(one.transactional_id for one in mine)
            exports = [name for other in metadata if (name := export.name_in(other, job))]
            others = unseen.get(job, "")
            known = standing(job, tails[topic], mine, lags[topic], sorted(exports), now_ms, others)
            found.append(replace(known, watch=watched.get(job)))
        if only is None:
            rest = [one for one in described if one.transactional_id not in with_ledger]
            found += _without_ledger(rest, now_ms)
        return found


class Onlooking:
    """An onlooker for as long as a command runs: a new one after an error."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._onlooker: Onlooker | None = None

    def look(self, only: str | None = None) -> list[Standing]:
        """As `survey`. One thread at a time."""
        try:
            self._onlooker = self._onlooker or Onlooker(self._settings, {})
            return self._onlooker.look(only)
        except BaseException:
            if self._onlooker is not None:
                self._onlooker.close()
            self._onlooker = None
            raise


def _ours(search: TransactionSearch) -> list[str]:
    return [name for name in search.ids("") if parse_id(name) is not None]


def _hidden(
    search: TransactionSearch,
    described: Collection[Described],
    tails: Mapping[str, Tail],
    prefix: str,
) -> dict[str, str]:
    """Of jobs, a sentence where their transactional ids may be hidden from this principal. Batches,
    or what is seen open, tell a job's prefix; without them it may be any."""
    asked: dict[str, tuple[str, str]] = {}
    for job, tail in tails.items():
        of_job = [name for one in described if is_of(name := one.transactional_id, job)]
        known = (
            parts.prefix
            for parts in map(parse_id, chain(ids_of_batches(tail.ledger), of_job))
            if parts
        )
        told = next(known, prefix)
        asked[TransactionalIds(told or of_no_prefix(), job).coordinator] = job, told
    return {
        job: not_described(prefix)
        for job, prefix in (asked[name] for name in hidden(search, asked))
    }


def _without_ledger(rest: list[Described], now_ms: int) -> list[Standing]:
    by_hash = defaultdict(list)
    for one in rest:
        parts = parse_id(one.transactional_id)
        assert parts is not None
        by_hash[f"{parts.prefix}.{parts.job_hash}"].append(one)
    found = []
    for name, some in sorted(by_hash.items()):
        known = standing(name, Tail("", problem=NOT_SEEN), some, Lag(), (), now_ms)
        if known.open_count:
            found.append(replace(known, state=State.NO_LEDGER))
    return found


def _lags(
    search: TransactionSearch, admin: Any, tails: Mapping[str, Tail], metadata: Mapping[str, Any]
) -> dict[str, Lag]:
    read = {topic: read_offsets(tail.ledger) for topic, tail in tails.items()}
    places = {at for one in read.values() if not isinstance(one, str) for at in one}
    there = {at for at in places if _is_there(at, metadata)}
    sources = {at.topic for at in there}
    ids = search.look(others=sources).topic_ids if sources else {}
    begin = ends(admin, there, "earliest")
    stand = ends(admin, there, "latest", committed=True)
    partitions = {topic: list(metadata[topic].partitions) for topic in sources}
    found = {}
    for topic, tail in tails.items():
        newest = newest_of(tail.ledger)
        recorded = dict(newest.source_ids) if newest else {}
        found[topic] = lag_of(read[topic], recorded, ids, begin, stand, partitions)
    return found


def _is_there(at: TopicPartition, metadata: Mapping[str, Any]) -> bool:
    return at.topic in metadata and at.partition in metadata[at.topic].partitions
