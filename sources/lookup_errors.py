"""Explains brokers' errors that a look-up meets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


def is_wrong_setting(error: KafkaError) -> bool:
    """Whether no broker will ever talk to a client with these settings."""
    from confluent_kafka import KafkaError

    return error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL)


def is_of_old_metadata(error: KafkaError) -> bool:
    """Whether the client knows the leaders of a time that is over. librdkafka's admin does not ask
    for them again by itself after these."""
    from confluent_kafka import KafkaError

    return error.code() in (KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH)


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
