"""Restoring from a topic that does not hold what it should, or holds it otherwise; and restoring
again after an interruption anywhere. The topic's records are given; the files are real."""

from __future__ import annotations

import os
import random
import tempfile
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eo_kafka.errors import CheckpointError, CorruptSnapshot, ReadTimeout
from eo_kafka.state.ledger.blob_names import CHUNK, Blob, SnapshotHead, chunk_key, digest_of
from eo_kafka.state.snapshots import assembly, blobs
from eo_kafka.state.snapshots import writing_back as module
from eo_kafka.state.snapshots.checkpoint import LocalCheckpoint, open_checkpoint
from eo_kafka.state.snapshots.manifest import FileEntry, Manifest
from eo_kafka.state.snapshots.snapshot import RESTORING
from eo_kafka.state.snapshots.writing_back import Purpose, restore

Record = tuple[bytes, bytes | None]
LARGE = "state/0/0/SSTs/000008-large.sst"
FILES: dict[str, bytes] = {
    "metadata": b'{"id":"b1-c2"}',
    "offsets/1": b"v1\n{}\n5",
    "offsets/0": b"v1\n{}\n3",
    "commits/0": b"v1\n{}",
    "state/0/0/1.delta": b"the same",
    "state/0/1/1.delta": b"the same",
    "state/0/0/_metadata/schema": b"",
    LARGE: bytes(range(256)) * (5 * CHUNK // 512),  # two chunks and a half
}
PURPOSE = Purpose("job")
THREE = list(range(3))


class Topic:
    """What a read of the state topic yields."""

    def __init__(self, files: dict[str, bytes]) -> None:
        entries = {path: FileEntry(blob_of(content), "") for path, content in files.items()}
        self.packed = Manifest(entries).encode()
        self.manifest = blob_of(self.packed)
        contents = {blob_of(content): content for content in files.values()}
        self.records: list[Record] = [
            record for blob, content in contents.items() for record in blobs.chunks(content, blob)
        ]
        self.records += blobs.chunks(self.packed, self.manifest)
        self.head = SnapshotHead(1, 2, "q", self.manifest, 0, len(files), 0, 0, 0)

    def read(
        self, settings: object, topic: str, partition: int, start: int, end: int, at_once: int
    ) -> Iterator[tuple[int, bytes, bytes | None]]:
        for offset in range(start, min(end, len(self.records))):
            yield offset, *self.records[offset]

    def at(self, path: str, index: int = 0) -> int:
        """The offset of a chunk."""
        key = chunk_key(digest_of(FILES[path]), index)
        return [offset for offset, record in enumerate(self.records) if record[0] == key][-1]

    def change(self, path: str, index: int, change: Callable[[bytes], bytes | None]) -> Record:
        """Exchange a chunk. Returns the record as it was."""
        offset = self.at(path, index)
        key, value = before = self.records[offset]
        assert value is not None
        self.records[offset] = key, change(value)
        return before


class Counted:
    def __init__(self) -> None:
        self.sum = self.total = 0

    def __call__(self, done: int, total: int) -> None:
        assert self.sum <= done <= total
        self.sum, self.total = done, total


def blob_of(content: bytes) -> Blob:
    return Blob(digest_of(content), len(content))


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    return served(monkeypatch, Topic(FILES))


def served(monkeypatch: pytest.MonkeyPatch, topic: Topic) -> Topic:
    for reader in (module, blobs):
        monkeypatch.setattr(reader, "read_records", topic.read)
    monkeypatch.setattr(os, "sync", lambda: None)  # waits for all of this machine's disks
    return topic


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "check point"


def restored(topic: Topic, folder: Path, leave_out: Iterable[str] = ()) -> dict[str, bytes]:
    restore(
        {},
        "state",
        len(topic.records),
        topic.head,
        open_checkpoint(str(folder)),
        Counted(),
        PURPOSE,
        frozenset(leave_out),
    )
    return content_of(folder)


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def is_refused(topic: Topic, folder: Path, *named: str) -> None:
    """The error names the files, and nothing is left that could be used."""
    with pytest.raises(CorruptSnapshot) as refused:
        restored(topic, folder)
    for name in named:
        assert name in str(refused.value)
    assert "not used" in str(refused.value)
    assert not folder.exists() or not list(folder.iterdir())


def test_every_file_is_written_as_it_was(topic: Topic, folder: Path) -> None:
    told = Counted()

    restore(
        {}, "state", len(topic.records), topic.head, open_checkpoint(str(folder)), told, PURPOSE
    )

    assert content_of(folder) == FILES
    assert told.sum == sum(map(len, FILES.values()))


def test_what_is_left_out_is_not_missed(topic: Topic, folder: Path) -> None:
    del topic.records[topic.at("offsets/0")]

    found = restored(topic, folder, {"offsets/0", "state/0/1/1.delta"})

    left = set(FILES) - {"offsets/0", "state/0/1/1.delta"}
    assert found == {path: FILES[path] for path in left}


@given(st.randoms(use_true_random=False))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_records_in_any_order_and_any_number_of_times(
    monkeypatch: pytest.MonkeyPatch, chance: random.Random
) -> None:
    """Compaction keeps the newest copy of each, wherever that is."""
    topic = served(monkeypatch, Topic(FILES))
    topic.records += chance.sample(topic.records, 5)
    topic.records += [(chunk_key("a" * 40, number), b"another's") for number in THREE]
    topic.records.append((chunk_key("b" * 40, 0), None))
    chance.shuffle(topic.records)
    with tempfile.TemporaryDirectory() as folder:
        assert restored(topic, Path(folder)) == FILES


def test_a_file_is_found_with_another_path_of_its_content(topic: Topic, folder: Path) -> None:
    same = [key for key, _ in topic.records if key == chunk_key(digest_of(b"the same"), 0)]
    assert len(same) == 1

    found = restored(topic, folder)

    assert found["state/0/0/1.delta"] == found["state/0/1/1.delta"] == b"the same"


# --- not whole --------------------------------------------------------------------------------

DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "flipped": lambda value: bytes([value[0] ^ 1]) + value[1:],
    "reversed": lambda value: value[::-1],
    "cut": lambda value: value[:-1],
    "empty": lambda value: b"",
    "longer": lambda value: value + b"x",
    "tombstone": lambda value: None,
}
damaged = pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
PLACES = [("offsets/0", 0), ("metadata", 0), *((LARGE, index) for index in THREE)]
places = pytest.mark.parametrize(("path", "index"), PLACES)


@damaged
@places
def test_a_damaged_chunk_is_named_and_nothing_is_used(
    topic: Topic, folder: Path, path: str, index: int, damage: Callable[[bytes], bytes]
) -> None:
    topic.change(path, index, damage)

    is_refused(topic, folder, path, "1 of 8 files")


@places
def test_a_missing_chunk_is_named_and_nothing_is_used(
    topic: Topic, folder: Path, path: str, index: int
) -> None:
    del topic.records[topic.at(path, index)]

    is_refused(topic, folder, path, "1 of 8 files")


def test_all_paths_of_a_missing_content_are_named(topic: Topic, folder: Path) -> None:
    del topic.records[topic.at("state/0/0/1.delta")]

    is_refused(topic, folder, "state/0/0/1.delta", "state/0/1/1.delta", "2 of 8 files")


@damaged
@places
def test_a_damaged_copy_before_a_whole_one_does_not_matter(
    topic: Topic, folder: Path, path: str, index: int, damage: Callable[[bytes], bytes]
) -> None:
    topic.records.append(topic.change(path, index, damage))

    assert restored(topic, folder) == FILES


@damaged
@places
def test_a_damaged_copy_after_a_whole_one_does_not_matter(
    topic: Topic, folder: Path, path: str, index: int, damage: Callable[[bytes], bytes]
) -> None:
    key, value = topic.records[topic.at(path, index)]
    topic.records.append((key, damage(value or b"")))

    assert restored(topic, folder) == FILES


@pytest.mark.parametrize("kept", [{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}], ids=str)
def test_the_leavings_of_a_damaged_copy_do_not_spoil_a_whole_one(
    topic: Topic, folder: Path, kept: set[int]
) -> None:
    """Half of a copy that went wrong is compacted away; the whole one that was sent again, in
    order and in parts already among it, stands behind."""
    whole = [topic.records[topic.at(LARGE, index)] for index in THREE]
    rest = [record for record in topic.records if record not in whole]
    wrong = [(whole[index][0], (whole[index][1] or b"")[::-1]) for index in sorted(kept)]

    topic.records = [*wrong, *whole, *rest]

    assert restored(topic, folder) == FILES


def test_a_copy_of_a_large_file_is_digested_once(
    topic: Topic, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again with each chunk of the copy that follows a damaged one."""
    whole = [topic.records[topic.at(LARGE, index)] for index in THREE]
    topic.records[:0] = [(key, (value or b"")[::-1]) for key, value in whole]
    digested = []
    real = assembly.Digester.update

    def update(digester: assembly.Digester, piece: bytes) -> None:
        digested.append(len(piece))
        real(digester, piece)

    monkeypatch.setattr(assembly.Digester, "update", update)
    assert restored(topic, folder) == FILES
    assert sum(digested) == 2 * len(FILES[LARGE])


def test_a_chunk_beyond_a_files_end_is_nobodys(topic: Topic, folder: Path) -> None:
    strange = chunk_key(digest_of(FILES[LARGE]), 9_999_999_999)
    topic.records.insert(0, (strange, b"x" * CHUNK))

    assert restored(topic, folder) == FILES


def test_a_key_that_is_none_of_ours_is_refused(topic: Topic, folder: Path) -> None:
    topic.records.insert(0, (b"somebody's", b"x"))

    with pytest.raises(CorruptSnapshot, match="somebody else writes into it"):
        restored(topic, folder)
    assert not list(folder.iterdir())


# --- the manifest -----------------------------------------------------------------------------


def test_a_manifest_that_lists_fewer_files_than_its_head_is_refused(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    topic = served(monkeypatch, Topic(FILES))
    topic.head = SnapshotHead(1, 2, "q", topic.manifest, 0, len(FILES) + 1, 0, 0, 0)

    with pytest.raises(CorruptSnapshot, match="batch 1 lists 8 files of 9"):
        restored(topic, folder)
    assert not folder.exists()


@damaged
def test_a_damaged_manifest_is_refused_and_nothing_is_written(
    topic: Topic, folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    topic.records[-1] = topic.records[-1][0], damage(topic.packed)

    is_refused(topic, folder, topic.manifest.digest)


@damaged
def test_a_damaged_manifest_before_a_whole_one_does_not_matter(
    topic: Topic, folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    key = chunk_key(topic.manifest.digest, 0)
    topic.records.insert(0, (key, damage(topic.packed)))

    assert restored(topic, folder) == FILES


def test_a_missing_manifest_is_refused(topic: Topic, folder: Path) -> None:
    del topic.records[-1]

    is_refused(topic, folder, "0 of 1 records")


# --- the folder -------------------------------------------------------------------------------


@pytest.mark.parametrize("there", ["metadata", "x/y", ".hidden.crc", "state/0/0/.1.delta.tmp"])
def test_a_folder_that_is_not_empty_is_refused_and_left_as_it_is(
    topic: Topic, folder: Path, there: str
) -> None:
    path = folder / there
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine")

    with pytest.raises(CheckpointError, match="not empty"):
        restored(topic, folder)
    assert content_of(folder) == {there: b"mine"}


class Interrupted(Exception):
    """Stands for a death: nothing of ours catches it."""


class Dying(LocalCheckpoint):
    """Dies at the k-th of everything that it is asked to change."""

    def __init__(self, root: Path, steps: int) -> None:
        super().__init__(str(root), root)
        self.steps = steps
        self.written: list[str] = []

    def _step(self) -> None:
        if self.steps == 0:
            raise Interrupted
        self.steps -= 1

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        def until_it_dies() -> Iterator[bytes]:
            for chunk in chunks:
                self._step()
                yield chunk

        self._step()
        self.written.append(path)
        super().write(path, until_it_dies())

    def take(self, path: str, file: Path) -> None:
        self._step()
        self.written.append(path)
        super().take(path, file)

    def finish(self, marker: str, check: Callable[[], object] = lambda: None) -> None:
        self._step()
        super().finish(marker, check)


def test_a_restore_that_is_interrupted_anywhere_is_completed_by_the_next(
    topic: Topic, tmp_path: Path
) -> None:
    written: list[str] = []
    for steps in range(100):
        folder = tmp_path / str(steps)
        dying = Dying(folder, steps)
        try:
            restore({}, "state", len(topic.records), topic.head, dying, Counted(), PURPOSE)
        except Interrupted:
            left = content_of(folder) if folder.exists() else {}
            # Spark takes a folder with a `metadata` for a query's; the marker stops it from that.
            assert not left or RESTORING in left
            assert restored(topic, folder) == FILES
            continue
        written = dying.written
        break
    assert steps > 2 * len(FILES), "it was hardly interrupted"
    assert written[0] == RESTORING
    assert written[-1] == "metadata"


class DyingAtTheEnd(LocalCheckpoint):
    def finish(self, marker: str, check: Callable[[], object] = lambda: None) -> None:
        raise Interrupted


def test_a_restore_that_dies_twice_is_completed_by_the_third(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it clears what the first one left."""
    for deletions in range(6):
        folder = tmp_path / str(deletions)
        unfinished = DyingAtTheEnd(str(folder), folder)
        with pytest.raises(Interrupted):
            restore({}, "state", len(topic.records), topic.head, unfinished, Counted(), PURPOSE)
        assert content_of(folder).keys() == {*FILES, RESTORING}
        left = iter(range(deletions))
        with monkeypatch.context() as patch:
            for name in ("unlink", "rmdir"):
                patch.setattr(os, name, dying(getattr(os, name), left))
            with pytest.raises(Interrupted):
                restored(topic, folder)
        assert RESTORING in content_of(folder)
        assert restored(topic, folder) == FILES


def dying(real: Callable[..., None], left: Iterator[int]) -> Callable[..., None]:
    def remove(*args: object, **kwargs: object) -> None:
        if next(left, None) is None:
            raise Interrupted
        real(*args, **kwargs)

    return remove


def test_a_read_that_breaks_off_leaves_the_marker(
    topic: Topic, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> Iterator[tuple[int, bytes, bytes | None]]:
        yield from list(topic.read(*args))[:3]  # type: ignore[arg-type]
        raise ReadTimeout("the broker stopped")

    with monkeypatch.context() as patch:
        patch.setattr(module, "read_records", broken)
        with pytest.raises(ReadTimeout):
            restored(topic, folder)
    assert RESTORING in content_of(folder)
    assert "metadata" not in content_of(folder)
    assert restored(topic, folder) == FILES


def test_a_reader_of_the_folder_never_sees_metadata_before_the_rest(
    topic: Topic, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []
    real = LocalCheckpoint.write

    def write(self: LocalCheckpoint, path: str, chunks: Iterable[bytes]) -> None:
        real(self, path, chunks)
        seen.append(set(content_of(folder)))

    monkeypatch.setattr(LocalCheckpoint, "write", write)
    restored(topic, folder)

    assert [files for files in seen if "metadata" in files] == [{*FILES, RESTORING}]


# --- memory -----------------------------------------------------------------------------------


def test_memory_is_bounded_whatever_a_files_size(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    zeros = bytes(CHUNK)
    chunks = 200
    large = Blob(digest_of(zeros * chunks), chunks * CHUNK)
    packed = Manifest({"a": FileEntry(large, ""), "metadata": FileEntry(blob_of(b"m"), "")})
    topic = served(monkeypatch, Topic({"metadata": b"m"}))
    content = packed.encode()
    topic.manifest = blob_of(content)
    topic.records = [
        *((chunk_key(large.digest, index), zeros) for index in range(chunks)),
        *blobs.chunks(b"m", blob_of(b"m")),
        *blobs.chunks(content, topic.manifest),
    ]
    topic.head = SnapshotHead(1, 2, "q", topic.manifest, 0, 2, 0, 0, 0)
    tracemalloc.start()
    try:
        target = open_checkpoint(str(folder))
        restore({}, "t", len(topic.records), topic.head, target, Counted(), PURPOSE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert (folder / "a").stat().st_size == large.size
    assert peak < 8 << 20


def test_what_it_put_aside_is_gone(
    topic: Topic, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = tmp_path / "tmp"
    aside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(aside))

    restored(topic, folder)
    assert list(aside.iterdir()) == []
    del topic.records[topic.at(LARGE, 2)]
    is_refused(topic, folder.with_name("another"), LARGE)
    assert list(aside.iterdir()) == []
