"""Which entries a side input's batch gets; Spark and its file system are dictionaries here."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from eo_kafka.connectors.maps import side_input
from eo_kafka.connectors.maps.side_input import SideInput
from eo_kafka.errors import CheckpointError

OPTIONS = {"backend": "kafka", "map": "prices", "kafka.bootstrap.servers": "a:1"}
SCHEMA = "key STRING, value STRING"


class Files:
    """Spark's file system: what was pinned, and the versions."""

    def __init__(self):
        self.pins = {}
        self.versions = []
        self.now = 1_000_000.0

    def names(self, folder):
        return [name.partition("/")[2] for name in self.pins if name.startswith(folder)]

    def read(self, name):
        return self.pins.get(name)

    def write_new(self, name, text):
        self.pins.setdefault(name, text)


@pytest.fixture
def files(monkeypatch):
    made = Files()
    monkeypatch.setattr(side_input, "HadoopFiles", lambda spark, folder: made)
    monkeypatch.setattr(side_input.time, "time", lambda: made.now)
    monkeypatch.setattr(SideInput, "_check_keys", lambda *_: None)
    return made


def entries_of(files, batch, options=OPTIONS, schema=SCHEMA, refresh=None):
    """The name of the version that a batch is joined with."""
    entries = SimpleNamespace(schema=SimpleNamespace(json=lambda: schema))
    entries.write = SimpleNamespace(parquet=files.versions.append)
    entries.select = lambda *_: entries
    reader = SimpleNamespace(load=lambda: entries, parquet=lambda path: path)
    reader.format = reader.schema = lambda _: reader
    reader.options = lambda **_: reader
    context = SimpleNamespace(getLocalProperty=lambda _: "query")
    spark = SimpleNamespace(sparkContext=context, read=reader)
    return SideInput(options, "/side", refresh).at(spark, batch).rpartition("/")[2]


def test_entries_are_taken_anew_while_the_clock_is_behind(files) -> None:
    first = entries_of(files, 0, refresh="1 hour")
    assert entries_of(files, 1, refresh="1 hour") == first
    files.now -= 60
    assert entries_of(files, 2) != first
    files.now -= 60
    assert entries_of(files, 3, refresh="1 hour") not in (first, files.versions[-2])
    assert len(files.versions) == 3
    assert entries_of(files, 0, refresh="1 hour") == first


@pytest.mark.parametrize(
    ("more", "schema"),
    [
        ({"map": "others"}, SCHEMA),
        ({"value.format": "json", "value.schema": "a INT"}, SCHEMA),
        ({}, "key STRING, value STRUCT<a: INT, b: INT>"),
    ],
)
def test_entries_that_were_read_with_other_options_are_not_used(files, more, schema) -> None:
    first = entries_of(files, 0, refresh="1 hour")
    with pytest.raises(CheckpointError, match="Batch 0 .* of another map, or .* once more"):
        entries_of(files, 0, {**OPTIONS, **more}, schema)
    assert entries_of(files, 1, {**OPTIONS, **more}, schema, "1 hour") != first


def test_servers_and_pins_of_before_make_no_difference(files) -> None:
    first = entries_of(files, 0, refresh="1 hour")
    elsewhere = {**OPTIONS, "kafka.bootstrap.servers": "b:1"}
    assert entries_of(files, 0, elsewhere) == first
    pin = json.loads(files.pins["pins/0"])
    files.pins["pins/0"] = json.dumps(
        {name: pin[name] for name in ("query", "version", "taken_ms")}
    )
    assert entries_of(files, 0, {**OPTIONS, "map": "others"}) == first
