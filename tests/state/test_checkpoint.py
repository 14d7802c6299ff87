"""A checkpoint's files, the same on every kind of file system; and how its URL is read."""

from __future__ import annotations

import errno
import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from eo_kafka.errors import CheckpointError, CheckpointUnreadable
from eo_kafka.state.snapshots.checkpoint import (
    Checkpoint,
    LocalCheckpoint,
    RemoteCheckpoint,
    is_hidden,
    open_checkpoint,
)
from eo_kafka.testing.processes import wait_until

MARKER = "_eo_kafka_restoring"
# Names that a URL, a shell or a file system might read otherwise.
NAMES = [
    "metadata",
    "offsets/0",
    "state/0/0/1.delta",
    "state/0/0/left-keyToNumValues/1.delta",
    "state/0/0/SSTs/000008-fe8d1e59.sst",
    "state/0/0/10_5209b9b1.changelog.crc",
    "sources/a name=1/with%20percent",
    "sources/dt=2026-01-01/ümläut",
    "sources/q?x#y&z+w~",
]
HIDDEN = [
    ".metadata.crc",
    "state/0/0/.1.delta.crc",
    "state/0/0/.1.delta.5c2e.tmp",
    "state/0/0/7.snapshot.tmp",
    ".tmp/x",
    "state/.hidden/0/1.delta",
    "offsets/1.tmp/part",
]


def local(folder: Path) -> Checkpoint:
    return open_checkpoint(str(folder / "check point"))


def pyarrow(folder: Path) -> Checkpoint:
    system = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    return RemoteCheckpoint("there:/check point", system, "check point", "there:/check point")


def fsspec(folder: Path) -> Checkpoint:
    pytest.importorskip("fsspec")
    return open_checkpoint(f"memory://{uuid.uuid4().hex}/check point")


@pytest.fixture(params=[local, pyarrow, fsspec], ids=lambda kind: kind.__name__)
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    return request.param(tmp_path)


def content(checkpoint: Checkpoint, path: str) -> bytes:
    with checkpoint.open(path) as stream:
        return stream.read()


def test_a_folder_that_is_not_there_is_empty(checkpoint: Checkpoint) -> None:
    assert checkpoint.paths() == []
    assert checkpoint.is_empty()
    checkpoint.clear(MARKER)
    assert checkpoint.is_empty()


def test_what_is_written_is_listed_and_read(checkpoint: Checkpoint) -> None:
    for name in NAMES:
        checkpoint.write(name, [b"con", b"", f"tent of {name}".encode()])

    assert sorted(checkpoint.paths()) == sorted(NAMES)
    assert not checkpoint.is_empty()
    for name in NAMES:
        assert content(checkpoint, name) == f"content of {name}".encode()
        assert checkpoint.stat(name).size == len(content(checkpoint, name))


def test_an_empty_file(checkpoint: Checkpoint) -> None:
    checkpoint.write("a/empty", [])
    checkpoint.write("a/empty too", [b""])

    assert sorted(checkpoint.paths()) == ["a/empty", "a/empty too"]
    assert checkpoint.stat("a/empty").size == checkpoint.stat("a/empty too").size == 0
    assert content(checkpoint, "a/empty") == content(checkpoint, "a/empty too") == b""


def test_a_file_is_read_in_pieces(checkpoint: Checkpoint) -> None:
    checkpoint.write("a", (bytes([number]) * 1000 for number in range(50)))

    with checkpoint.open("a") as stream:
        pieces = list(iter(lambda: stream.read(1500), b""))

    assert b"".join(pieces) == b"".join(bytes([number]) * 1000 for number in range(50))
    assert max(map(len, pieces)) == 1500


def test_a_file_written_again_is_the_new_one(checkpoint: Checkpoint) -> None:
    checkpoint.write("a/b", [b"a longer content"])
    checkpoint.write("a/b", [b"short"])

    assert content(checkpoint, "a/b") == b"short"


def test_a_file_of_this_machine_is_taken_in(checkpoint: Checkpoint, tmp_path: Path) -> None:
    file = (checkpoint.scratch or tmp_path) / ".unfinished"
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = bytes(range(256)) * 10_000
    file.write_bytes(whole)

    checkpoint.take("state/0/1.delta", file)

    assert checkpoint.paths() == ["state/0/1.delta"]
    assert content(checkpoint, "state/0/1.delta") == whole


def test_hidden_and_temporary_files_are_left_out(checkpoint: Checkpoint) -> None:
    for name in HIDDEN:
        checkpoint.write(name, [b"x"])

    assert checkpoint.paths() == []
    assert not checkpoint.is_empty(), "a folder of hidden files was taken for an empty one"
    checkpoint.write("metadata", [b"x"])
    assert checkpoint.paths() == ["metadata"]


@pytest.mark.parametrize("name", NAMES)
def test_no_other_name_is_hidden(name: str) -> None:
    assert not is_hidden(name)


def test_a_link_to_another_disk_is_filled_and_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_another_disk(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    (elsewhere := tmp_path / "elsewhere").mkdir()
    (root := tmp_path / "checkpoint").mkdir()
    (root / "state").symlink_to(elsewhere)
    (file := tmp_path / "file").write_bytes(b"1")
    checkpoint = LocalCheckpoint(str(root), root)
    with monkeypatch.context() as patched:
        for name in ("replace", "rename"):
            patched.setattr(os, name, to_another_disk)
        checkpoint.take("state/0/0/1.delta", file)
    assert (elsewhere / "0/0/1.delta").read_bytes() == b"1"
    assert not file.exists()

    checkpoint.clear("marker")
    assert (root / "state").is_symlink()
    assert not list(elsewhere.iterdir())


def test_a_folder_that_is_a_link_is_followed(tmp_path: Path) -> None:
    """Spark writes through it. A state that is passed over would be lost with its disk."""
    elsewhere = tmp_path / "larger-disk"
    (elsewhere / "0/0").mkdir(parents=True)
    (elsewhere / "0/0/1.delta").write_bytes(b"x")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/state").symlink_to(elsewhere)
    found = open_checkpoint(str(tmp_path / "checkpoint"))
    assert found.paths() == ["state/0/0/1.delta"]
    assert not found.is_empty()


def test_what_is_cleared_is_gone(checkpoint: Checkpoint) -> None:
    for name in [*NAMES, *HIDDEN]:
        checkpoint.write(name, [b"x"])

    checkpoint.clear(MARKER)

    assert checkpoint.is_empty()
    checkpoint.write("a/b", [b"x"])
    assert checkpoint.paths() == ["a/b"]


def test_the_marker_is_the_last_to_go(checkpoint: Checkpoint) -> None:
    """A restore that dies while it clears must find out, when it is asked again, whose it is."""
    for name in (MARKER, *NAMES):
        checkpoint.write(name, [b"x"])
    for allowed in range(50):
        try:
            with failing_deletions(checkpoint, allowed):
                checkpoint.clear(MARKER)
            break
        except InterruptedError:
            assert MARKER in checkpoint.paths()
    assert allowed >= 3, "it was hardly interrupted"
    assert checkpoint.is_empty()


class failing_deletions(pytest.MonkeyPatch):
    """All deletions but the first few are interrupted."""

    def __init__(self, checkpoint: Checkpoint, allowed: int) -> None:
        super().__init__()
        self._left = allowed
        self._checkpoint = checkpoint

    def __enter__(self) -> None:
        if isinstance(self._checkpoint, LocalCheckpoint):
            for owner, name in ((os, "rmdir"), (os, "unlink")):
                self.setattr(owner, name, self._limited(getattr(owner, name)))
            return
        system = self._checkpoint._system  # type: ignore[attr-defined]

        class Limited:
            def __getattr__(limited, name: str) -> Any:
                found = getattr(system, name)
                return self._limited(found) if name.startswith("delete") else found

        self.setattr(self._checkpoint, "_system", Limited())

    def __exit__(self, *_: object) -> None:
        self.undo()

    def _limited(self, real: Callable[..., object]) -> Callable[..., object]:
        def delete(*args: Any, **kwargs: Any) -> object:
            if self._left == 0:
                raise InterruptedError
            self._left -= 1
            return real(*args, **kwargs)

        return delete


def test_finished_is_without_its_marker(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def sync() -> None:
        synced.append(MARKER in checkpoint.paths())

    monkeypatch.setattr(os, "sync", sync)  # the real one waits for all of this machine's disks
    checkpoint.write("metadata", [b"x"])
    checkpoint.write(MARKER, [b""])

    checkpoint.finish(MARKER)

    assert checkpoint.paths() == ["metadata"]
    assert synced == ([True] if isinstance(checkpoint, LocalCheckpoint) else [])


@pytest.mark.parametrize("path", ["nothing", "no/folder/nothing", "metadata.", "Metadata"])
def test_what_is_not_there_is_not_found(checkpoint: Checkpoint, path: str) -> None:
    checkpoint.write("metadata", [b"x"])

    with pytest.raises(FileNotFoundError):
        checkpoint.stat(path)
    with pytest.raises(FileNotFoundError):
        checkpoint.open(path)


def test_a_file_that_is_replaced_by_one_of_its_size_has_another_stamp(
    checkpoint: Checkpoint,
) -> None:
    checkpoint.write("a", [b"first"])
    before = checkpoint.stat("a")
    assert checkpoint.stat("a") == before, "the stamp changes by itself"
    if before.stamp == "":  # fsspec's memory tells no time: such a file is always read again
        assert "memory:" in checkpoint.url
        return

    def replaced() -> bool:  # again, until a clock that ticks each few milliseconds has ticked
        checkpoint.write("a", [b"other"])
        return checkpoint.stat("a").stamp != before.stamp

    wait_until(replaced, "the stamp changes", 10)
    assert checkpoint.stat("a").size == before.size


def test_a_file_renamed_into_place_has_another_stamp_within_one_tick(tmp_path: Path) -> None:
    """That is how Spark writes."""
    checkpoint = local(tmp_path)
    checkpoint.write("a", [b"first"])
    before = checkpoint.stat("a")
    checkpoint.write("b", [b"other"])
    new, old = tmp_path / "check point" / "b", tmp_path / "check point" / "a"
    os.utime(new, ns=(old.stat().st_atime_ns, old.stat().st_mtime_ns))

    os.replace(new, old)

    assert checkpoint.stat("a").size == before.size
    assert checkpoint.stat("a").stamp != before.stamp


@pytest.mark.parametrize("error", [PermissionError, OSError])
def test_a_folder_that_cannot_be_listed_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """Its files would be missing in the snapshot, and nobody would know."""
    checkpoint = local(tmp_path)
    for name in NAMES:
        checkpoint.write(name, [b"x"])
    real = os.scandir

    def scandir(folder: str) -> Any:
        if os.fspath(folder).endswith("state/0"):
            raise error(5, "Input/output error", folder)
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(error):
        checkpoint.paths()


def test_a_folder_that_is_removed_while_it_is_listed_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = local(tmp_path)
    for name in ("offsets/0", "state/0/0/1.delta"):
        checkpoint.write(name, [b"x"])
    real = os.scandir

    def scandir(folder: str) -> Any:
        if os.fspath(folder).endswith("state/0"):
            raise FileNotFoundError(folder)
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert checkpoint.paths() == ["offsets/0"]


def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.14 says of it that it does not exist."""
    checkpoint = local(tmp_path)
    checkpoint.write("metadata", [b"x"])

    def fails(*given: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert not checkpoint.is_empty()
    monkeypatch.setattr(os, "scandir", fails)
    with pytest.raises(OSError, match="Input/output error"):
        checkpoint.is_empty()


# --- URLs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("/data/check point", "/data/check point"),
        ("data/x", "data/x"),
        ("/data/a:b", "/data/a:b"),
        ("file:/data/x", "/data/x"),
        ("file:///data/x/", "/data/x"),
        ("file://localhost/data/x", "/data/x"),
        # Hadoop's Path: "Path strings are URIs, but with unescaped elements".
        ("file:///data/with%20space", "/data/with%20space"),
        ("file:///data/with space", "/data/with space"),
        ("file:///data/a?b#c", "/data/a?b#c"),
        ("/data/a?b#c%25", "/data/a?b#c%25"),
        ("C:/data/x", "C:/data/x"),
    ],
)
def test_a_local_folder(url: str, folder: str) -> None:
    found = open_checkpoint(url)

    assert isinstance(found, LocalCheckpoint)
    assert (found._root, found.url) == (Path(folder), url)


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
@pytest.mark.parametrize("name", ["check point", "with%20percent", "a#b", "dt=1/x+y"])
def test_s3_by_each_of_hadoops_names(scheme: str, name: str) -> None:
    # With an endpoint and a region nobody is asked for them.
    url = f"{scheme}://bucket/{name}?region=us-east-1&endpoint_override=localhost:1&scheme=http"

    found = open_checkpoint(url)

    assert isinstance(found, RemoteCheckpoint)
    assert isinstance(found._system, fs.S3FileSystem)
    assert found._root == f"bucket/{name}"


def test_fsspec_where_pyarrow_knows_no_such_scheme() -> None:
    pytest.importorskip("fsspec")
    found = open_checkpoint("memory://bucket/check point/with%20percent/")

    assert isinstance(found, RemoteCheckpoint)
    assert isinstance(found._system.handler, fs.FSSpecHandler)
    assert found._root.strip("/") == "bucket/check point/with%20percent"


def test_an_unknown_scheme_is_said() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(CheckpointError) as unknown:
        open_checkpoint("nosuch://host/data")

    assert "The checkpoint 'nosuch://host/data' cannot be reached: " in str(unknown.value)
    assert "nosuch" in str(unknown.value).partition("reached")[2]


@pytest.mark.parametrize("missing", ["fsspec", "fsspec.core"])
def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    monkeypatch.setitem(sys.modules, missing, None)

    with pytest.raises(CheckpointError, match="install fsspec and its package for that"):
        open_checkpoint("memory://x/y")


# The last two must be escaped to be understood, and are secrets when they are not.
@pytest.mark.parametrize("secret", ["hunter2", "hunter2%2F", "hunter2/with", "with@/hunter2"])
@pytest.mark.parametrize("scheme", ["s3a", "memory", "nosuch"])
def test_secrets_in_a_url_are_shown_to_nobody(scheme: str, secret: str) -> None:
    options = "region=us-east-1&endpoint_override=localhost:1&scheme=http"
    url = f"{scheme}://AKIA:{secret}@bucket/x?{options}"
    try:
        shown = open_checkpoint(url).url
    except CheckpointError as error:
        shown = str(error)
    assert "hunter2" not in shown
    assert "AKIA:***@bucket" in shown


@pytest.mark.parametrize("name", ["client_secret", "sig"])
def test_secrets_behind_the_path_are_shown_to_nobody(name: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        open_checkpoint(f"s3://bucket/x?region=a&{name}=hunter2&other=1")
    assert "hunter2" not in str(refused.value)
    assert f"region=a&{name}=***&other=1" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("s3a://b/x y/?region=a&endpoint_override=localhost:1", "s3a://b/x y"),
        ("s3a://AKIA:hunter2@b/x?region=a&endpoint_override=localhost:1", "s3a://b/x"),
        ("abfss://box@me.dfs.core.windows.net/x?enable_tls=true", None),
        ("abfss://box:aGk=@me.dfs.core.windows.net/x", "abfss://box@me.dfs.core.windows.net/x"),
        ("abfss://:aGk=@me.dfs.core.windows.net/box/x", "abfss://me.dfs.core.windows.net/box/x"),
        ("memory://b/x?y", "memory://b/x?y"),
    ],
)
def test_what_spark_finds_in_files_names_the_folder_and_nothing_else(
    url: str, location: str | None
) -> None:
    """Who logs in and how is said to pyarrow: Spark would take it for a part of the name."""
    if url.startswith("memory"):
        pytest.importorskip("fsspec")
    assert open_checkpoint(url).location == (location or url.partition("?")[0])


def test_a_url_that_pyarrow_cannot_read_says_why() -> None:
    with pytest.raises(CheckpointError, match=r"'s3://b/x\?no=1' cannot be.*Unexpected query par"):
        open_checkpoint("s3://b/x?no=1")


def test_why_a_file_system_cannot_be_had_is_said_in_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without Hadoop's libraries pyarrow lists every place where it looked for a JVM."""
    core = pytest.importorskip("fsspec.core")

    def refuse(url: str) -> None:
        raise OSError("dlopen failed " * 10_000)

    monkeypatch.setattr(core, "url_to_fs", refuse)
    with pytest.raises(CheckpointError) as refused:
        open_checkpoint("nosuch://x")
    assert len(str(refused.value)) < 1000


def test_a_store_that_does_not_answer_while_it_is_opened_may_answer_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As S3, which is asked there for the bucket's region."""

    def down(url: str) -> None:
        raise OSError("When resolving region for bucket 'b': AWS Error NETWORK_CONNECTION")

    monkeypatch.setattr("fsspec.core.url_to_fs", down)
    with pytest.raises(CheckpointUnreadable, match="cannot be reached: .*NETWORK_CONNECTION"):
        open_checkpoint("nosuch://b/path")
