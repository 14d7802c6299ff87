"""What `eo-kafka doctor` checks of a cluster: versions, limits, transactions. Its topics are
`topic_check`'s.

Looks only. `topic_rehearsal` is what writes, if it was asked for.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from ...clients.kafka import topic_lists
from ...clients.kafka.cluster import connect
from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.topics import settings_of
from ...clients.kafka.transactional_id import TransactionalIds
from ...core.errors import EnvironmentRefused, OutcomeUnknown
from ...core.transaction import TransactionState, alarm_ms
from ...sinks.options import SinkOptions
from ...sinks.protocol.preflight import check_timeout
from ...state.ledger import topics as ledger_topic
from ...state.ledger.appender import TRANSACTION_TIMEOUT_MS
from ..shared.command_line import duration, on_terminal
from ..transactions.search import TransactionSearch
from ..transactions.verdict import OPEN_STATES
from . import request_check, topic_check
from .machine_check import Finding, Level

TIMEOUT_S = 30.0
OLDEST_TESTED = (3, 9)
_DAY_MS = 24 * 3600 * 1000


class ClusterView(ControlPlane):
    """A control plane that also tells brokers' versions."""

    def broker_version(self, node: int) -> tuple[int, ...]:
        """Kafka's version of a node, as far as its list of requests gives it away."""
        found = self.call(self.admin.get_broker_version_data, node)
        return tuple(found.broker_version)

    def requests_of(self, node: int) -> dict[int, tuple[int, int]]:
        """The requests that a node offers: key -> least and greatest version."""
        return dict(self.call(self.admin.get_broker_version_data, node).api_versions)


def check_cluster(options: SinkOptions) -> list[Finding]:
    """All checks that the options allow: those of the topic and of the job need their names.
    Raises EnvironmentRefused if no broker can be reached."""
    admin, brokers = connect(options.kafka, TIMEOUT_S)
    findings = [_brokers(brokers, options)]
    with closing(ClusterView(options.kafka)) as view:
        findings += _tried("broker version", lambda: list(_versions(view, admin)))
        findings += _tried("topic ids", lambda: _topic_ids(view, admin))
        findings += _tried("transactional ids", lambda: [_may_describe_ids(view, options)])
    findings += _tried("open transactions", lambda: [_open(options)])
    findings += _tried("broker limits", lambda: list(_limits(admin, options)))
    if brokers > 1:
        problems = ledger_topic.transaction_log_problems(admin)
        findings += topic_check.durability(ledger_topic.TRANSACTION_LOG, problems)
    return [*findings, *check_topics(options, admin, brokers)]


def check_topics(options: SinkOptions, admin: Any, brokers: int) -> list[Finding]:
    """Those of the topics that the options name, and of the job's own."""
    findings: list[Finding] = []
    for subject, check in topic_check.checks(options, admin, brokers):
        findings += _tried(subject, check)
    return findings


def _tried(subject: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """One refusal must not hide what the other checks find."""
    try:
        return check()
    except (EnvironmentRefused, OutcomeUnknown) as error:
        return [Finding(Level.PROBLEM, subject, str(error))]


def _brokers(brokers: int, options: SinkOptions) -> Finding:
    servers = options.kafka["bootstrap.servers"]
    if brokers == 1:
        text = f"one live broker at {servers}: exactly-once holds as long as its disk survives"
        return Finding(Level.WARNING, "brokers", text)
    return Finding(Level.OK, "brokers", f"{brokers} live at {servers}")


def _versions(view: ClusterView, admin: Any) -> Iterator[Finding]:
    for node in sorted(admin.list_topics(timeout=TIMEOUT_S).brokers):
        version = view.broker_version(node)
        text = f"node {node} speaks Kafka {'.'.join(map(str, version))}"
        if version[:2] < OLDEST_TESTED:
            text += "; the oldest that was tested is " + ".".join(map(str, OLDEST_TESTED))
            yield Finding(Level.WARNING, "broker version", text)
        else:
            yield Finding(Level.OK, "broker version", text)
        yield from request_check.offered(node, view.requests_of(node))
    level = view.transaction_version()
    if level >= 2:
        text = f"finalized at {level}: each transaction has an epoch of its own (EndTxn 5)"
        yield Finding(Level.OK, "transaction.version", text)
        return
    text = (
        f"finalized at {level}: exactly-once holds (EndTxn 3), but a task that was cut off may "
        "open a transaction after its batch, which holds up readers until it times out. Kafka 4 "
        "with transaction.version=2 ends that (kafka-features.sh upgrade)."
    )
    yield Finding(Level.NOTE, "transaction.version", text)


def _topic_ids(view: ControlPlane, admin: Any) -> list[Finding]:
    """Whether a topic that is made again is told from the one before. Nothing, where no topic is to
    be seen; of the first ten, one may just be deleted."""
    some = sorted(admin.list_topics(timeout=TIMEOUT_S).topics)[:10]
    if not some or view.look(others=some).topic_ids:
        return []
    return [Finding(Level.WARNING, "topic ids", topic_lists.NO_IDS)]


def _may_describe_ids(view: ClusterView, options: SinkOptions) -> Finding:
    """Brokers refuse to describe an id that the principal has no Describe on."""
    name = TransactionalIds(options.prefix, options.job or "doctor").coordinator
    try:
        found = view.describe_one(name)
    except EnvironmentRefused:
        text = (
            f"this principal may not Describe '{name}': grant Describe and Write on transactional "
            f"ids with prefix '{options.prefix}.'"
        )
        return Finding(Level.PROBLEM, "transactional ids", text)
    known = "" if found.state is TransactionState.MISSING else f" (it is {found.state.value})"
    return Finding(Level.OK, "transactional ids", f"'{name}' may be described{known}")


def _open(options: SinkOptions) -> Finding:
    """Those of all jobs under the prefix. Nobody but an operator sees those of a job that is down:
    they hold up readers for as long as their timeout is."""
    subject, now_ms = "open transactions", int(time.time() * 1000)
    with closing(TransactionSearch(options.kafka, {})) as search:
        found = search.describe(search.ids(re.escape(f"{options.prefix}.")))
        unseen = search.hidden_jobs(options.prefix, [options.job] if options.job else [])
    if unseen:
        return Finding(Level.WARNING, subject, *unseen.values())
    ages = {
        one.transactional_id: (now_ms - one.start_ms) / 1000
        for one in found.values()
        if one.state in OPEN_STATES and one.start_ms > 0
    }
    if not ages:
        return Finding(Level.OK, subject, f"none under prefix '{options.prefix}'")
    oldest = max(ages, key=lambda name: ages[name])
    text = f"{len(ages)} under prefix '{options.prefix}', the oldest for {duration(ages[oldest])}"
    if ages[oldest] * 1000 <= alarm_ms(found[oldest].timeout_ms):
        return Finding(Level.OK, subject, text)
    left = duration(found[oldest].remaining_ms(now_ms) / 1000)
    text += (
        f" ('{on_terminal(oldest)}', {left} until Kafka aborts it): read_committed readers wait "
        "for it. 'eo-kafka txn list --older-than 10m' says whose it is, and what to do"
    )
    return Finding(Level.WARNING, subject, text)


def _limits(admin: Any, options: SinkOptions) -> Iterator[Finding]:
    from confluent_kafka.admin import ResourceType

    node = min(admin.list_topics(timeout=TIMEOUT_S).brokers)
    config = settings_of(admin, str(node), ResourceType.BROKER)
    if not config:
        text = (
            "not visible: this principal has no DescribeConfigs on the cluster, so the limits are "
            "found out only when a transaction hits them"
        )
        yield Finding(Level.WARNING, "broker limits", text)
        return
    ours = options.transaction_timeout_ms
    try:
        check_timeout(admin, options)
        allowed_ms = int(config["transaction.max.timeout.ms"])
        text = f"{duration(allowed_ms / 1000)}, the sink asks for {duration(ours / 1000)}"
        if allowed_ms < TRANSACTION_TIMEOUT_MS:
            usual = duration(TRANSACTION_TIMEOUT_MS / 1000)
            text += f"; what the driver writes has no longer either, elsewhere {usual}"
        yield Finding(Level.OK, "transaction.max.timeout.ms", text)
    except EnvironmentRefused as error:
        yield Finding(Level.PROBLEM, "transaction.max.timeout.ms", str(error))
    yield Finding(Level.OK, "message.max.bytes", f"{int(config['message.max.bytes']):,}")
    expires = int(config["transactional.id.expiration.ms"])
    text = f"{duration(expires / 1000)}: transactional ids are forgotten after so long"
    if expires >= _DAY_MS:
        yield Finding(Level.OK, "transactional.id.expiration.ms", text)
        return
    text += (
        ". A batch fails whose tasks have not written by then, and a job that was down for longer "
        "does not notice that its ledger was deleted: set a day or more"
    )
    yield Finding(Level.WARNING, "transactional.id.expiration.ms", text)
