"""Explains brokers' errors that a look-up meets."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ..core.errors import ReadTimeout, SourceError, UnknownTopic
from ..core.offsets import TopicPartition, names
from .settings.options import SourceOptions
from .settings.timeouts import lookup_timeout_s

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


def is_of_old_metadata(error: KafkaError) -> bool:
    """Whether the client knows the leaders of a time that is over. librdkafka's admin does not ask
    for them again by itself after these."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    )


def is_without_leader(error: KafkaError) -> bool:
    """Whether the brokers that hold a partition are away, or one of them is about to lead it.
    librdkafka says `_NOENT` where no partition that was asked for has a leader."""
    from confluent_kafka import KafkaError

    return error.code() in (KafkaError.LEADER_NOT_AVAILABLE, KafkaError._NOENT)


def is_denied(error: KafkaError) -> bool:
    """Whether the principal lacks a right: asking again will not help."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    )


def is_silence(error: KafkaError) -> bool:
    """Whether no broker answered."""
    from confluent_kafka import KafkaError

    silence = (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError._TRANSPORT)
    return error.code() in silence


def is_passing(error: KafkaError) -> bool:
    """Whether brokers say that another one leads, or that they are not ready yet. It takes as long
    as an election does, or a broker's start, or somebody's transaction. The client does not say of
    these that they are retriable, as Kafka calls them."""
    from confluent_kafka import KafkaError

    return is_of_old_metadata(error) or error.code() in (
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    )


def is_outage(error: KafkaError) -> bool:
    """Whether brokers are away, or not ready: one waits for them."""
    return is_silence(error) or is_without_leader(error) or is_passing(error)


def unreachable(options: SourceOptions, last: KafkaError | None) -> ReadTimeout:
    """What is said where no broker answers. `last`: what the client told last."""
    reason = f" The client's last error was: {last.str()}." if last else ""
    return ReadTimeout(
        f"No broker at '{options.servers}' answered within {_seconds(options)}, so no batch could "
        f"be planned.{reason} Check 'kafka.bootstrap.servers' and the network, or raise "
        "'fetchOffset.timeoutMs'."
    )


def led_by_old(options: SourceOptions, partitions: Collection[TopicPartition]) -> ReadTimeout:
    """What is said where only a leader of before answers."""
    return ReadTimeout(
        f"A broker that is not the leader of {names(partitions)} any more answers for them, and "
        f"'{options.servers}' names no other within {_seconds(options)}: it is cut off from the "
        "other brokers, or the cluster was restored from an older copy. No batch was planned. "
        "Start the query when the brokers are together again; after a restore, with a new "
        "checkpoint."
    )


def refused(options: SourceOptions, subject: str, error: KafkaError) -> SourceError:
    """What is said of a broker's error about `subject`."""
    from confluent_kafka import KafkaError

    if is_without_leader(error):
        return ReadTimeout(
            f"The {subject} has no leader: the brokers that hold it are away. No batch could be "
            f"planned within {_seconds(options)}. Start them, and then the query; or raise "
            "'fetchOffset.timeoutMs'."
        )
    if error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT:
        return ReadTimeout(
            f"The {subject} has committed offsets in a transaction that was open for all of "
            f"{_seconds(options)}: where the group is will be known when it ends. Nothing was "
            "read. 'eo-kafka txn list' says whose it is; start the query when it is ended, or "
            "raise 'fetchOffset.timeoutMs'."
        )
    if is_passing(error):
        return ReadTimeout(
            f"Looking up {subject} failed for {_seconds(options)}: {error.str()}. No batch could "
            "be planned. Start the query again when the brokers are together, or raise "
            "'fetchOffset.timeoutMs'."
        )
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return UnknownTopic(
            f"The {subject} does not exist on the cluster at '{options.servers}'. Create it, or "
            f"correct {options.topics_given_by}."
        )
    if is_denied(error):
        return SourceError(
            f"Not authorized to look up {subject} on the cluster at '{options.servers}': the "
            "query's principal needs DESCRIBE and READ on every topic it subscribes to, and "
            "DESCRIBE on a consumer group it starts from."
        )
    return SourceError(f"Looking up {subject} failed: {error.str()}.")


def _seconds(options: SourceOptions) -> str:
    return f"{lookup_timeout_s(options):g} s"
