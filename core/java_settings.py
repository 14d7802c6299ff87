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
_WITHOUT_KEY = "it spreads rows without a key, as 'kafka.sticky.partitioning.linger.ms' does here"
_TICKETS = "librdkafka renews tickets by 'kafka.sasl.kerberos.min.time.before.relogin'"
_LEFT_OUT = {
    "buffer.memory": "librdkafka's queue has 'kafka.queue.buffering.max.kbytes'",
    "default.api.timeout.ms": "'fetchOffset.timeoutMs' bounds how long the driver waits",
    "max.block.ms": "'kafka.transaction.timeout.ms' bounds a batch",
    "max.poll.records": "records are fetched in batches of bytes",
    "metadata.max.idle.ms": "it bounds a memory of the Java client's",
    "metric.reporters": "they are Java classes",
    "auto.include.jmx.reporter": "there is no JMX",
    "metrics.recording.level": "there is no JMX",
    "metrics.num.samples": "there is no JMX",
    "metrics.sample.window.ms": "there is no JMX",
    "exclude.internal.topics": "'subscribePattern' finds none of Kafka's internal topics",
    "partitioner.adaptive.partitioning.enable": _WITHOUT_KEY,
    "partitioner.availability.timeout.ms": _WITHOUT_KEY,
    "socket.connection.setup.timeout.max.ms": "librdkafka has one bound, "
    "'kafka.socket.connection.setup.timeout.ms'",
    "sasl.kerberos.ticket.renew.jitter": _TICKETS,
    "sasl.kerberos.ticket.renew.window.factor": _TICKETS,
    **dict.fromkeys(
        (
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
        ),
        "tokens are fetched, and renewed in time, without it",
    ),
    **dict.fromkeys(
        (
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.scope.claim.name",
        ),
        "brokers check tokens, not their clients",
    ),
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
    "sasl.oauthbearer.jwt.retriever.class": _HANDLER,
    "sasl.oauthbearer.jwt.validator.class": _HANDLER,
    "sasl.oauthbearer.assertion.template.file": "give librdkafka's "
    "'kafka.sasl.oauthbearer.assertion.jwt.template.file'",
    "sasl.oauthbearer.header.urlencode": "leave it out if it is 'false'; an endpoint that needs it "
    "needs 'kafka.oauth_cb' (docs/security.md)",
    "security.providers": "they are Java classes; leave it out",
    "interceptor.classes": "they are Java classes; change records with DataFrame operations",
    "config.providers": "they are Java classes; write the values themselves",
    **dict.fromkeys(
        ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"),
        "keys and values are bytes here; convert them with DataFrame operations",
    ),
    "share.acquire.mode": "it is of the Java client's share consumer; leave it out",
    "transaction.two.phase.commit.enable": "'transactionTimeout' says how long a transaction may "
    "be open; leave it out",
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
# What java.io.StreamTokenizer makes of a text, as Kafka's JaasConfig sets it up: blanks and
# comments (one slash begins one, too), quoted words, bare words, and what is neither.
_JAAS_TOKEN = re.compile(
    r"""[\0- ]+|/\*.*?(?:\*/|\Z)|/[^\r\n]*
    |"(?P<double>(?:[^"\\\r\n]|\\.)*)"|'(?P<single>(?:[^'\\\r\n]|\\.)*)'
    |(?P<bare>[a-zA-Z_$\u00a0-\U0010ffff][\w$.\u00a0-\U0010ffff-]*)|(?P<mark>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_JAAS_FLAGS = ("required", "requisite", "sufficient", "optional")
_WITH_PASSWORD = ("plain.PlainLoginModule", "scram.ScramLoginModule")
_BY_OAUTH = "oauthbearer.OAuthBearerLoginModule"
_OF_TOKENS = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
_EXTENSION = "extension_"
_LEVEL = re.compile(r"compression\.(gzip|lz4|zstd)\.level")
_CODEC = ("compression.type", "compression.codec")


_OF_PARTS = (*_STORES, "sasl.jaas.config", "partitioner.class")
NAMES = {*_RENAMED, *_LEFT_OUT, *_REFUSED, "sasl.jaas.config", "partitioner.class"}


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
        elif not name.startswith(_OF_PARTS) and not _LEVEL.fullmatch(name):
            found[name] = value
    for part in (_stores(settings), _jaas(settings), _partitioner(settings), _levels(settings)):
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
    login = _login(written)
    if login is None:
        return {}, [
            "Kafka option 'kafka.sasl.jaas.config' cannot be read as one login, as the Java client "
            f"reads it (values in quotes, ';' at the end): correct it, or {instead}."
        ]
    module, options = login
    if module.endswith(_BY_OAUTH):
        return _of_tokens(options), []
    if not module.endswith(_WITH_PASSWORD) or not {"username", "password"} <= options.keys():
        module = module.rpartition(".")[2]
        return {}, [
            f"Kafka option 'kafka.sasl.jaas.config' logs in by {module}, which is not supported in "
            f"this form: for SASL PLAIN and SCRAM {instead}, for OAUTHBEARER a token endpoint or "
            "'kafka.oauth_cb' (docs/security.md)."
        ]
    return {"sasl.username": options["username"], "sasl.password": options["password"]}, []


def _login(written: str) -> tuple[str, dict[str, str]] | None:
    """The login module and its options; None if it is not one, as Kafka's JaasConfig reads it."""
    shape, words = "", []
    for token in _JAAS_TOKEN.finditer(written):
        if token.lastgroup == "mark":
            shape += token["mark"]
        elif token.lastgroup:
            shape += "w"
            words.append(_ESCAPE.sub(_unescaped, token[token.lastgroup]))
    if not re.fullmatch("ww(w=w)*;", shape) or words[1].lower() not in _JAAS_FLAGS:
        return None
    return words[0], dict(zip(words[2::2], words[3::2], strict=True))


def _unescaped(escape: re.Match[str]) -> str:
    code: str = escape[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)


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


def _levels(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The Java client has a level for each codec; librdkafka has one, for the codec in use."""
    codec = next((settings[name].strip().lower() for name in _CODEC if name in settings), "none")
    found = {}
    for name, value in settings.items():
        if (level := _LEVEL.fullmatch(name)) and level[1] == codec:
            found["compression.level"] = value
        elif level:
            log.warning("Kafka option 'kafka.%s' has no effect: the codec is '%s'.", name, codec)
    return found, []
