"""The view's own record: what is written is read, and what was not written by us is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.errors import CorruptSnapshot, OptionsError
from eo_kafka.state import view
from eo_kafka.state.view import MARKER, Marker, read_view
from eo_kafka.state.view_writer import topic_of

GOLDEN = Path(__file__).parents[1] / "golden"
STORED = Marker("7d3ae3b8-0000-4000-8000-000000000001", 12)
OF_STATE = Marker(STORED.query, 12, '[["statevarname", "total"]]')


@pytest.mark.parametrize(("marker", "file"), [(STORED, "view_v1"), (OF_STATE, "view_v2")])
def test_each_version_is_as_it_was_stored(marker: Marker, file: str):
    """Views of before an upgrade are gone on with, and not made anew."""
    stored = (GOLDEN / f"{file}.json").read_bytes()
    assert marker.encode() == stored
    assert Marker.decode(stored) == marker
    assert MARKER == b'"eo-kafka"'


@given(st.builds(Marker, st.text(), st.integers(0, 2**63 - 1), st.text()))
def test_a_marker_is_read_as_it_was_written(marker: Marker):
    assert Marker.decode(marker.encode()) == marker


@given(st.binary())
def test_what_is_no_marker_is_named(value: bytes):
    with pytest.raises(CorruptSnapshot, match="written to by somebody else"):
        Marker.decode(value)


@pytest.mark.parametrize(
    "value",
    [
        b'{"v":2,"query":"q","batch":1}',
        b'{"v":1,"query":"q","batch":"1"}',
        b'{"v":1,"query":"q","batch":true}',
        b'{"v":1,"query":null,"batch":1}',
        b'{"v":1,"query":"q"}',
        b'{"v":1,"query":"q","batch":1,"state":"s"}',
        b'{"v":2,"query":"q","batch":1,"state":1}',
        b'{"v":3,"query":"q","batch":1,"state":"s"}',
    ],
)
def test_a_marker_of_another_shape_is_named(value: bytes):
    with pytest.raises(CorruptSnapshot):
        Marker.decode(value)


@pytest.mark.parametrize("name", ["ledger", "state", "plan", "control", "2.ledger", "a.export.b"])
def test_a_topic_of_another_jobs_is_no_view(name: str):
    """Of a job called "a.view", or "a.view.2": `job delete a --exports` would delete it."""
    assert view.name_in(f"__eo_kafka.a.view.{name}", "a") is None
    assert view.name_in("__eo_kafka.a.view.by_key", "a") == "by_key"


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "x" * 250, "ledger", "by.key"])
def test_a_views_name_is_part_of_a_topics(name: str):
    with pytest.raises(OptionsError, match="The name of a view, here '.*', must"):
        topic_of("job", name)
    assert topic_of("job", "by_key") == "__eo_kafka.job.view.by_key"


def test_the_newest_value_of_each_key_counts(monkeypatch):
    log = [
        (b'{"k":1}', b"old"),
        (b'{"k":2}', b"gone soon"),
        (MARKER, Marker("q", 1).encode()),
        (b'{"k":1}', b"new"),
        (b'{"k":2}', None),
        (b'{"k":3}', None),
        (MARKER, Marker("q", 2).encode()),
    ]
    found = [(offset, key, value) for offset, (key, value) in enumerate(log)]
    monkeypatch.setattr(view, "read_records", lambda *_: iter(found))
    shown = read_view({}, "t", len(log))
    assert dict(shown.values) == {b'{"k":1}': b"new"}
    assert shown.marker == Marker("q", 2)
