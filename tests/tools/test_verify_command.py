"""Ids of records and offset ranges, as `eo-kafka verify` reads them."""

from __future__ import annotations

import argparse
import json

import pyarrow as pa
import pytest

from eo_kafka.core.offsets import OffsetRange, TopicPartition
from eo_kafka.errors import OptionsError, SourceError
from eo_kafka.sources import reader
from eo_kafka.sources.lookup import Topics
from eo_kafka.tools.verify import command
from eo_kafka.tools.verify.command import _range
from eo_kafka.tools.verify.topic_diff import How

AT = TopicPartition("orders", 3)
WHOLE = {AT: OffsetRange(AT, 50, 200)}


def ids(how: str, key: bytes | None, value: bytes | None, headers=()) -> bytes | None:
    batch = pa.RecordBatch.from_pydict(
        {"key": [key], "value": [value], "headers": [list(headers)]},
        schema=pa.schema(
            [
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            ]
        ),
    )
    (found,) = How.parse(how).ids(batch)
    return found


def test_a_record_is_key_and_value_and_neither_runs_into_the_other():
    different = {
        ids("record", key, value)
        for key, value in (
            (b"ab", b"c"),
            (b"a", b"bc"),
            (None, b"abc"),
            (b"", b"abc"),
            (b"abc", b""),
        )
    }
    assert len(different) == 5


def test_ids_in_headers_and_json():
    headers = [{"key": "id", "value": b"1"}, {"key": "x", "value": b"?"}]
    assert ids("header:id", None, None, headers) == b"1"
    assert ids("header:none", None, None, headers) is None
    value = json.dumps({"a": {"b": 7}, "c": None}).encode()
    assert ids("json:a.b", None, value) == b"7"
    assert ids("json:a", None, b'{"a": {"y": 1, "x": 2}}') == ids(
        "json:a", None, b'{"a":{"x":2,"y":1}}'
    )
    assert ids("json:c", None, value) is ids("json:a.b.c", None, value) is None
    assert ids("json:a", None, None) is None
    long, other, again = (
        ids("json:a", None, b'{"a": %s}' % number)
        for number in (b"12345678901234567.81", b"12345678901234567.82", b"12345678901234567.810")
    )
    assert long == again != other


@pytest.mark.parametrize("wrong", ["", "values", "header", "json:", "key:x"])
def test_a_wrong_id_is_refused(wrong):
    with pytest.raises(OptionsError, match="--by is"):
        How.parse(wrong)


@pytest.mark.parametrize(
    ("text", "start", "end"), [("3", 50, 200), ("3:100-150", 100, 150), ("3:-150", 50, 150)]
)
def test_a_range_is_what_it_says(text, start, end):
    assert _range("--input-range", text, "orders", WHOLE) == OffsetRange(AT, start, end)


@pytest.mark.parametrize("text", ["3:0-100", "3:100-900", "3:300-", "3:150-100"])
def test_a_range_of_what_is_not_there_is_refused(text):
    """Cut to what is there it would compare less than was asked for, or nothing, and say equal."""
    with pytest.raises(OptionsError, match="not within what can be read.*: 50-200"):
        _range("--input-range", text, "orders", WHOLE)


class OneTopic:
    """A cluster with topic `orders`, three records of which are left of ten."""

    policy = "delete"

    def __init__(self, _options) -> None:
        self.earliest = lambda partitions: dict.fromkeys(partitions, 0)
        self.latest = self.written = lambda partitions: dict.fromkeys(partitions, 10)
        self.close = lambda: None

    def look(self):
        return Topics({TopicPartition("orders", 0)}, {"orders": "its id"})

    def topic_settings(self, _topic):
        return {"cleanup.policy": self.policy} if self.policy else {}


@pytest.fixture
def one_cluster(monkeypatch):
    """Runs the command where each address leads to the same cluster: (exit code, its JSON)."""
    monkeypatch.setattr(command, "OffsetLookup", OneTopic)
    monkeypatch.setattr(command, "connect", lambda *_: (None, 1))
    shown: list[dict] = []
    monkeypatch.setattr(command, "print_json", shown.append)

    def run(*words: str):
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        topics = ["--input", "orders", "--output", "orders", "--bootstrap-servers", "prod:9092"]
        there = ["--output-bootstrap-servers", "alias:9092"]
        return command.run(parser.parse_args([*topics, *there, "--json", *words])), shown[-1]

    return run


def rows(values: list[bytes], first: int = 0):
    fields = {"value": (values, pa.binary()), "key": (values, pa.binary())}
    places = {"partition": [0] * len(values), "offset": list(range(first, first + len(values)))}
    arrays = {name: pa.array(of, kind) for name, (of, kind) in fields.items()}
    return pa.RecordBatch.from_pydict(arrays | {k: pa.array(v) for k, v in places.items()})


@pytest.mark.parametrize("words", [(), ("--input-range", "0:0-6", "--output-range", "0:5-10")])
def test_a_topic_is_not_compared_with_itself_under_another_address(one_cluster, words, monkeypatch):
    monkeypatch.setattr(reader, "read_ranges", lambda *_: iter([rows([b"a"])]))
    with pytest.raises(OptionsError, match="are the same topic"):
        one_cluster(*words)


APART = ("--input-range", "0:0-5", "--output-range", "0:5-10")


@pytest.mark.parametrize(
    ("policy", "said"),
    [("compact,delete", "compacted away"), ("", "not visible"), ("delete", None)],
)
def test_what_compaction_may_have_taken_is_named(one_cluster, policy, said, monkeypatch):
    monkeypatch.setattr(OneTopic, "policy", policy)
    monkeypatch.setattr(reader, "read_ranges", lambda *_: iter([rows([b"a", b"b"])]))
    code, found = one_cluster(*APART)
    assert (code, found["equal"]) == (0, True)
    assert len(found["notCompared"]) == (2 if said else 0)
    assert all(said in one for one in found["notCompared"])


def test_passes_that_do_not_read_the_same_are_no_answer(one_cluster, monkeypatch):
    """What goes meanwhile, by compaction, is in no share or in two."""
    left = [3, 3, 2, 3]
    monkeypatch.setattr(
        reader, "read_ranges", lambda *_: iter([rows([b"a", b"b", b"c"][: left.pop(0)])])
    )
    with pytest.raises(SourceError, match="3 records of the input at first, and 2 in pass 2"):
        one_cluster(*APART, "--passes", "2")
