"""Settings that users of the JVM connector have: renamed, left out with a warning, or refused."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.core.java_settings import translated
from eo_kafka.core.librdkafka import setting_problems

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
DEFAULT_PARTITIONER = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"
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
            {"sasl.username": "a", "sasl.password": "'b'"},
        ),
        (
            {
                "sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
                "sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required clientId='a' "
                'clientSecret="b" scope="c d" extension_logicalCluster="l" extension_pool="p";',
            },
            {
                "sasl.oauthbearer.client.id": "'a'",
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
    ],
)
def test_what_means_the_same_is_renamed(given: dict[str, str], found: dict[str, str]) -> None:
    assert translated(given) == (found, [])
    assert setting_problems(found) == []


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


@given(st.text(), st.text())
def test_any_login_of_this_form_is_read(user: str, password: str) -> None:
    quoted = [word.replace("\\", "\\\\").replace('"', '\\"') for word in (user, password)]
    jaas = '{} required username="{}" password="{}";'.format(PLAIN, *quoted)
    found, problems = translated({"sasl.jaas.config": jaas})
    assert (found, problems) == ({"sasl.username": user, "sasl.password": password}, [])


@given(st.text())
def test_any_text_is_read_or_named_without_its_value(text: str) -> None:
    found, problems = translated({"sasl.jaas.config": text})
    assert bool(found) != bool(problems)
