"""What is asked of a cluster for the page: by the functions that the commands ask with.

Only reads, and fences nobody.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from ...clients.kafka.cluster import connect
from ...clients.kafka.topics import TIMEOUT_S, exists, settings_of
from ...core.options import KAFKA_PREFIX
from ...state import view
from ...state.ledger.job import LEDGER, read_job
from ...state.ledger.job_topics import CONTROL_TOPIC, PLAN_TOPIC
from ...state.snapshots import export
from ...state.snapshots.export import LATEST
from ...state.snapshots.operators import Operator
from ...state.snapshots.search import Found, SnapshotSearch
from ..doctor.cluster_check import check_topics
from ..doctor.command import told_as_findings
from ..doctor.machine_check import Finding
from ..jobs.standing import Standing
from ..jobs.survey import Onlooker
from ..transactions.acting import options_for
from ..transactions.search import TransactionSearch
from ..transactions.verdict import Judged
from .looks import Look, Looks

JOBS_S, TRANSACTIONS_S, SNAPSHOTS_S, TOPICS_S = 1.5, 2.0, 30.0, 120.0
LAGS = 240  # of each job, one a look
SHOWN = (
    *("cleanup.policy", "retention.ms", "retention.bytes", "min.insync.replicas"),
    *("max.message.bytes", "unclean.leader.election.enable"),
)


@dataclass(frozen=True)
class Kept:
    """A job's snapshots, as `eo-kafka snapshots list` has them, and the operators of the newest."""

    found: Mapping[str, Found | None]
    operators: tuple[Operator, ...]


@dataclass(frozen=True)
class Topic:
    """`settings`: of those that matter here; none where they may not be seen."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]


@dataclass(frozen=True)
class TopicsSeen:
    """A job's topics that are there, and what doctor says of them."""

    topics: tuple[Topic, ...]
    findings: tuple[Finding, ...]


@dataclass
class Cluster:
    """`given`: the options `kafka.*`. `named`: topic -> job, of ledgers whose names are not the
    default. Its repr shows no setting."""

    given: Mapping[str, str] = field(repr=False)
    named: Mapping[str, str] = field(default_factory=dict)
    looks: Looks = field(default_factory=Looks, repr=False)
    lags: dict[str, deque[tuple[int, int | None]]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.settings = read_job("any", self.given).kafka
        self._lock = threading.Lock()
        self._onlooker: Onlooker | None = None

    @property
    def servers(self) -> str:
        """Where it is."""
        return self.given.get(f"{KAFKA_PREFIX}bootstrap.servers", "")

    def options_of(self, job: str) -> dict[str, str]:
        """Of the job's sink, as far as they are known here."""
        ledger = next((topic for topic, name in self.named.items() if name == job), "")
        return {**self.given, **({LEDGER.name: ledger} if ledger else {})}

    def jobs(self) -> Look[list[Standing]]:
        """Every job, as `eo-kafka job list` has it."""
        return self.looks.of("jobs", "", self._jobs, JOBS_S)

    def transactions(self, job: str) -> Look[list[Judged]]:
        """Those of a job, as `eo-kafka txn list --job` has them."""
        return self.looks.of("transactions", job, lambda: self._transactions(job), TRANSACTIONS_S)

    def on_topic(self, topic: str) -> Look[list[Judged]]:
        """Everybody's that are open on a topic, as `eo-kafka txn list --topic` has them."""
        return self.looks.of("on topic", topic, lambda: self._on_topic(topic), TRANSACTIONS_S)

    def snapshots(self, job: str) -> Look[Kept]:
        """Of a job, as `eo-kafka snapshots list` and `show` have them."""
        return self.looks.of("snapshots", job, lambda: self._snapshots(job), SNAPSHOTS_S)

    def topics(
        self, job: str, outputs: tuple[str, ...], inputs: tuple[str, ...]
    ) -> Look[TopicsSeen]:
        """A job's topics, and what `eo-kafka doctor --job --topic` says of them."""
        name = "\n".join((job, *outputs, "", *inputs))
        return self.looks.of("topics", name, lambda: self._topics(job, outputs, inputs), TOPICS_S)

    def _jobs(self) -> list[Standing]:
        if self._onlooker is None:
            self._onlooker = Onlooker(self.settings, self.named)
        try:
            found = self._onlooker.look()
        except BaseException:
            self._onlooker.close()
            self._onlooker = None
            raise
        now_ms = int(time.time() * 1000)
        with self._lock:
            for one in found:
                of_job = self.lags.setdefault(one.job, deque(maxlen=LAGS))
                of_job.append((now_ms, one.lag.behind))
            there = {one.job for one in found}
            for gone in self.lags.keys() - there:
                del self.lags[gone]
        return found

    def lags_of(self, job: str) -> list[tuple[int, int | None]]:
        """When it was looked at, and how far it was behind then."""
        with self._lock:
            return list(self.lags.get(job, ()))

    def _transactions(self, job: str) -> list[Judged]:
        with closing(TransactionSearch(self.settings, self.named)) as search:
            return search.of_job(job)

    def _on_topic(self, topic: str) -> list[Judged]:
        with closing(TransactionSearch(self.settings, self.named)) as search:
            return search.on_topic(topic)

    def _snapshots(self, job: str) -> Kept:
        search = SnapshotSearch(job, self.options_of(job))
        found = search.all()
        newest = found.get(LATEST)
        operators = search.operators(newest, search.manifest(newest)) if newest else []
        return Kept(found, tuple(operators))

    def _topics(self, job: str, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> TopicsSeen:
        admin, brokers = connect(self.settings, TIMEOUT_S)
        options = options_for(self.options_of(job), job)
        findings: list[Finding] = []
        with told_as_findings():
            for topic in outputs or (None,):
                found = check_topics(replace(options, topic=topic), admin, brokers)
                findings += [one for one in found if one not in findings]
        metadata = admin.list_topics(timeout=TIMEOUT_S).topics
        wanted = [*inputs, *outputs, options.ledger_topic or "", options.state_topic or ""]
        wanted += [one.format(job=job) for one in (CONTROL_TOPIC, PLAN_TOPIC)]
        wanted += sorted(t for t in metadata if export.name_in(t, job) or view.name_in(t, job))
        there = [name for name in dict.fromkeys(wanted) if name in metadata]
        return TopicsSeen(
            tuple(_topic(admin, name, metadata[name].partitions.values()) for name in there),
            tuple(findings),
        )


def _topic(admin: Any, name: str, partitions: Any) -> Topic:
    found = settings_of(admin, name) if exists(admin, name) else {}
    return Topic(
        name,
        len(partitions),
        min((len(one.replicas) for one in partitions), default=0),
        {setting: found[setting] for setting in SHOWN if setting in found},
    )
