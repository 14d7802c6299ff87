"""Settings that users of the JVM connector have: renamed, left out with a warning, or refused."""

from __future__ import annotations

import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.core.java_settings import translated
from eo_kafka.core.librdkafka import setting_problems

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"fetch.max.wait.ms": "7"}, {"fetch.wait.max.ms": "7"}),
        ({"fetch.max.wait.ms": "7", "fetch.wait.max.ms": "8"}, {"fetch.wait.max.ms": "8"}),
        ({"max.request.size": "2000000"}, {"message.max.bytes": "2000000"}),
        ({"receive.buffer.bytes": "65536"}, {"socket.receive.buffer.bytes": "65536"}),
        (
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"},
            {"ssl.ca.location": "/ca.pem"},
        ),
        (
            {"ssl.keystore.type": "pem", "ssl.keystore.location": "/me.pem"},
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem"},
        ),
        (
            {"sasl.jaas.config": f'{PLAIN} required username="a" password="b c;\\"d";'},
            {"sasl.username": "a", "sasl.password": 'b c;"d'},
        ),
        (
            {"sasl.jaas.config": f"  {SCRAM} REQUIRED\n username=a\n password='b' ;  "},
            {"sasl.username": "a", "sasl.password": "b"},
        ),
        (
            {
                "sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
                "sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required clientId='a' "
                'clientSecret="b" scope="c d" extension_logicalCluster="l" extension_pool="p";',
            },
            {
                "sasl.oauthbearer.client.id": "a",
                "sasl.oauthbearer.client.secret": "b",
                "sasl.oauthbearer.scope": "c d",
                "sasl.oauthbearer.extensions": "logicalCluster=l,pool=p",
            },
        ),
        (
            {"partitioner.class": "org.apache.kafka.clients.producer.internals.DefaultPartitioner"},
            {},
        ),
        ({"linger.ms": "5", "acks": "all"}, {"linger.ms": "5", "acks": "all"}),
        (
            {"compression.type": "zstd", "compression.zstd.level": "5"},
            {"compression.type": "zstd", "compression.level": "5"},
        ),
    ],
)
def test_what_means_the_same_is_renamed(given: dict[str, str], found: dict[str, str]) -> None:
    assert translated(given) == (found, [])
    assert setting_problems(found) == []


# Of ConsumerConfig and ProducerConfig of kafka-clients 4.3.1, what librdkafka has no name for.
ONLY_JAVA = (
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "config.providers",
    "exclude.internal.topics",
    "interceptor.classes",
    "key.deserializer",
    "key.serializer",
    "metadata.max.idle.ms",
    "metrics.num.samples",
    "metrics.sample.window.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.assertion.template.file",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope.claim.name",
    "security.providers",
    "share.acquire.mode",
    "socket.connection.setup.timeout.max.ms",
    "transaction.two.phase.commit.enable",
    "value.deserializer",
    "value.serializer",
)


@pytest.mark.parametrize("name", ONLY_JAVA)
def test_no_setting_of_the_java_client_is_merely_unknown(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    found, problems = translated({name: "1"})
    assert found == {}
    assert bool(problems) != bool(caplog.records)


@pytest.mark.parametrize("codec", ["compression.type", "compression.codec"])
def test_the_level_of_another_codec_has_no_effect(
    codec: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {codec: "lz4", "compression.gzip.level": "9"}
    assert translated(given) == ({codec: "lz4"}, [])
    assert "'kafka.compression.gzip.level' has no effect" in caplog.text


@pytest.mark.parametrize("name", ["max.poll.records", "buffer.memory", "ssl.protocol"])
def test_what_has_no_effect_is_left_out_and_said(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert translated({name: "s3cret"}) == ({}, [])
    assert f"'kafka.{name}' has no effect" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ssl.truststore.location": "/t.jks", "ssl.truststore.password": "s3cret"}, "keytool"),
        ({"ssl.keystore.location": "/k.jks", "ssl.keystore.type": "PKCS12"}, "openssl pkcs12"),
        ({"sasl.jaas.config": "com.x.Y required s3cret"}, "cannot be read as one login"),
        ({"sasl.jaas.config": f'{PLAIN} required username="a";'}, "'kafka.sasl.password'"),
        (
            {"sasl.jaas.config": 'com.sun.Krb5LoginModule required x="s3cret";'},
            "Krb5LoginModule, which is not supported",
        ),
        ({"sasl.login.callback.handler.class": "x"}, "it is a Java class"),
        ({"partitioner.class": "com.example.Mine"}, "write the column 'partition'"),
        ({"ssl.cipher.suites": "x"}, "Java's names are not OpenSSL's"),
        ({"config.providers": "file"}, "write the values themselves"),
        ({"transaction.two.phase.commit.enable": "true"}, "'transactionTimeout'"),
    ],
)  # fmt: skip
def test_what_would_be_lost_is_refused_with_what_to_write(
    given: dict[str, str], words: str
) -> None:
    found, problems = translated(given)
    assert found == {}
    (problem,) = problems
    assert words in problem
    assert "s3cret" not in problem


# What kafka-clients 4.3.1 (JaasContext.loadClientContext) reads of each text, None: it refuses it.
JAAS_OPTIONS: list[tuple[str, tuple[str, str] | None]] = [
    ("username='KEY' password='a b';", ("KEY", "a b")),
    ("""username="a'b" password='c"d;=';""", ("a'b", 'c"d;=')),
    (r"username='a\'b\\c\101\7x\477\n\q' password=b;", ("a'b\\cA\x07x'7\nq", "b")),
    ("/* c; */ username='u' // c ' ;\n password='p' ; // end", ("u", "p")),
    ("username='u' password='p' / x;\n;", ("u", "p")),
    ("username='u\\\nv' password='p';", ("u\nv", "p")),
    ("username=u/**/password=p;/* x", ("u", "p")),
    ("'username'='u' password = \"p\";", ("u", "p")),
    ("username=ü password=é€;", ("ü", "é€")),
    ("username=u_ username=v- password=_p.1;", ("v-", "_p.1")),
    ("username='' password=\"\";", ("", "")),
    ("username=2a password=p;", None),
    ("username=a/b password=p;", None),
    ("username=a@b password=p;", None),
    ("username='u password=p;", None),
    ("username='u\n' password=p;", None),
    ("username=u password=p", None),
    ("username=u,password=p;", None),
    ("username=u password=p; x.Y required;", None),
]


@pytest.mark.parametrize(("written", "login"), JAAS_OPTIONS)
def test_a_login_is_read_as_the_java_client_reads_it(
    written: str, login: tuple[str, str] | None
) -> None:
    found, problems = translated({"sasl.jaas.config": f"{PLAIN} required {written}"})
    if login is None:
        (problem,) = problems
        assert found == {}
        assert "cannot be read as one login" in problem
    else:
        assert (found, problems) == ({"sasl.username": login[0], "sasl.password": login[1]}, [])


@given(st.text(), st.text())
def test_any_login_of_this_form_is_read(user: str, password: str) -> None:
    quoted = [re.sub(r'(["\\\r\n])', r"\\\1", word) for word in (user, password)]
    jaas = '{} required username="{}" password="{}";'.format(PLAIN, *quoted)
    found, problems = translated({"sasl.jaas.config": jaas})
    assert (found, problems) == ({"sasl.username": user, "sasl.password": password}, [])


@given(st.text())
def test_any_text_is_read_or_named_without_its_value(text: str) -> None:
    found, problems = translated({"sasl.jaas.config": text})
    assert bool(found) != bool(problems)
