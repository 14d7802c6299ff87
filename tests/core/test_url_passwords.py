"""Passwords with signs that mean something in a URL: nothing of them is shown, and nobody else than
who is meant is asked."""

from __future__ import annotations

import pytest

from eo_kafka.clients.amqp.client import AmqpSettings
from eo_kafka.clients.postgres.client import PostgresSettings
from eo_kafka.core.options import OptionReader
from eo_kafka.sinks.files.options import path_of

SHOWN = ("MAR", "KER")  # parts of the password


def check_refused(reader: OptionReader, place: str, words: str) -> None:
    assert len(reader.problems) == 1
    assert words in reader.problems[0]
    for part in SHOWN:
        assert part not in reader.problems[0]
        assert part not in place


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:MAR/KER@db.example.com:5432/orders",
        "postgresql://app:54/MARKER@localhost:5432/orders",
        "postgresql://app:/MARKER@localhost/orders",
        "postgresql://:MAR/KER@localhost/orders",
        "postgresql://app:1,2/MARKER@localhost/orders",
        "postgresql://app:x@MARKER@db:5432/orders",
        "postgresql://app:x@MAR/KER@db:5432/orders",
        "postgresql://app:MAR@KER/x@db,db2:5432/orders",
        "postgresql://app@tenant:MARKER@db/orders",
        "postgres://app:MAR/KER@db/orders?sslmode=require",
        "jdbc:postgresql://app:MAR/KER@db/orders",
        "postgresql://app:MARKER",
        "host=db port=MARKER dbname=orders",
    ],
)
def test_postgresql(url) -> None:
    reader = OptionReader({"url": url})
    check_refused(reader, PostgresSettings.read(reader).place, "%2F")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://app:MAR%2FKER%40@db:5432/orders", "db:5432/orders"),
        ("postgresql://app:MAR?KER@db/orders", "db:5432/orders"),
        ("postgresql://app%40tenant:MARKER@db/orders", "db:5432/orders"),
        ("postgresql://app:MARKER@db:1,db2:2/orders", "db:1,db2:2/orders"),
        ("postgresql://app:MARKER@db/or%40ders", "db:5432/or@ders"),
        ("postgresql://db/orders?user=app@tenant&password=MARKER", "db:5432/orders"),
        ("jdbc:postgresql://db/orders?user=app&password=MAR/KER@", "db:5432/orders"),
        ("host=db password='MAR/KER@' user=a@b dbname=or@ders", "db:5432/or@ders"),
        ("host=db,db2 port=1, dbname=orders", "db:1,db2:/orders"),
        ("postgresql:///orders?host=/tmp", "/tmp:5432/orders"),
    ],
)
def test_a_url_that_postgresql_reads_as_it_is_meant(url, place) -> None:
    reader = OptionReader({"url": url})
    assert PostgresSettings.read(reader).place == place
    assert reader.problems == []


@pytest.mark.parametrize(
    "url",
    [
        "amqp://app:123/MARKER@h:5672/v",
        "amqp://app:/MARKER@h:5672/v",
        "amqp://app:12#MARKER@h:5672/v",
        "amqp://app:MAR/KER@h:5672/v",
        "amqp://app:x#MARKER@h:5672/v",
        "amqps://app:1/2@MARKER@h/v",
    ],
)
def test_rabbitmq(url) -> None:
    reader = OptionReader({"url": url})
    check_refused(reader, AmqpSettings.read(reader).place, "%2F")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("amqp://app:MAR%2FKER%40@h:5672/v", "h:5672/v"),
        ("amqp://app:MAR@KER@h:5672/v", "h:5672/v"),
        ("amqp://app:MARKER@h:5672/v%40x", "h:5672/v@x"),
        ("amqp://app:MARKER@h:5672/%2F", "h:5672//"),
    ],
)
def test_a_url_that_pika_reads_as_it_is_meant(url, place) -> None:
    reader = OptionReader({"url": url})
    assert AmqpSettings.read(reader).place == place
    assert reader.problems == []


@pytest.mark.parametrize(
    "path",
    [
        "s3://AK:MAR/KER@bucket/x",
        "s3a://AK:MARKER@bucket/x",
        "s3://AK:MAR@KER@bucket/x",
        "s3://AK@bucket/x",
    ],
)
def test_an_object_store(path) -> None:
    reader = OptionReader({"path": path})
    path_of(reader)
    check_refused(reader, "", "s3://bucket/prefix")


def test_a_prefix_may_have_such_signs() -> None:
    reader = OptionReader({"path": "s3://bucket/a@b:c/x"})
    path_of(reader)
    assert reader.problems == []
