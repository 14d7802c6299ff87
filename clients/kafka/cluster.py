"""Connects to a Kafka cluster, or says soon why that is not possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any

from ...core.errors import EnvironmentRefused, Unreachable, cut
from ...core.patience import Wait, patience_s
from .config import admin_client, connection_settings, contact
from .first_contact import nobody_listens
from .listener import Suspicion

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_REFUSALS = 3  # a broker that is just going down may refuse a connection or two


def connect(settings: Mapping[str, str], timeout_s: float) -> tuple[Any, int]:
    """An AdminClient that has reached the cluster, and the number of live brokers.

    Raises EnvironmentRefused within seconds when the brokers refuse the credentials, or one of the
    two sides the other's certificate, or the listener speaks another protocol; Unreachable within
    seconds when nothing listens at the first contact, after `timeout_s` when nothing answers, or
    later where brokers have served before.
    """
    from confluent_kafka import KafkaException

    servers = settings.get("bootstrap.servers", "")
    if problem := nobody_listens(servers, timeout_s):
        raise Unreachable(problem)
    whom = contact(settings)
    wait, timeout_s = Wait(whom, timeout_s), patience_s(whom, timeout_s)
    suspicion = Suspicion(settings)
    errors: list[KafkaError] = []
    client: dict[str, Any] = dict(connection_settings(settings))
    client["error_cb"] = errors.append
    try:
        admin = admin_client(client)
    except KafkaException as error:
        raise EnvironmentRefused(
            f"No client can be made of these 'kafka.*' settings: {cut(error.args[0].str())}."
        ) from None
    admin.servers, admin.contact = servers, whom  # for `topics.asked`
    future = admin.describe_cluster(request_timeout=timeout_s)
    while not future.done() and wait.goes_on(
        True, f"No Kafka broker at {servers} answers{_reason(errors)}."
    ):
        admin.poll(0.05)  # delivers the client's errors: a wrong password shows nowhere else
        refused = [error for error in errors if is_refusal(error)]
        if len(refused) >= _REFUSALS:
            raise EnvironmentRefused(
                f"The brokers at {servers} cannot be talked to with these 'kafka.*' settings: "
                f"{cut(refused[-1].str(), 400)}. Check the security protocol, the credentials and "
                "the certificates."
            )
        if problem := suspicion.problem():
            raise EnvironmentRefused(problem)
    try:
        return admin, len(future.result(0 if future.done() else 1).nodes)
    except (KafkaException, FutureTimeout) as error:
        reason = _reason([*error.args, *errors])
        kind = EnvironmentRefused if any(map(is_refusal, errors)) else Unreachable
        raise kind(
            f"No Kafka broker at {servers} answered within {timeout_s:.0f} s{reason}. Check "
            "the bootstrap servers and the security settings."
        ) from None


def _reason(errors: Sequence[Any]) -> str:
    """What a client has told last, but for what says less: that all brokers are down."""
    from confluent_kafka import KafkaError

    told = [error for error in errors if isinstance(error, KafkaError)]
    clear = [error for error in told if error.code() != KafkaError._ALL_BROKERS_DOWN] or told
    return f" ({cut(clear[-1].str(), 400)})" if clear else ""


def is_refusal(error: KafkaError) -> bool:
    """Whether a client's error is one that no waiting helps against: these settings are wrong."""
    from confluent_kafka import KafkaError

    # A missing client certificate is told after the handshake, on a connection then closed. A
    # broker on Java 17 says "bad certificate" (42), one on Java 25 "certificate required" (116).
    of_tls = "SSL alert number" in error.str()
    # The connection was lost in the middle of a login, as when a broker, or the client, ends then
    lost = "Local: Broker transport failure" in error.str()
    refused = error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL)
    return of_tls or (refused and not lost)
