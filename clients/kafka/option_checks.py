"""Finds options that contradict the guarantee, each other, or what the clients take. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.options import KafkaSettings, OptionReader, time_span_ms
from .login import oauth

LONGEST_TIMEOUT_MS = 2**31 - 1  # of which Kafka 4 makes: never
ALLOWED_BY_BROKERS = 0  # the value `max`, until a broker was asked

_ORDER = "with more requests at a time rows could be reordered"
# (setting, values that keep the promise, what the others would do)
_NEEDS = (
    ("enable.idempotence", ("true",), "retries could repeat or reorder rows"),
    ("acks", ("all", "-1"), "an acknowledged row could be lost with its leader"),
    ("request.required.acks", ("all", "-1"), "an acknowledged row could be lost with its leader"),
    ("max.in.flight", ("5", "4", "3", "2", "1"), _ORDER),
    ("max.in.flight.requests.per.connection", ("5", "4", "3", "2", "1"), _ORDER),
    ("queuing.strategy", ("fifo",), "rows could be reordered"),
)
# Setting -> by how many milliseconds it may be longer than a transaction
_WITHIN_TRANSACTION = {"delivery.timeout.ms": 0, "message.timeout.ms": 0, "socket.timeout.ms": 100}
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")  # librdkafka leaves out the rest
_RETRIES = ("retries", "message.send.max.retries")


def check_different(reader: OptionReader, topics: Mapping[str, str | None]) -> None:
    """`topics`: option -> topic. No two may be the same."""
    given = [name for name in topics.values() if name is not None]
    for name in sorted({name for name in given if given.count(name) > 1}):
        options = [option for option, topic in topics.items() if topic == name]
        reader.problem(f"Options '{options[0]}' and '{options[1]}' are both '{name}'.")


def check_needs(reader: OptionReader, kafka: KafkaSettings, guarantee: str) -> None:
    """No setting may take away what the guarantee needs."""
    for name, allowed, consequence in _NEEDS:
        value = kafka.get(name)
        if value is not None and value.strip().lower() not in allowed:
            reader.problem(
                f"Option 'kafka.{name}' is '{value}', but guarantee '{guarantee}' needs "
                f"'{allowed[0]}': {consequence}. Take the option away or choose a weaker guarantee."
            )
    for name in _RETRIES:
        if (kafka.get(name) or "").strip() == "0":
            reader.problem(
                f"Option 'kafka.{name}' is '0', but guarantee '{guarantee}' needs at least '1': "
                "rows whose request got no answer are sent again. Take the option away."
            )


def check_timeouts(reader: OptionReader, kafka: Mapping[str, str], transaction_ms: int) -> None:
    """librdkafka refuses a producer whose requests may outlast its transaction, by names that the
    user may not have given."""
    for name, spare_ms in _WITHIN_TRANSACTION.items():
        value = kafka.get(name, "").strip()
        if value.isdecimal() and int(value) > transaction_ms + spare_ms:
            reader.problem(
                f"Option 'kafka.{name}' is '{value}', and a transaction may be open for "
                f"{transaction_ms} ms: take it away, or raise 'transactionTimeout'."
            )


def check_client_settings(reader: OptionReader, kafka: Mapping[str, str]) -> None:
    """librdkafka must know each setting, and take its value; a login by OAuth must be whole."""
    from ...core.librdkafka import setting_problems

    for server in kafka.get("bootstrap.servers", "").split(","):
        scheme, separator, _ = server.strip().rpartition("://")
        if separator and scheme.lower() not in _PROTOCOLS:
            reader.problem(
                f"Option 'kafka.bootstrap.servers' has '{server.strip()}': write host:port, "
                f"without '{scheme}://'. Brokers speak Kafka's own protocol."
            )
    for sentence in (
        *oauth.problems(kafka),
        *setting_problems(oauth.left_to_librdkafka(kafka)),
    ):
        reader.problem(sentence)


def timeout_ms(value: str) -> int:
    """`max`, or a time, in milliseconds."""
    if value.strip().lower() == "max":
        return ALLOWED_BY_BROKERS
    found = time_span_ms(value)
    if not 1000 <= found <= LONGEST_TIMEOUT_MS:
        raise ValueError("must be 'max' or a time of 1 second to 24 days")
    return found
