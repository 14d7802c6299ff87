"""`eo-kafka topic` and `eo-kafka broker --topic`, on a real Kafka."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from eo_kafka.testing.processes import wait_until
from eo_kafka.tools.cli import main


def topic(broker, *words: str) -> int:
    return main(["topic", *words, "--bootstrap-servers", broker.bootstrap_servers])


@pytest.fixture
def name() -> str:
    return f"topic-command-{uuid.uuid4().hex[:8]}"


def test_a_topic_is_created_as_asked_and_told_of(broker, capsys, name):
    assert (
        topic(broker, "create", f"{name}:3", "--replicas", "1", "--set", "retention.ms=3600000")
        == 0
    )
    assert capsys.readouterr().out == f"Topic '{name}' has been created with 3 partitions.\n"
    assert topic(broker, "describe", name, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["settings"] == {"retention.ms": "3600000"}
    assert [one["partition"] for one in told["partitions"]] == [0, 1, 2]
    assert {one["next_offset"] for one in told["partitions"]} == {0}
    assert topic(broker, "describe", name) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "partition", "leader", "replicas", "in_sync", "first_offset", "next_offset"
    ]  # fmt: skip
    assert lines[-1] == "retention.ms=3600000"


def test_a_topic_that_is_there_is_left_as_it_is(broker, capsys, name):
    assert topic(broker, "create", name) == 0  # the brokers' num.partitions
    assert "created with 1 partition." in capsys.readouterr().out
    assert topic(broker, "create", name) == 0
    assert "is there already, with 1 partition. Nothing was changed." in capsys.readouterr().out
    assert topic(broker, "create", f"{name}:2") == 1
    error = capsys.readouterr().err
    assert "is there already, with partitions=1 and not 2. Nothing was changed." in error
    wanted = ["--replicas", "2", "--set", "cleanup.policy=compact"]
    assert topic(broker, "create", name, *wanted) == 1
    error = capsys.readouterr().err
    assert "replicas=1 and not 2, cleanup.policy=delete and not compact. Nothing" in error
    assert topic(broker, "create", f"{name}:1", "--set", "cleanup.policy=delete") == 0


def test_of_several_topics_none_is_created_where_one_is_another(broker, capsys, name):
    topic(broker, "create", f"{name}-a:4", f"{name}-d:4")
    capsys.readouterr()
    assert topic(broker, "create", f"{name}-b:2", f"{name}-a:8", f"{name}-d:1") == 1
    said = capsys.readouterr()
    assert said.out == ""
    for one in (f"'{name}-a' is there already, with partitions=4 and not 8.", f"'{name}-d' is"):
        assert one in said.err
    assert said.err.endswith("Nothing was changed.\n")
    assert topic(broker, "describe", f"{name}-b") == 1


def test_what_was_not_created_after_a_refusal_is_named(broker, capsys, name):
    """Names that Kafka does not take are found out at the creation only."""
    assert topic(broker, "create", f"{name}-b:2", "with space", f"{name}-c", f"{name}-d") == 1
    said = capsys.readouterr()
    assert said.out == f"Topic '{name}-b' has been created with 2 partitions.\n"
    assert f"Not created either: '{name}-c', '{name}-d'." in said.err
    assert topic(broker, "describe", f"{name}-c") == 1


def test_topics_are_listed_and_none_is_made_by_asking(broker, capsys, name):
    topic(broker, "create", f"{name}:2", f"__{name}:1")
    capsys.readouterr()
    assert topic(broker, "list", "--json") == 0
    listed = {one["topic"]: one for one in json.loads(capsys.readouterr().out)["topics"]}
    assert listed[name] == {"topic": name, "partitions": 2, "replicas": 1}
    assert f"__{name}" not in listed
    assert topic(broker, "list", "--all") == 0
    assert f"__{name}" in capsys.readouterr().out
    assert topic(broker, "describe", f"{name}-not-there") == 1
    assert f"There is no topic '{name}-not-there'." in capsys.readouterr().err
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert f"{name}-not-there" not in admin.list_topics(timeout=30).topics


def test_a_time_is_told_as_offsets(broker, capsys, name):
    topic(broker, "create", f"{name}:3")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wait_until(lambda: name in admin.list_topics(timeout=30).topics, "the topic is there", 30)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    at = datetime(2026, 11, 24, 9, tzinfo=UTC)
    minutes = {0: [1, 2, 40, 3, 41], 1: [1, 2]}  # since then; partition 2 is empty
    for partition, of_records in minutes.items():
        for minute in of_records:
            ms = round((at + timedelta(minutes=minute)).timestamp() * 1000)
            producer.produce(name, b"x", partition=partition, timestamp=ms)
    assert producer.flush(30) == 0
    capsys.readouterr()
    for time, offsets, told in (
        ("2026-11-24T09:02:00Z", {"0": 1, "1": 1, "2": 0}, "partition 2 is"),
        ("2026-11-24T10:02:00.001+01:00", {"0": 2, "1": 2, "2": 0}, "partition 1,2 is"),
        ("2026-11-25T00:00:00Z", {"0": 5, "1": 2, "2": 0}, "partition 0,1,2 is"),
    ):
        assert topic(broker, "offsets", name, "--at", time) == 0
        said = capsys.readouterr()
        assert json.loads(said.out) == offsets
        assert told in said.err
    assert topic(broker, "offsets", f"{name}-not-there", "--at", "2026-11-24T09:02:00Z") == 1
    for wrong in ("yesterday", "2026-11-24T09:02:00", "0001-01-01T00:00:00Z"):
        with pytest.raises(SystemExit):
            topic(broker, "offsets", name, "--at", wrong)
        assert "is not a time with its zone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["create", "with space:2"], "could not be created"),
        (["create", "many:2", "--replicas", "3"], "could not be created"),
        (["create", "odd:2", "--set", "retention=1"], "could not be created"),
    ],
)
def test_what_kafka_refuses_is_a_sentence(broker, capsys, words, told):
    assert topic(broker, *words) == 1
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("wrong", ["0", "-5", "40000", "many"])
def test_a_wrong_number_of_replicas_is_refused_at_once(capsys, wrong):
    with pytest.raises(SystemExit):
        main(["topic", "create", "orders:4", f"--replicas={wrong}"])
    assert "is not a number of replicas" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["orders:0", "orders:many", ":4", "orders:4:5"])
def test_what_is_no_name_and_number_is_refused_at_once(capsys, wrong):
    for command in (["topic", "create", wrong], ["broker", "--topic", wrong]):
        with pytest.raises(SystemExit):
            main(command)
        assert "is not NAME or NAME:PARTITIONS" in capsys.readouterr().err
