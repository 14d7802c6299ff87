"""Exported snapshots: the head record as bytes, names and topics; what is copied and checked."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.errors import CorruptSnapshot, OptionsError
from eo_kafka.state.ledger.blob_names import CHUNK, Blob, SnapshotHead, digest_of
from eo_kafka.state.snapshots import blobs, export
from eo_kafka.state.snapshots import writing_back as restore
from eo_kafka.state.snapshots.export import Export
from eo_kafka.state.snapshots.manifest import FileEntry, Manifest

GOLDEN = Path(__file__).parents[1] / "golden" / "export_v1.json"
WHOLE = st.integers(min_value=-(2**63), max_value=2**63)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
HEADS = st.builds(
    SnapshotHead,
    WHOLE,
    WHOLE,
    TEXT,
    st.builds(Blob, TEXT, WHOLE),
    WHOLE,
    WHOLE,
    WHOLE,
    WHOLE,
    WHOLE,
)
EXPORTS = st.builds(Export, TEXT, TEXT, WHOLE, HEADS, st.lists(TEXT, max_size=3).map(tuple))
HEAD = SnapshotHead(
    batch=12,
    generation=34,
    query="7d3ae3b8-0000-4000-8000-000000000001",
    manifest=Blob("0123456789abcdef0123456789abcdef01234567", 890),
    manifest_from=56,
    files=20,
    size=123456,
    sent=789,
    made_ms=1795260342977,
)
EXPORT = Export("before-upgrade", "shout", 1795260342999, HEAD, ('{"in":{"0":1600,"1":7}}', "é"))


class Told:
    """What a progress bar would draw."""

    def __init__(self) -> None:
        self.bytes = self.total = 0

    def __call__(self, done: int, total: int) -> None:
        assert self.bytes <= done <= total
        self.bytes, self.total = done, total


def test_version_1_is_as_it_was_stored() -> None:
    assert export.encode(EXPORT) == GOLDEN.read_bytes()
    assert export.decode(GOLDEN.read_bytes()) == EXPORT


@given(EXPORTS)
def test_an_export_comes_back(found: Export) -> None:
    assert export.decode(export.encode(found)) == found


def refusal(value: bytes) -> str:
    with pytest.raises(CorruptSnapshot) as refused:
        export.decode(value)
    assert len(str(refused.value)) < 1000
    str(refused.value).encode()
    return str(refused.value)


@pytest.mark.parametrize(
    "value", [b"", b"{", b"\xff", b"null", b"[]", b"{}", b'{"v":1}', b'{"v":2}', b"[" * 100_000]
)
def test_what_is_no_head_is_refused(value: bytes) -> None:
    assert "cannot be decoded" in refusal(value)


@pytest.mark.parametrize("field", [*json.loads(export.encode(EXPORT)), "another"])
@pytest.mark.parametrize(
    "wrong", [None, True, 1.5, "1", "\ud800", [], [1], {}, {"v": 1}, "x" * 2_000_000]
)
def test_a_wrong_field_is_refused(field: str, wrong: Any) -> None:
    fields = json.loads(export.encode(EXPORT))
    if wrong == fields.get(field) or (field in ("name", "job") and wrong == "1"):
        return  # that is another name, as good as any
    if field == "offsets" and wrong == []:
        return
    refusal(json.dumps({**fields, field: wrong}, separators=(",", ":")).encode())


def test_a_missing_field_is_refused() -> None:
    fields = json.loads(export.encode(EXPORT))
    for field in fields:
        left = {name: value for name, value in fields.items() if name != field}
        refusal(json.dumps(left, separators=(",", ":")).encode())


@given(st.data())
def test_changed_bytes_are_refused_or_say_something_else(data: st.DataObject) -> None:
    good = export.encode(EXPORT)
    value = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(value)))
        value[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    try:
        found = export.decode(bytes(value))
    except CorruptSnapshot:
        return
    assert export.encode(found) == bytes(value), "two values with one meaning"
    assert (found == EXPORT) == (bytes(value) == good)


@pytest.mark.parametrize(
    "name", ["", "a.b", "a/b", "a b", "ä", "latest", "ledger", "state", "x" * 240]
)
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(OptionsError, match="cannot be the name of an exported snapshot"):
        export.topic_of("shout", name)


def test_the_topic_says_whose_export_it_is() -> None:
    topic = export.topic_of("a.export.b", "c")
    assert export.name_in(topic, "a.export.b") == "c"
    assert export.name_in(topic, "a") is None
    assert export.name_in("__eo_kafka.a.ledger", "a") is None
    for own in ("ledger", "state", "plan", "control"):  # of a job called a.export
        assert export.name_in(f"__eo_kafka.a.export.{own}", "a") is None


BIG = os.urandom(2 * CHUNK + 1)
FILES = {"offsets/7": b"v1\n{}\n{}", "state/0/0/7.delta": BIG, "empty": b"", "copy": BIG}


def blob(content: bytes) -> Blob:
    return Blob(digest_of(content), len(content))


MANIFEST = Manifest({path: FileEntry(blob(content), "") for path, content in FILES.items()})
ALL = [record for content in set(FILES.values()) for record in blobs.chunks(content, blob(content))]
Records = list[tuple[bytes, bytes | None]]


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Records:
    """The records that a read of any topic finds."""
    found: Records = []

    def read(*arguments: Any) -> Iterator[tuple[int, bytes, bytes | None]]:
        start, end = arguments[3:5]
        for offset, record in list(enumerate(found))[start:end]:
            yield offset, *record

    monkeypatch.setattr(restore, "read_records", read)
    monkeypatch.setattr(export, "read_records", read)
    return found


def copied(there: set[bytes], end: int = 100) -> tuple[Records, int]:
    told = Told()
    return list(export.copies({}, "t", end, MANIFEST, there, told)), told.total


def test_what_is_not_there_is_copied_whole(topic: Records) -> None:
    topic += ALL
    assert sorted(copied(set())[0]) == sorted(ALL)
    some = dict(blobs.chunks(BIG, blob(BIG)))
    assert copied(set(some)) == (
        [record for record in ALL if record[0] not in some],
        len(FILES["offsets/7"]),
    )
    # Of a blob that is there in part all chunks are copied.
    assert {key for key, _ in copied({key for key, _ in ALL} - {max(some)})[0]} == set(some)


@pytest.mark.parametrize("lacking", [0, 1, 2])
def test_a_blob_that_is_not_whole_is_named_and_not_copied(topic: Records, lacking: int) -> None:
    chunks: Records = [*blobs.chunks(BIG, blob(BIG))]
    topic += [record for record in ALL if record != chunks[lacking]]
    with pytest.raises(CorruptSnapshot, match=r"2 of 4 files.*copy, state/0/0/7.delta"):
        copied(set())
    assert export.damaged({}, "t", 100, MANIFEST, Told()) == ["copy", "state/0/0/7.delta"]
    key, content = chunks[lacking]
    topic += [(key, bytes(byte ^ 1 for byte in content or b""))]  # another content, as long
    assert export.damaged({}, "t", 100, MANIFEST, Told()) == ["copy", "state/0/0/7.delta"]


def test_a_whole_snapshot_has_no_damaged_files(topic: Records) -> None:
    topic += ALL
    told = Told()
    assert export.damaged({}, "t", 100, MANIFEST, told) == []
    assert told.bytes == told.total == len(BIG) + len(FILES["offsets/7"])
    assert export.damaged({}, "t", len(ALL) - 1, MANIFEST, Told()) != []


def test_files_are_read_by_path_and_one_that_is_not_whole_is_named(topic: Records) -> None:
    topic += blobs.chunks(BIG, blob(BIG))
    assert export.read_files({}, "t", 100, MANIFEST, ["copy"]) == {"copy": BIG}
    with pytest.raises(CorruptSnapshot, match=r"topic 't' is damaged.* offsets/7, or parts"):
        export.read_files({}, "t", 100, MANIFEST, ["copy", "offsets/7"])


def test_the_head_is_among_the_last_records(topic: Records) -> None:
    topic += [(b"%d" % number, b"") for number in range(100)]
    assert export.read_head({}, "t", 100) is None
    topic.append((export.KEY, export.encode(EXPORT)))
    assert export.read_head({}, "t", 102) == (EXPORT, 100)
    topic[100] = (export.KEY, b"{}")
    with pytest.raises(CorruptSnapshot):
        export.read_head({}, "t", 102)


def test_an_export_of_many_partitions_can_be_read() -> None:
    """As the ledger has its lines: 55,000 partitions make one of more than 1 MiB."""
    long = Export("many", "shout", 1, HEAD, ("x" * ((1 << 20) + 1),))
    assert export.decode(export.encode(long)) == long
