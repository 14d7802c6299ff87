"""`eo-kafka snapshots` without a broker: words, tables, and what Spark says of its operators."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from eo_kafka.state.ledger.blob_names import Blob, SnapshotHead
from eo_kafka.state.snapshots import operators
from eo_kafka.state.snapshots.export import Export
from eo_kafka.state.snapshots.operators import Operator
from eo_kafka.state.snapshots.search import Found, FoundExport
from eo_kafka.tools.cli import main
from eo_kafka.tools.snapshots import command

SERVERS = ("--bootstrap-servers", "localhost:1")
HEAD = SnapshotHead(12, 34, "query", Blob("d", 1), 0, 20, 123456, 789, 1795260342977)
V1 = (
    b'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"stateStoreSave"},"stateStoreInfo":'
    b'[{"storeName":"default","numColsPrefixKey":0,"numPartitions":2}]}'
)
V2 = (
    b'v2\n{"operatorInfo":{"operatorId":1,"operatorName":"transformWithStateInPandasExec"},'
    b'"stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,"numPartitions":5,'
    b'"stateSchemaFilePaths":["a"]}],"operatorPropertiesJson":"{}"}'
)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("list",),
        ("export", "shout"),
        ("delete", "shout"),
        ("restore", "shout"),
        ("start-from", "shout", "before"),
        ("start-from", "shout", "before", "--job", "new"),
        ("list", "shout", "before"),
        ("shout",),
    ],
)
def test_wrong_usage_is_code_2(words, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["snapshots", *words, *SERVERS])
    assert exit.value.code == 2
    assert "usage: eo-kafka snapshots" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("list", "shout"), "Which Kafka?"),
        (("export", "no good", "before", *SERVERS), "Option 'jobName' must be usable in a topic"),
    ],
)
def test_what_cannot_be_is_a_sentence_and_code_1(words, sentence, capsys):
    assert main(["snapshots", *words]) == 1
    assert sentence in capsys.readouterr().err


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(words)


def test_the_target_is_another_kafka_with_the_topics_of_the_new_job(tmp_path: Path):
    path = tmp_path / "target"
    path.write_text("bootstrap.servers=b:2\nsasl.password=hunter2\n")
    words = ("start-from", "shout", "before", "--job", "new", "--checkpoint", "c", *SERVERS)
    one = parsed(*words, "--ledger-topic", "l", "--allow-weak-replication")
    options = command._options(one)
    assert command._target(one, options) is None
    assert options == {
        "kafka.bootstrap.servers": "localhost:1",
        "transactionalIdPrefix": "eo-kafka",
        "ledgerTopic": "l",
        "allowWeakReplication": "true",
    }
    other = parsed(*words, "--ledger-topic", "l", "--target-config", str(path))
    assert command._target(other, command._options(other)) == {
        "kafka.bootstrap.servers": "b:2",
        "kafka.sasl.password": "hunter2",
        "transactionalIdPrefix": "eo-kafka",
        "ledgerTopic": "l",
    }


def test_the_list_names_what_is_unfinished(monkeypatch, capsys):
    made = Export("before", "shout", 1795260343000, HEAD, ("{}",))
    found = {
        "latest": Found("latest", "t", 9, HEAD),
        "before": FoundExport("before", "e", 8, HEAD, made),
        "half": None,
    }
    search = SimpleNamespace(all=lambda: found)
    monkeypatch.setattr(command, "SnapshotSearch", lambda job, options: search)
    assert main(["snapshots", "list", "shout", *SERVERS]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "name    batch  made                                       files    bytes  new",
        "latest     12  2026-11-21 11:25:42 UTC                       20  123,456  789",
        "before     12  2026-11-21 11:25:42 UTC                       20  123,456  789",
        "half           unfinished: export it again, or delete it",
    ]
    assert main(["snapshots", "list", "shout", "--json", *SERVERS]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["finished"] for one in shown["snapshots"]] == [True, True, False]
    assert shown["snapshots"][1]["exportedMs"] == 1795260343000


@pytest.mark.parametrize("before", ["file:/a/state/7", "hdfs://n:8020/x", 'file:/a\\"b', "file:/ü"])
def test_schema_files_are_found_where_the_checkpoint_is_now(before: str):
    text = (
        'v2\n{"operatorInfo":{"operatorId":3,"operatorName":"x"},"stateStoreInfo":[{"storeName":'
        '"default","numPartitions":2,"stateSchemaFilePaths":["%s/state/3/_stateSchema/default/0_a",'
        '"%s/state/3/_stateSchema/default/4_b"]}],"operatorPropertiesJson":"{\\"timeMode\\":1}"}'
    )
    there = operators.moved((text % (before, before)).encode(), 'file:/new "place"')
    place = 'file:/new \\"place\\"'
    assert there.decode() == text % (place, place)
    assert json.loads(there.partition(b"\n")[2])["operatorPropertiesJson"] == '{"timeMode":1}'


def test_operators_of_both_formats_are_read_and_a_strange_one_is_said():
    paths = [
        "metadata",
        "state/0/_metadata/metadata",
        "state/1/_metadata/v2/0",
        "state/1/_metadata/v2/11",
        "state/1/_metadata/v2/9",
        "state/2/_metadata/metadata",
        "state/0/0/_metadata/schema",
    ]
    described = operators.descriptions(paths)
    assert described == [paths[1], paths[3], paths[5]]
    contents = dict(zip(described, [V1, V2, b"v9\n[]"], strict=True))
    assert operators.parse(contents) == [
        Operator(0, "stateStoreSave", 2, ("default",)),
        Operator(1, "transformWithStateInPandasExec", 5, ("default",)),
        Operator(2, "(described in a way not known here)", 0, ()),
    ]
    assert command._operators(operators.parse(contents)).splitlines()[1] == (
        "       0  stateStoreSave                                2  default"
    )
    assert command._operators([]) == "No stateful operators."
