"""Translates `kafka.*` settings for both Kafka clients, and makes all librdkafka clients.

The data plane is librdkafka (confluent-kafka); its names are the ones users write after `kafka.`.
The control plane is kafka-python, which has keyword arguments of its own, and Python's `ssl`.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from typing import Any

from . import outages
from .login import oauth, token_feed
from .login.tls import tls_context

# librdkafka's name -> kafka-python's. What is not here is of the data plane only, or of tls.py.
_CONTROL_NAMES = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}
# What of them says who one is, without a secret: the name is kept where others may read it.
_LOGIN = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "ssl.certificate.location",
)
# What describes how to reach the cluster; an AdminClient takes these and no producer's settings.
_CONNECTION_PREFIXES = (
    "bootstrap.servers",
    "client.",
    "security.",
    "sasl.",
    "oauth_cb",
    "https.ca.",
    "ssl.",
    "enable.ssl.",
    "broker.address.",
    "socket.",
    "reconnect.",
    "metadata.max.age",
    "connections.",
)

# librdkafka leaves the connection it began with once it knows the brokers, and waits for half of
# reconnect.backoff.ms before it makes the next: by default 50 ms of the 60 that a client needs to
# be ready. 11 ms are the least that it waits. The second bounds how long a client that is kept goes
# on waiting when Kafka is back.
_QUICK_CONNECT = {"reconnect.backoff.ms": "22", "reconnect.backoff.max.ms": "1000"}

# librdkafka writes to stderr, past `logging`, of every attempt of every client. What it has to say
# comes as errors, too: of a call, or to the callback. `kafka.debug` is louder than this.
_QUIET = {"log_level": "0"}

# Clients are kept for as long as a query lives, and librdkafka keeps connections for ever. What is
# between forgets a flow that nothing goes over, after four minutes or more, and tells nobody: the
# next request would get no answer.
_IDLE = {"connections.max.idle.ms": "180000"}

# What every client of ours is made with, over all else.
_ALWAYS = {
    # To ask a broker of a topic by name, or to write to it, creates it where the broker's
    # auto.create.topics.enable is true, Kafka's default: a ledger would be born that Kafka deletes
    # by age. Producers and admin clients of librdkafka allow that unless told.
    "allow.auto.create.topics": "false",
}


def admin_client(settings: Mapping[str, Any]) -> Any:
    """An AdminClient. Raises KafkaException for settings that are refused, EnvironmentRefused where
    a login by OAuth gets no token; the next three do, too."""
    from confluent_kafka.admin import AdminClient

    return token_feed.make(AdminClient, _ours(settings))


def producer(settings: Mapping[str, Any]) -> Any:
    """A Producer."""
    from confluent_kafka import Producer

    return token_feed.make(Producer, _ours(settings))


def consumer(settings: Mapping[str, Any]) -> Any:
    """A Consumer."""
    from confluent_kafka import Consumer

    return token_feed.make(Consumer, _ours(settings))


def share_consumer(settings: Mapping[str, Any]) -> Any:
    """A ShareConsumer, which librdkafka calls a preview."""
    from confluent_kafka import ShareConsumer

    ours = _ours(settings)  # it takes none of _ALWAYS, and creates no topic
    taken = {name: value for name, value in ours.items() if name not in _ALWAYS}
    return token_feed.make(ShareConsumer, taken, by_callback=True)  # its handle is another


def _ours(settings: Mapping[str, Any]) -> dict[str, Any]:
    told_too = settings.get("error_cb")

    def told(error: Any) -> None:
        outages.told(error)
        if told_too is not None:
            told_too(error)

    return {**_QUIET, **_IDLE, **settings, **_ALWAYS, "error_cb": told}


def topic_ids(described: Mapping[str, Any]) -> dict[str, str]:
    """Topic -> its id, from answers of an AdminClient, as kafka-python and the ledger write it."""
    found = {}
    for topic, description in described.items():
        halves = description.topic_id
        high, low = halves.get_most_significant_bits(), halves.get_least_significant_bits()
        if high or low:  # a broker that knows no ids says 0
            found[topic] = str(uuid.UUID(bytes=struct.pack(">qq", high, low)))
    return found


class _Hidden(str):
    """A secret for kafka-python, which logs its settings at DEBUG: the repr does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'(hidden)'"


def quick_connect(settings: Mapping[str, str]) -> dict[str, str]:
    """What makes librdkafka ready sooner, unless the user says how to reconnect."""
    given = any(name.startswith("reconnect.") for name in settings)
    return {} if given else dict(_QUICK_CONNECT)


def contact(settings: Mapping[str, str]) -> str:
    """Whom one waits for, for `patience.py`: the servers, and who one is to them. Where one login
    has worked, another one has not been served yet."""
    login = [f"{name}={settings[name]}" for name in _LOGIN if settings.get(name)]
    return " ".join([settings.get("bootstrap.servers", ""), *login])


def connection_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The part of `settings` that says how to reach the cluster."""
    return {
        name: value for name, value in settings.items() if name.startswith(_CONNECTION_PREFIXES)
    }


def control_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """Keyword arguments for kafka-python's clients. Raises OptionsError for TLS settings that the
    control plane cannot use: files that cannot be read, a wrong key password, PKCS#12;
    EnvironmentRefused where a login by OAuth gets no token."""
    control: dict[str, Any] = {
        _CONTROL_NAMES[name]: value for name, value in settings.items() if name in _CONTROL_NAMES
    }
    control["security_protocol"] = control.get("security_protocol", "PLAINTEXT").upper()
    if "sasl_plain_password" in control:
        control["sasl_plain_password"] = _Hidden(control["sasl_plain_password"])
    if tokens := oauth.provider(settings):
        control["sasl_mechanism"] = oauth.MECHANISM
        control["sasl_oauth_token_provider"] = tokens
    if control["security_protocol"].endswith("SSL"):
        control["ssl_context"] = tls_context(settings)
    return control
