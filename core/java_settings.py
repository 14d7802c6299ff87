"""Translates settings of Kafka's Java client to librdkafka's, or refuses them.

What means the same is renamed; what librdkafka has no need of is left out with a warning; what
would be lost silently otherwise is refused, with what to write instead. No I/O. Sources: Kafka 4's
ConsumerConfig, ProducerConfig, SslConfigs and SaslConfigs; librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

log = logging.getLogger(__name__)

_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
_LEFT_OUT = {
    "buffer.memory": "librdkafka's queue has 'kafka.queue.buffering.max.kbytes'",
    "default.api.timeout.ms": "'fetchOffset.timeoutMs' bounds how long the driver waits",
    "max.block.ms": "'kafka.transaction.timeout.ms' bounds a batch",
    "max.poll.records": "records are fetched in batches of bytes",
    "metric.reporters": "they are Java classes",
    "auto.include.jmx.reporter": "there is no JMX",
    "metrics.recording.level": "there is no JMX",
    "ssl.protocol": "OpenSSL chooses the newest TLS that both sides have",
    "ssl.enabled.protocols": "OpenSSL chooses the newest TLS that both sides have",
    "ssl.keymanager.algorithm": "it is of Java's TLS",
    "ssl.trustmanager.algorithm": "it is of Java's TLS",
    "ssl.secure.random.implementation": "it is of Java's TLS",
}
_HANDLER = (
    "it is a Java class; SASL PLAIN and SCRAM work with 'kafka.sasl.username' and "
    "'kafka.sasl.password', OAUTHBEARER with a token endpoint or 'kafka.oauth_cb' "
    "(docs/security.md)"
)
_LOGIN_HANDLER = "sasl.login.callback.handler.class"
# Kafka's own, for a token endpoint; the second is what it was called before 3.4.
_ENDPOINT_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_REFUSED = {
    "ssl.provider": "it is of Java's TLS; leave it out",
    "ssl.engine.factory.class": "it is a Java class; give certificates as PEM files",
    "ssl.cipher.suites": "Java's names are not OpenSSL's; leave it out, or ask for what is missing",
    "sasl.client.callback.handler.class": _HANDLER,
    _LOGIN_HANDLER: _HANDLER,
    "sasl.login.class": _HANDLER,
    "partitioner.ignore.keys": "rows with a key go to the partition of their key; to spread them, "
    "write the column 'partition'",
}
_PARTITIONERS = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"
_STORES = {
    "ssl.truststore": (
        "keytool -list -rfc -keystore {file} > ca.pem",
        "'kafka.ssl.ca.location'",
    ),
    "ssl.keystore": (
        "openssl pkcs12 -in {file} -out client.pem (a JKS store first becomes PKCS#12 by keytool "
        "-importkeystore -deststoretype PKCS12)",
        "'kafka.ssl.certificate.location' and 'kafka.ssl.key.location'",
    ),
}
_JAAS = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b"
    r'((?:\s+[\w.]+\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s";]+))*)\s*;\s*',
    re.IGNORECASE,
)
_JAAS_OPTION = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))')
_WITH_PASSWORD = ("plain.PlainLoginModule", "scram.ScramLoginModule")
_BY_OAUTH = "oauthbearer.OAuthBearerLoginModule"
_OF_TOKENS = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
_EXTENSION = "extension_"


def translated(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """`settings` in librdkafka's words, and a sentence for each that cannot be said in them.

    A setting given in both ways is taken in librdkafka's. Values stay out of the sentences.
    """
    found: dict[str, str] = {}
    problems: list[str] = []
    for name, value in settings.items():
        if name in _LEFT_OUT:
            log.warning("Kafka option 'kafka.%s' has no effect: %s.", name, _LEFT_OUT[name])
        elif name == _LOGIN_HANDLER and value.strip() in _ENDPOINT_HANDLERS:
            continue
        elif name in _REFUSED:
            problems.append(f"Kafka option 'kafka.{name}' is not supported: {_REFUSED[name]}.")
        elif name in _RENAMED:
            found.setdefault(_RENAMED[name], value)
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = value.strip().lower() or "none"  # Java's empty text switches it off
        elif not name.startswith((*_STORES, "sasl.jaas.config", "partitioner.class")):
            found[name] = value
    for part in (_stores(settings), _jaas(settings), _partitioner(settings)):
        given, wrong = part
        problems += wrong
        found = {**given, **found}
    return found, problems


def _stores(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Files that hold certificates: PEM ones have other names, Java's own cannot be read."""
    found: dict[str, str] = {}
    problems = []
    for store, (command, instead) in _STORES.items():
        file = settings.get(f"{store}.location")
        if file is None:
            continue
        if settings.get(f"{store}.type", "JKS").strip().upper() == "PEM":
            names = ("ssl.certificate.location", "ssl.key.location")
            found |= dict.fromkeys(("ssl.ca.location",) if "trust" in store else names, file)
            continue
        problems.append(
            f"Kafka option 'kafka.{store}.location' names a store of Java's, which only Java "
            f"reads: make it PEM, {command.format(file=file)}, and give {instead}; or set "
            f"'kafka.{store}.type' to PEM if it is."
        )
    return found, problems


def _jaas(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    written = settings.get("sasl.jaas.config")
    if written is None:
        return {}, []
    instead = "give 'kafka.sasl.username' and 'kafka.sasl.password'"
    parsed = _JAAS.fullmatch(written)
    if parsed is None:
        sentence = f"Kafka option 'kafka.sasl.jaas.config' cannot be read as one login: {instead}."
        return {}, [sentence]
    options = {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else bare
        for name, quoted, bare in _JAAS_OPTION.findall(parsed[2])
    }
    if parsed[1].endswith(_BY_OAUTH):
        return _of_tokens(options), []
    if not parsed[1].endswith(_WITH_PASSWORD) or not {"username", "password"} <= options.keys():
        module = parsed[1].rpartition(".")[2]
        return {}, [
            f"Kafka option 'kafka.sasl.jaas.config' logs in by {module}, which is not supported in "
            f"this form: for SASL PLAIN and SCRAM {instead}, for OAUTHBEARER a token endpoint or "
            "'kafka.oauth_cb' (docs/security.md)."
        ]
    return {"sasl.username": options["username"], "sasl.password": options["password"]}, []


def _of_tokens(options: Mapping[str, str]) -> dict[str, str]:
    """How Kafka's OAuthBearerLoginModule is told to log in, in librdkafka's words."""
    found = {
        f"sasl.oauthbearer.{_OF_TOKENS[name]}": options[name]
        for name in options
        if name in _OF_TOKENS
    }
    extensions = [
        f"{name.removeprefix(_EXTENSION)}={value}"
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    ]
    if extensions:
        found["sasl.oauthbearer.extensions"] = ",".join(extensions)
    return found


def _partitioner(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    named = settings.get("partitioner.class")
    if named is None or named.strip() == _PARTITIONERS:
        return {}, []  # rows with a key go where the Java client's default sends them anyway
    return {}, [
        "Kafka option 'kafka.partitioner.class' is not supported: it is a Java class. Rows with a "
        "key go where the Java client's default sends them; for anything else write the column "
        "'partition'."
    ]
