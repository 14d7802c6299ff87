"""What the cluster tells of a sink besides: `eo-kafka doctor`'s checks, and who reads the output.

Looks only. A broker that is away is told, not raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any

from ...clients.kafka.cluster import connect
from ...clients.kafka.topics import TIMEOUT_S
from ...core.errors import EoKafkaError
from ...core.options import KAFKA_PREFIX
from ...sinks.options import TOPIC, TRANSACTION_TIMEOUT, SinkOptions
from ...state.ledger.job import of_job
from ..doctor.cluster_check import check_cluster
from ..doctor.command import told_as_findings
from ..doctor.machine_check import Level
from .pipeline import End

GROUPS_MAX = 500
_GROUPS_NAMED = 5


def warnings(sink: End, options: Mapping[str, str]) -> tuple[str, ...]:
    """What is wrong on the sink's cluster, a sentence each. `options`: the sink's, with those of
    the connection."""
    if f"{KAFKA_PREFIX}bootstrap.servers" not in {name.lower() for name in options}:
        return ()
    try:
        parsed = _options(options)
        with told_as_findings():
            findings = check_cluster(parsed)
        told = [
            f"{found.subject}: {found.text}"
            for found in findings
            if found.level in (Level.PROBLEM, Level.WARNING)
        ]
        topic = sink.options.get("topic")
        return (*told, *(_readers(parsed, topic) if topic else ()))
    except EoKafkaError as error:
        return (f"The cluster was not looked at: {error}",)


def _options(options: Mapping[str, str]) -> SinkOptions:
    """As `eo-kafka doctor` has them: what else the sink is told is for its rows."""
    lower = {name.lower(): value for name, value in options.items()}
    job = lower.get("jobname") or lower.get("queryname")
    known = (TOPIC.key, TRANSACTION_TIMEOUT.key)
    if job:
        given = of_job(job, lower)
    else:
        given = {name: value for name, value in lower.items() if name.startswith(KAFKA_PREFIX)}
    given |= {name: lower[name] for name in known if name in lower}
    return SinkOptions.parse(given, streaming=bool(job))


def _readers(options: SinkOptions, topic: str) -> Iterator[str]:
    groups = groups_of(options.kafka, topic)
    if groups is None:
        yield f"Who reads '{topic}' is not known: this principal may not see the groups."
    elif groups:
        named = ", ".join(groups[:_GROUPS_NAMED])
        left = len(groups) - _GROUPS_NAMED
        more = f" and {left} more" if left > 0 else ""
        yield (
            f"These consumer groups read '{topic}': {named}{more}. "
            "Kafka does not tell whether they read uncommitted records: look for "
            "isolation.level=read_committed in their settings. Java's clients, and Spark's own "
            "connector, read uncommitted records unless they are told."
        )


def groups_of(settings: Mapping[str, str], topic: str) -> list[str] | None:
    """The consumer groups that have committed offsets of a topic; None: that may not be seen."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

    admin: Any = connect(settings, TIMEOUT_S)[0]
    try:
        listed = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    except (KafkaException, FutureTimeout):
        return None
    asked: dict[str, Any] = {}
    for name in sorted(group.group_id for group in listed.valid)[:GROUPS_MAX]:
        asked |= admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
    found = []
    for name, future in asked.items():
        with suppress(KafkaException, FutureTimeout):
            parts = future.result(TIMEOUT_S).topic_partitions
            if any(part.topic == topic and part.offset >= 0 for part in parts):
                found.append(name)
    return found
