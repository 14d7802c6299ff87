"""`eo-kafka topic` and `eo-kafka broker --topic`, on a real Kafka."""

from __future__ import annotations

import json
import uuid

import pytest
from confluent_kafka.admin import AdminClient

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
    assert "is there already, with 1 partition, not 2. Nothing was changed." in error


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
