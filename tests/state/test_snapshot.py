"""Taking a snapshot while Spark writes and removes files: what is read again, what is refused."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

import pytest
from test_closure import KINDS, Listing, packed

from eo_kafka.errors import CheckpointError, SnapshotFailed
from eo_kafka.state.ledger.blob_names import CHUNK, Blob, digest_of
from eo_kafka.state.snapshots import snapshot as module
from eo_kafka.state.snapshots.checkpoint import FileStat, LocalCheckpoint
from eo_kafka.state.snapshots.closure import needed
from eo_kafka.state.snapshots.manifest import FileEntry, Manifest
from eo_kafka.state.snapshots.snapshot import RESTORING, take

NOTHING = Manifest()
BATCH = 15


class Watched(LocalCheckpoint):
    """A checkpoint that tells which files were opened, and what happens before one is."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root), root)
        self.opened: list[str] = []
        self.before_open: Callable[[str], object] = lambda path: None
        self.before_stat: Callable[[str], object] = lambda path: None

    def open(self, path: str) -> IO[bytes]:
        self.before_open(path)
        self.opened.append(path)
        return super().open(path)

    def stat(self, path: str) -> FileStat:
        self.before_stat(path)
        return super().stat(path)


def written(folder: Path, files: dict[str, bytes]) -> Watched:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return Watched(folder)


@pytest.fixture(params=KINDS)
def listing(request: pytest.FixtureRequest) -> Listing:
    return Listing(request.param)


@pytest.fixture
def checkpoint(listing: Listing, tmp_path: Path) -> Watched:
    """The files of a real checkpoint, each with a content of its own."""
    return written(
        tmp_path,
        {
            path: listing.read(path)
            if path.endswith(".zip") or path.startswith("commits/")
            else f"this is {path}".encode()
            for path in listing.paths
        },
    )


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each attempt was waited for; nothing is."""
    found: list[float] = []
    monkeypatch.setattr(module, "time", type("", (), {"sleep": found.append}))
    return found


def whole(snapshot: module.Snapshot) -> dict[str, bytes]:
    """Path to content, from what would be sent."""
    contents = {
        blob.digest: b"".join(value for _, value in snapshot.chunks(blob))
        for blob in snapshot.new_blobs({})
    }
    return {path: contents[entry.blob.digest] for path, entry in snapshot.manifest.files.items()}


def test_everything_that_a_restart_needs_is_in_it(checkpoint: Watched, listing: Listing) -> None:
    snapshot = take(checkpoint, BATCH, NOTHING)

    assert sorted(snapshot.manifest.files) == needed(listing.paths, BATCH, listing.read)
    root = Path(checkpoint.url)
    assert whole(snapshot) == {path: (root / path).read_bytes() for path in snapshot.manifest.files}
    for path, entry in snapshot.manifest.files.items():
        content = (root / path).read_bytes()
        assert entry.blob == Blob(digest_of(content), len(content))
    assert snapshot.size == sum((root / path).stat().st_size for path in snapshot.manifest.files)


def unsettled(path: str) -> bool:
    """What Spark may still write again under the same name in batch BATCH."""
    name = path.rpartition("/")[2]
    is_version = path.startswith("state/0/") and name[0].isdigit() and not name.endswith(".sst")
    return path.startswith(("offsets/", "commits/")) or (
        is_version and int(name.split(".")[0].split("_")[0]) >= BATCH
    )


def test_only_what_is_new_or_not_settled_is_read_again(checkpoint: Watched) -> None:
    first = take(checkpoint, BATCH, NOTHING)
    checkpoint.opened.clear()

    second = take(checkpoint, BATCH, first.manifest)

    again = {path for path in checkpoint.opened if not path.endswith(".zip")}
    assert again == {
        path for path in first.manifest.files if unsettled(path) and not path.endswith(".zip")
    }
    assert second.manifest == first.manifest
    assert second.new_blobs(first.manifest.blobs()) == []


@pytest.mark.parametrize("version", [BATCH - 1, BATCH])
def test_a_file_replaced_by_one_of_its_size_is_found(tmp_path: Path, version: int) -> None:
    checkpoint = hdfs(tmp_path)
    path = f"state/0/0/{version}.delta"
    first = take(checkpoint, BATCH, NOTHING)
    new = tmp_path / "new"
    new.write_bytes((tmp_path / path).read_bytes()[::-1])
    os.replace(new, tmp_path / path)

    second = take(checkpoint, BATCH, first.manifest)

    assert second.manifest.files[path].blob.size == first.manifest.files[path].blob.size
    (blob,) = second.new_blobs(first.manifest.blobs())
    assert blob == second.manifest.files[path].blob
    assert b"".join(v for _, v in second.chunks(blob)) == (tmp_path / path).read_bytes()


def test_the_newest_version_is_read_again_even_if_nothing_tells_that_it_changed(
    tmp_path: Path,
) -> None:
    """A batch that runs again writes its version once more, perhaps in the same tick."""
    checkpoint = hdfs(tmp_path)
    paths = [f"state/0/0/{BATCH}.delta", f"offsets/{BATCH}", f"commits/{BATCH - 1}"]
    first = take(checkpoint, BATCH, NOTHING)
    for path in paths:
        rewritten_unnoticed(tmp_path / path)
        assert checkpoint.stat(path).stamp == first.manifest.files[path].stamp

    second = take(checkpoint, BATCH, first.manifest)

    for path in paths:
        assert second.manifest.files[path].blob.digest == digest_of((tmp_path / path).read_bytes())


def rewritten_unnoticed(path: Path) -> None:
    before = path.stat()
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_file_without_a_stamp_is_always_read_again(tmp_path: Path) -> None:
    checkpoint = hdfs(tmp_path)
    checkpoint.stat = lambda path: FileStat(  # type: ignore[method-assign]
        (tmp_path / path).stat().st_size, ""
    )
    first = take(checkpoint, BATCH, NOTHING)
    checkpoint.opened.clear()

    take(checkpoint, BATCH, first.manifest)

    assert set(checkpoint.opened) == set(first.manifest.files)


def test_a_settled_file_of_another_size_is_read_again(tmp_path: Path) -> None:
    checkpoint = hdfs(tmp_path)
    first = take(checkpoint, BATCH, NOTHING)
    lie = dict(first.manifest.files)
    entry = lie["state/0/0/13.delta"]
    lie["state/0/0/13.delta"] = FileEntry(Blob("0" * 40, entry.blob.size + 1), entry.stamp)

    assert take(checkpoint, BATCH, Manifest(lie)).manifest == first.manifest


# --- files that vanish ------------------------------------------------------------------------


def hdfs(folder: Path) -> Watched:
    listing = Listing("hdfs")
    return written(folder, {path: f"this is {path}".encode() for path in listing.paths})


@pytest.mark.parametrize("when", ["before_stat", "before_open"])
def test_a_file_that_maintenance_removes_leads_to_another_listing(
    tmp_path: Path, when: str, waits: list[float]
) -> None:
    """Version 15 is loaded from 11.snapshot, until 14.snapshot is there and the rest is removed."""
    checkpoint = hdfs(tmp_path)
    old = [f"{at}.{kind}" for at in range(12) for kind in ("delta", "snapshot")]

    def clean(path: str) -> None:
        if path == "state/0/0/11.snapshot":
            (tmp_path / "state/0/0/14.snapshot").write_bytes(b"all of it")
            for name in [*old, "12.delta", "13.delta"]:
                (tmp_path / "state/0/0" / name).unlink(missing_ok=True)

    setattr(checkpoint, when, clean)
    snapshot = take(checkpoint, BATCH, NOTHING)

    mine = {path for path in snapshot.manifest.files if path.startswith("state/0/0/1")}
    assert mine == {"state/0/0/14.snapshot", "state/0/0/15.delta"}
    assert len(waits) == 2, "it was not listed again"


def test_a_zip_that_vanishes_before_it_is_read_leads_to_another_listing(tmp_path: Path) -> None:
    table = {"state/0/0/SSTs/a.sst": b"a"}
    zips = {f"state/0/0/{at}.zip": packed(["a.sst"]) for at in (1, 2)}
    checkpoint = written(tmp_path, {**LOGS, **zips, **table, "state/0/0/2.changelog": b"2"})

    def clean(path: str) -> None:
        if path == "state/0/0/2.zip":
            (tmp_path / path).unlink(missing_ok=True)

    checkpoint.before_open = clean
    snapshot = take(checkpoint, 2, NOTHING)

    assert {path for path in snapshot.manifest.files if "state" in path} == {
        "state/0/0/1.zip",
        "state/0/0/2.changelog",
        *table,
    }


LOGS = dict.fromkeys(("metadata", "offsets/2", "offsets/1", "commits/1"), b"x")


def test_a_file_that_vanishes_for_ever_is_named(tmp_path: Path, waits: list[float]) -> None:
    checkpoint = hdfs(tmp_path)
    path = "state/0/1/13.delta"

    def vanish(opened: str) -> None:
        if opened == path:
            raise FileNotFoundError(2, "No such file or directory", opened)

    checkpoint.before_open = vanish
    with pytest.raises(SnapshotFailed) as failed:
        take(checkpoint, BATCH, NOTHING)

    sentence = str(failed.value)
    for part in (path, str(tmp_path), "batch 15", "Nothing is decided", "start the query again"):
        assert part in sentence
    assert "Is 'spark.sql.streaming.minBatchesToRetain' 1?" in sentence
    assert failed.value.retriable
    assert waits == [0, 0.2, 0.4, 0.8, 1.6]


def test_a_missing_version_is_named(tmp_path: Path) -> None:
    checkpoint = hdfs(tmp_path)
    (tmp_path / "state/0/1/13.delta").unlink()

    with pytest.raises(SnapshotFailed, match="state/0/1 has no version 13"):
        take(checkpoint, BATCH, NOTHING)


@pytest.mark.parametrize("missing", ["metadata", "offsets/15", "offsets/14"])
def test_a_missing_log_is_named(tmp_path: Path, missing: str) -> None:
    checkpoint = hdfs(tmp_path)
    (tmp_path / missing).unlink()

    with pytest.raises(SnapshotFailed, match=f"{missing} is not there"):
        take(checkpoint, BATCH, NOTHING)


def test_a_file_system_that_fails_is_not_asked_again(tmp_path: Path, waits: list[float]) -> None:
    checkpoint = hdfs(tmp_path)

    def fail(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    checkpoint.before_open = fail
    with pytest.raises(SnapshotFailed, match="could not be read: .*Permission denied"):
        take(checkpoint, BATCH, NOTHING)
    assert waits == [0]


def test_what_a_restore_left_unfinished_is_no_snapshot(tmp_path: Path) -> None:
    checkpoint = hdfs(tmp_path)
    (tmp_path / RESTORING).touch()

    with pytest.raises(CheckpointError, match="not restored to its end.*eo-kafka snapshots"):
        take(checkpoint, BATCH, NOTHING)


# --- between digest and sending ---------------------------------------------------------------

LARGE = "state/0/0/15.delta"


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[::-1],
        lambda content: content + b"more",
        lambda content: content[:-1],
        lambda content: b"",
    ],
    ids=["another content", "longer", "shorter", "empty"],
)
def test_a_large_file_that_changes_before_it_is_sent_fails_the_snapshot(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    checkpoint = hdfs(tmp_path)
    large = bytes(range(256)) * (3 * CHUNK // 256)
    (tmp_path / LARGE).write_bytes(large)
    snapshot = take(checkpoint, BATCH, NOTHING)
    blob = snapshot.manifest.files[LARGE].blob
    assert b"".join(value for _, value in snapshot.chunks(blob)) == large
    (tmp_path / LARGE).write_bytes(change(large))

    with pytest.raises(SnapshotFailed, match=f"{LARGE}.*it changed") as failed:
        list(snapshot.chunks(blob))
    assert failed.value.retriable


def test_a_large_file_that_vanishes_before_it_is_sent_fails_the_snapshot(tmp_path: Path) -> None:
    checkpoint = hdfs(tmp_path)
    (tmp_path / LARGE).write_bytes(bytes(3 * CHUNK))
    snapshot = take(checkpoint, BATCH, NOTHING)
    (tmp_path / LARGE).unlink()

    with pytest.raises(SnapshotFailed, match=f"{LARGE}.*No such file"):
        list(snapshot.chunks(snapshot.manifest.files[LARGE].blob))


def test_a_small_file_is_sent_as_it_was_digested(tmp_path: Path) -> None:
    checkpoint = hdfs(tmp_path)
    before = (tmp_path / LARGE).read_bytes()
    snapshot = take(checkpoint, BATCH, NOTHING)
    (tmp_path / LARGE).unlink()

    (chunk,) = snapshot.chunks(snapshot.manifest.files[LARGE].blob)

    assert chunk[1] == before


@pytest.mark.parametrize("kept", [0, module.KEPT_ALTOGETHER])
@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_chunks_are_as_the_reader_expects_them(
    tmp_path: Path, size: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_ALTOGETHER", kept)
    checkpoint = hdfs(tmp_path)
    (tmp_path / LARGE).write_bytes(os.urandom(size))
    snapshot = take(checkpoint, BATCH, NOTHING)
    blob = snapshot.manifest.files[LARGE].blob

    found = list(snapshot.chunks(blob))

    assert [key for key, _ in found] == list(blob.chunk_keys())
    assert [len(value) for _, value in found] == [blob.chunk_size(i) for i in range(blob.chunks)]


def test_a_name_that_no_manifest_may_hold_is_refused(tmp_path: Path) -> None:
    checkpoint = hdfs(tmp_path)
    (tmp_path / "state" / "no\\tes").write_bytes(b"1")

    with pytest.raises(SnapshotFailed, match=r"'state/no.*tes' is not a path .*Nothing is decided"):
        take(checkpoint, BATCH, NOTHING)


def test_memory_is_bounded_whatever_a_files_size(tmp_path: Path) -> None:
    checkpoint = hdfs(tmp_path)
    size = 200 << 20
    with (tmp_path / LARGE).open("wb") as stream:
        stream.truncate(size)  # takes no disk

    def peak(work: Iterable[object]) -> int:
        tracemalloc.start()
        try:
            for _ in work:
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    found: list[module.Snapshot] = []
    assert peak(found.append(take(checkpoint, BATCH, NOTHING)) for _ in "1") < 16 << 20
    blob = found[0].manifest.files[LARGE].blob
    assert blob.size == size
    assert peak(found[0].chunks(blob)) < 16 << 20


def test_memory_is_bounded_whatever_the_number_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_ALTOGETHER", 1 << 20)
    many = {f"sources/0/{number}": os.urandom(60_000) for number in range(300)}
    checkpoint = written(tmp_path, {**LOGS, **many})
    tracemalloc.start()
    try:
        snapshot = take(checkpoint, 2, NOTHING)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert kept < 3 << 20
    assert whole(snapshot).items() >= many.items()
