"""What a write needs before its first task: its topics, and the time for its transactions.

Runs on the driver, once per process and ledger.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...clients.kafka import control_plane, transactional_producer
from ...clients.kafka.cluster import connect
from ...clients.kafka.option_checks import ALLOWED_BY_BROKERS
from ...clients.kafka.topics import TIMEOUT_S, contact_of, exists, metadata, settings_of
from ...core.errors import EnvironmentRefused, SinkError, Unreachable
from ...core.patience import Wait
from ...state.ledger import topics
from ...state.snapshots.checkpoint import open_checkpoint
from ...state.snapshots.offset_log import batches_in
from .. import new_topics
from ..new_topics import NewTopics
from ..options import SinkOptions

log = logging.getLogger(__name__)
OUTPUT_TIMEOUT_S = 5.0  # for a topic made a moment ago
_checked: set[tuple[object, ...]] = set()
_allowed_ms: dict[str, int] = {}


def ensure(options: SinkOptions) -> None:
    """Create or check ledger and state topic, and check (with option `createTopics`: create) the
    output topic, and check that the cluster can do it.

    Raises EnvironmentRefused with one sentence for each thing that is wrong; SinkError for a
    continuous query.
    """
    _, ledger = options.job_and_ledger
    servers = options.kafka.get("bootstrap.servers", "")
    key = (
        *(servers, ledger, options.snapshots, options.state_topic, options.allow_weak_replication),
        *(options.topic, options.dead_letter_topic, repr(options.new_topics)),
        options.transaction_timeout_ms,
    )
    if key in _checked:
        return
    admin, brokers = connect(options.kafka, TIMEOUT_S)
    control_plane.shared(options.kafka).check_offers()
    _check_first_start(options, admin, ledger)
    _check_topics(options, admin)  # first: without an output topic there will be no ledger
    topics.ensure(options, admin, brokers)
    check_timeout(admin, options)
    _checked.add(key)


def _check_first_start(options: SinkOptions, admin: Any, ledger: str) -> None:
    """Raise SinkError if Spark runs the query without batches. Its continuous engine takes a Python
    sink, gives it no row, and never ends; that its trigger is one, Spark tells nobody. But a batch
    is in `offsets`, and not in `commits`, before its writer is asked for anything."""
    if options.query_id is None or options.checkpoint is None or options.may_pass_batches:
        return
    if exists(admin, ledger):  # to list a checkpoint at each start takes long
        return
    checkpoint = open_checkpoint(options.checkpoint)
    paths = checkpoint.paths()
    planned, done = (batches_in(name, paths) for name in ("offsets", "commits"))
    if planned[-1:] == done[-1:]:
        raise SinkError(
            "Spark has planned no batch of this query: its trigger is 'continuous', for which "
            "Python sinks are not made. Nothing was written, and no topic was made. Start it with "
            "another trigger, such as processingTime='1 second'."
        )
    tell_of_gaps(checkpoint.url, planned)


def tell_of_gaps(checkpoint: str, planned: Sequence[int]) -> None:
    """Warn if another sink's batches were not all noted: Spark's own has an option for that. Old
    ones go from the front only."""
    if len(planned) > 1 and len(planned) <= planned[-1] - planned[0]:
        log.warning(
            "Checkpoint '%s' lacks batches between %d and %d: Spark's sink noted only some of them "
            "(its option asyncProgressTrackingEnabled). What it sent after batch %d, the newest "
            "noted, is sent again now, unless it was ended as docs/how-to/migrate-a-job.md says. "
            "'eo-kafka verify' shows what is there twice.",
            *(checkpoint, planned[0], planned[-2], planned[-2]),
        )


def check_timeout(admin: Any, options: SinkOptions) -> None:
    """A transaction may not ask for more time than any broker gives; the driver's own ask for as
    much as there is."""
    found = _allowed_by_brokers(admin)
    if seen := [allowed for allowed in found.values() if allowed is not None]:
        transactional_producer.allow(options.kafka, min(seen))
    for broker, allowed in found.items():
        if allowed is not None and allowed < options.transaction_timeout_ms:
            raise EnvironmentRefused(
                f"Broker {broker} allows transactions of {allowed} ms "
                "(transaction.max.timeout.ms), and kafka.transaction.timeout.ms is "
                f"{options.transaction_timeout_ms}. Raise the first or lower the second. A "
                "batch, from its first row to its commit, must fit into it."
            )


def with_allowed_timeout(options: SinkOptions) -> SinkOptions:
    """With option `transactionTimeout` `max`: the longest that every broker allows. Runs on the
    driver, before tasks are told. Raises EnvironmentRefused if it may not be seen, Unreachable if
    a broker is away."""
    if options.timeout_ms != ALLOWED_BY_BROKERS:
        return options
    servers = options.kafka.get("bootstrap.servers", "")
    if servers not in _allowed_ms:
        admin, _ = connect(options.kafka, TIMEOUT_S)
        found = _all_allow(admin, servers).values()
        seen = [allowed for allowed in found if allowed is not None]
        if len(seen) < len(found):
            raise EnvironmentRefused(
                "Option 'transactionTimeout' is 'max', and this principal may not see what the "
                "brokers allow (transaction.max.timeout.ms). Grant it DescribeConfigs on the "
                "cluster, or give a time."
            )
        _allowed_ms[servers] = min(seen)
    return replace(options, timeout_ms=_allowed_ms[servers])


def _all_allow(admin: Any, servers: str) -> dict[int, int | None]:
    """As `_allowed_by_brokers`, of which each answers; one that is away is soon none of them."""
    wait = Wait(contact_of(admin), TIMEOUT_S)
    while True:
        try:
            if found := _allowed_by_brokers(admin, must_answer=True):
                return found
            raise Unreachable(f"No broker is ready at {servers}. Start again when one is.")
        except Unreachable as error:
            if not wait.goes_on(True, str(error)):
                raise
        time.sleep(0.2)


def _allowed_by_brokers(admin: Any, *, must_answer: bool = False) -> dict[int, int | None]:
    """For how many milliseconds each broker lets a transaction be open; None where this principal
    may not see it."""
    from confluent_kafka.admin import ResourceType

    found: dict[int, int | None] = {}
    for broker in metadata(admin).brokers:
        config = settings_of(admin, str(broker), ResourceType.BROKER, must_answer=must_answer)
        allowed = config.get("transaction.max.timeout.ms")
        found[broker] = None if allowed is None else int(allowed)
    return found


def check_output(options: SinkOptions) -> None:
    """Check what a write needs that has no ledger: the topic, and the time for transactions."""
    servers = options.kafka.get("bootstrap.servers", "")
    outputs = (options.topic, options.dead_letter_topic)
    if not options.exactly_once and (not any(outputs) or (servers, *outputs) in _checked):
        return
    admin, _ = connect(options.kafka, TIMEOUT_S)
    if options.exactly_once:
        control_plane.shared(options.kafka).check_offers()
        check_timeout(admin, options)
    _check_topics(options, admin)
    _checked.add((servers, *outputs))


def _check_topics(options: SinkOptions, admin: Any) -> None:
    """Raise EnvironmentRefused unless the output topic and that of dead letters exist, and the
    latter keeps them. With option `createTopics` they are made."""
    new, letters = options.new_topics, options.dead_letter_topic
    if options.topic is not None:
        _await_topic(admin, "'topic' (of an eo-map: 'map')", options.topic, new)
    if letters is not None:
        _await_topic(admin, "'deadLetterTopic'", letters, new and new.of_letters())
        if problem := forgets_letters(settings_of(admin, letters)):
            raise EnvironmentRefused(
                f"Dead letter topic '{letters}' {problem} Nothing was written."
            )


def _await_topic(admin: Any, option: str, topic: str, new: NewTopics | None) -> None:
    """A topic that was made a moment ago is not known to every broker at once."""
    if new is not None:
        new_topics.ensure(admin, topic, new)
    deadline = None
    while not exists(admin, topic):
        deadline = deadline or time.monotonic() + OUTPUT_TIMEOUT_S
        if time.monotonic() > deadline:
            raise EnvironmentRefused(
                f"Topic '{topic}' does not exist, and a write creates none, whatever the "
                "broker's auto.create.topics.enable. Nothing was written. Create it (eo-kafka "
                f"topic create {topic}:PARTITIONS, or option 'createTopics'), or correct option "
                f"{option}."
            )
        time.sleep(0.2)


def forgets_letters(settings: Mapping[str, str]) -> str | None:
    """What is wrong with the settings of a topic for dead letters, as the end of a sentence. They
    have the keys of the records that they were, or none."""
    if "compact" not in settings.get("cleanup.policy", ""):
        return None
    return (
        f"is compacted (cleanup.policy={settings['cleanup.policy']}): of dead letters with the "
        "same key it keeps the newest one only, and it refuses those without a key. Set the policy "
        "to 'delete'."
    )
