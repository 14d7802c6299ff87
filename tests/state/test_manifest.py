"""Manifests and heads as bytes: they come back as they were, or as an error, never otherwise."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.core.transaction import Decision, DecisionState
from eo_kafka.errors import CorruptLedger, CorruptSnapshot
from eo_kafka.state.ledger import records
from eo_kafka.state.ledger.blob_names import (
    CHUNK,
    Blob,
    Digester,
    SnapshotHead,
    chunk_key,
    digest_of,
    parse_chunk_key,
)
from eo_kafka.state.snapshots import blobs, manifest
from eo_kafka.state.snapshots.manifest import FileEntry, Manifest

GOLDEN = Path(__file__).parents[1] / "golden"

NAMES = st.text(st.characters(exclude_characters="/\\\0"), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
DIGESTS = st.binary(min_size=20, max_size=20).map(bytes.hex)
ENTRIES = st.builds(
    FileEntry, st.builds(Blob, DIGESTS, st.integers(0, 2**50)), st.text(max_size=30)
)
MANIFESTS = st.dictionaries(PATHS, ENTRIES, max_size=6).map(Manifest)

FILES = Manifest(
    {
        "metadata": FileEntry(Blob(digest_of(b"hello"), 5), "1795260336579000000.42"),
        "offsets/7": FileEntry(Blob(digest_of(b""), 0), ""),
        "state/0/0/SSTs/a b%20c=ä.sst": FileEntry(
            Blob(digest_of(b"x" * 2 * CHUNK), 2 * CHUNK), "s"
        ),
    }
)
HEAD = SnapshotHead(
    batch=7,
    generation=12,
    query="b1-c2",
    manifest=Blob(digest_of(b"manifest"), 345),
    manifest_from=1234,
    files=3,
    size=1_048_581,
    sent=5,
    made_ms=1_795_260_336_579,
)
DECISION = Decision("main", 7, 0, DecisionState.DECIDED, 12, 5, 1, 56, (), ('{"t":{"0":5}}', "é"))


def test_version_1_is_as_it_was_stored() -> None:
    body = (GOLDEN / "snapshots" / "v1_manifest.json").read_bytes()
    packed = (GOLDEN / "snapshots" / "v1_manifest.packed").read_bytes()

    assert Manifest.decode(packed) == FILES
    # Not the packed form: another zlib packs otherwise.
    assert gzip.decompress(packed) == body == gzip.decompress(FILES.encode())


def test_heads_and_offsets_are_as_they_were_stored() -> None:
    stored = {path.name: path.read_bytes() for path in (GOLDEN / "snapshots").glob("*.json")}

    assert records.encode_snapshot(HEAD) == stored["v1_snapshot.json"]
    assert records.decode_snapshot(stored["v1_snapshot.json"]) == HEAD
    cut = replace(HEAD, topic_from=1200)
    assert records.encode_snapshot(cut) == stored["v1_snapshot_of_cut_topic.json"]
    assert records.decode_snapshot(stored["v1_snapshot_of_cut_topic.json"]) == cut
    assert records.encode_loading(56) == stored["v1_loading.json"]
    assert records.decode_loading(stored["v1_loading.json"]) == (56, "")
    key = records.decision_key("main", 7, 0)
    assert records.encode_decision(DECISION) == stored["v1_decision_with_offsets.json"]
    assert records.decode_decision(key, stored["v1_decision_with_offsets.json"]) == DECISION


def test_a_decision_of_before_there_were_offsets_still_decodes() -> None:
    stored = (GOLDEN / "v1_decision.json").read_bytes()
    assert b"offsets" not in stored

    decision = records.decode_decision(records.decision_key("main", 12, 1), stored)

    assert decision.offsets == ()
    assert records.encode_decision(decision) == stored


@pytest.mark.parametrize("wrong", ['""', "null", "{}", "[1]", "[null]", '"ab"'])
def test_wrong_offsets_are_corrupt(wrong: str) -> None:
    value = records.encode_decision(DECISION).decode()
    start = value.index('"offsets":') + len('"offsets":')

    with pytest.raises(CorruptLedger):
        records.decode_decision(
            records.decision_key("main", 7, 0), f"{value[:start]}{wrong}}}".encode()
        )


@given(MANIFESTS)
def test_a_manifest_comes_back(one: Manifest) -> None:
    found = Manifest.decode(one.encode())

    assert found == one
    assert found.encode() == one.encode()


@given(MANIFESTS)
def test_each_content_is_listed_once(one: Manifest) -> None:
    assert set(one.blobs()) == {entry.blob.digest for entry in one.files.values()}


def test_every_flipped_bit_is_found() -> None:
    packed = FILES.encode()
    for at in range(len(packed)):
        for bit in range(8):
            changed = bytearray(packed)
            changed[at] ^= 1 << bit
            is_corrupt_or(FILES, bytes(changed))


def test_every_cut_is_found() -> None:
    packed = FILES.encode()
    for length in range(len(packed)):
        with pytest.raises(CorruptSnapshot):
            Manifest.decode(packed[:length])
    with pytest.raises(CorruptSnapshot):
        Manifest.decode(packed + b"\0")


@given(MANIFESTS, st.data())
def test_changed_bytes_are_found(one: Manifest, data: st.DataObject) -> None:
    packed = bytearray(one.encode())
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))

    is_corrupt_or(one, bytes(packed))


def is_corrupt_or(one: Manifest, packed: bytes) -> None:
    """A damaged manifest reads as what it was (gzip's header says when it was packed), or is
    refused with a sentence of bounded length."""
    try:
        assert Manifest.decode(packed) == one
    except CorruptSnapshot as corrupt:
        assert len(str(corrupt)) < 1000
        assert "manifest cannot be read" in str(corrupt)


def test_another_manifest_in_its_place_is_found_by_the_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed = FILES.encode()
    blob = Blob(digest_of(packed), len(packed))
    other = Manifest(dict(list(FILES.files.items())[:2])).encode()

    for stored in (packed, other):
        key, value = next(blobs.chunks(stored, blob))
        monkeypatch.setattr(blobs, "read_records", lambda *_, k=key, v=value: [(0, k, v)])
        if stored == packed:
            assert blobs.read_blob({}, "t", 0, 1, blob) == packed
        else:
            with pytest.raises(CorruptSnapshot, match="not whole: 1 of 1"):
                blobs.read_blob({}, "t", 0, 1, blob)


def repacked(body: str) -> bytes:
    return gzip.compress(body.encode())


ROW = ["offsets/7", 5, digest_of(b"hello"), "stamp"]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "..",
        "../x",
        "a/../x",
        "a/..",
        ".",
        "./a",
        "a/./b",
        "a//b",
        "a/",
        "..\\x",
        "C:\\x",
        "a\\..\\x",
        "a\x00b",
        None,
        3,
        ["a"],
        {},
    ],
    ids=repr,
)
def test_no_path_leaves_the_checkpoint(path: Any) -> None:
    body = json.dumps({"v": 1, "files": [[path, *ROW[1:]]]}, separators=(",", ":"))

    with pytest.raises(CorruptSnapshot):
        Manifest.decode(repacked(body))


@given(st.text(max_size=20) | st.lists(st.sampled_from(["a", "..", ".", ""])).map("/".join))
def test_a_path_that_is_let_through_stays_below(path: str) -> None:
    body = json.dumps({"v": 1, "files": [[path, *ROW[1:]]]}, separators=(",", ":"))
    try:
        (found,) = Manifest.decode(repacked(body)).files
    except CorruptSnapshot:
        return
    assert found == path
    assert Path("/root", found).resolve().is_relative_to("/root/")
    assert Path("/root", found).resolve() != Path("/root")


BODIES = {
    "nothing": "",
    "no object": "[]",
    "no version": '{"files":[]}',
    "another version": '{"v":2,"files":[]}',
    "a version that equals 1": '{"v":true,"files":[]}',
    "a version that equals 1, too": '{"v":1.0,"files":[]}',
    "no files": '{"v":1}',
    "files as an object": '{"v":1,"files":{}}',
    "files as text": '{"v":1,"files":"ab"}',
    "a field too many": '{"v":1,"files":[],"more":1}',
    "blanks": '{"v":1, "files":[]}',
    "another order": '{"files":[],"v":1}',
    "a key twice": '{"v":1,"files":[],"files":[]}',
    "a row that is too short": '{"v":1,"files":[["a",1]]}',
    "a row that is none": '{"v":1,"files":[null]}',
    "a row of text": '{"v":1,"files":["abcd"]}',
    "nested": '{"v":' + "[" * 100_000,
    "a megabyte of version": '{"v":"' + "x" * 1_000_000 + '","files":[]}',
}
BODIES |= {
    f"{name} {value!r}": json.dumps(
        {"v": 1, "files": [[value if at == i else ROW[at] for at in range(4)]]},
        separators=(",", ":"),
    )
    for i, name, values in (
        (1, "size", [-1, True, 1.0, "1", None, 2**51, 10**400]),
        (2, "digest", ["", "z" * 40, "A" * 40, "a" * 39, "a" * 41, "a" * 39 + "/", 3, None]),
        (3, "stamp", [None, 3, [], True]),
    )
    for value in values
}


@pytest.mark.parametrize("body", BODIES.values(), ids=[name[:60] for name in BODIES])
def test_what_is_not_as_we_write_it_is_refused(body: str) -> None:
    with pytest.raises(CorruptSnapshot) as corrupt:
        Manifest.decode(repacked(body))
    assert len(str(corrupt.value)) < 1000


@pytest.mark.parametrize("order", [lambda rows: [*rows, rows[0]], lambda rows: rows[::-1]])
def test_a_path_twice_or_out_of_order_is_refused(order: Any) -> None:
    body = gzip.decompress(FILES.encode()).decode()
    fields = json.loads(body)
    assert json.dumps(fields, separators=(",", ":")) == body, "the test writes it otherwise"
    fields["files"] = order(fields["files"])

    with pytest.raises(CorruptSnapshot):
        Manifest.decode(repacked(json.dumps(fields, separators=(",", ":"))))


def test_a_zip_bomb_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "MANIFEST_MAX", 1 << 20)
    bomb = gzip.compress(b" " * (200 << 20))
    assert len(bomb) < 1 << 20

    tracemalloc.start()
    try:
        with pytest.raises(CorruptSnapshot):
            Manifest.decode(bomb)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_blob_of_more_bytes_than_there_are_is_refused_at_once() -> None:
    """A head that lies about its manifest's size: no set of a million keys is made of it."""
    with pytest.raises(CorruptSnapshot, match="bytes"):
        blobs.read_blob({}, "t", 0, 1, Blob("a" * 40, 2**62))


@given(st.binary(max_size=1000), st.integers(1, 300))
def test_a_digest_in_pieces_is_that_of_the_whole(content: bytes, piece: int) -> None:
    digester = Digester()
    for at in range(0, len(content), piece):
        digester.update(content[at : at + piece])

    assert (digester.digest(), digester.size) == (digest_of(content), len(content))


def test_digests_are_what_they_were() -> None:
    """They name what is in users' topics."""
    assert digest_of(b"hello") == "b5531c7037f06c9f2947132a6a77202c308e8939"
    assert digest_of(b"") == "3345524abf6bbe1809449224b5972c41790b6cf2"


@pytest.mark.parametrize(
    ("size", "chunks"),
    [(0, 1), (1, 1), (CHUNK - 1, 1), (CHUNK, 1), (CHUNK + 1, 2), (5 * CHUNK, 5)],
)
def test_chunks(size: int, chunks: int) -> None:
    content = bytes(size)
    blob = Blob(digest_of(content), size)

    found = list(blobs.chunks(content, blob))

    assert blob.chunks == chunks == len(found)
    assert [key for key, _ in found] == list(blob.chunk_keys())
    assert [parse_chunk_key(key) for key, _ in found] == [(blob.digest, i) for i in range(chunks)]
    assert [len(value) for _, value in found] == [blob.chunk_size(i) for i in range(chunks)]
    assert b"".join(value for _, value in found) == content
    assert blob.chunk_size(chunks) < 0


@given(DIGESTS, st.integers(0, 10**10 - 1))
def test_a_chunks_key_comes_back(digest: str, index: int) -> None:
    assert parse_chunk_key(chunk_key(digest, index)) == (digest, index)


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"/",
        b"a" * 40,
        b"a" * 40 + b"/",
        b"a" * 40 + b"/-1",
        b"a" * 40 + b"/01",
        b"a" * 40 + b"/1 ",
        b"a" * 40 + b"/" + b"9" * 5000,
        b"g" * 40 + b"/0",
        b"A" * 40 + b"/0",
        b"a" * 39 + b"/0",
        b"a" * 40 + b"/0\n",
        b"\xff" * 40 + b"/0",
        "٣".encode() * 20 + b"/0",
    ],
    ids=lambda key: repr(key)[:50],
)
def test_what_is_no_chunks_key_is_corrupt_and_said(key: bytes) -> None:
    with pytest.raises(CorruptSnapshot, match="somebody else writes into it") as corrupt:
        parse_chunk_key(key)
    assert len(str(corrupt.value)) < 1000


@given(st.binary(max_size=60) | st.from_regex(r"[0-9a-g]{38,42}/[0-9]{0,12}").map(str.encode))
def test_two_keys_never_mean_the_same_chunk(key: bytes) -> None:
    try:
        digest, index = parse_chunk_key(key)
    except CorruptSnapshot:
        return
    assert chunk_key(digest, index) == key
