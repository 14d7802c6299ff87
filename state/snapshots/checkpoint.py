"""Reads and writes the files of a Spark checkpoint, in any file system.

Local folders are walked by the operating system's own calls. Everything else goes through
pyarrow's file systems (S3, GCS, Azure, HDFS) or, where those know no such scheme, through fsspec.
Hidden files are left out: Hadoop's local checksums, and what is still being written.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import quote

from ...core.errors import CheckpointError, CheckpointUnreadable, cut
from ...core.url_secrets import without_secrets
from .unreadable import may_pass

# Hadoop's names for S3; pyarrow has one.
_SAME = {"s3a": "s3", "s3n": "s3"}
# Scheme, authority, path; a single letter is a drive's.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//[^/]*)?(.*)", re.DOTALL)
# What fsspec's file systems call what changes with a file's content; there is no one name.
_STAMPS = ("ETag", "etag", "mtime", "modificationTime", "LastModified", "last_modified", "updated")
_PIECE = 1 << 20
# A file there needs no folder above it. pyarrow would write an empty object for each, also for
# those above the checkpoint, where the credentials may not be allowed to write.
_WITHOUT_FOLDERS = ("s3", "gcs", "abfs")


@dataclass(frozen=True)
class FileStat:
    """What tells that a file is still the one that was looked at before."""

    size: int
    stamp: str  # modification time in ns and, where there is one, the inode; "" if unknown


class Checkpoint(Protocol):
    """A folder. Paths are relative to it, with `/`. Missing files raise FileNotFoundError."""

    url: str
    location: str  # the folder's full name, as Spark writes it into files
    scratch: Path | None  # where a file is only renamed to become one of it, if on this machine

    def paths(self) -> list[str]:
        """All files below it, hidden ones left out; none if the folder is not there."""

    def stat(self, path: str) -> FileStat:
        """Size and stamp."""

    def open(self, path: str) -> IO[bytes]:
        """For reading; the caller closes it."""

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """A new file, with its folders."""

    def remove(self, path: str) -> None:
        """Remove a file, if it is there, and Hadoop's checksum of it."""

    def take(self, path: str, file: Path) -> None:
        """A new file, out of one on this machine that nobody needs any more."""

    def clear(self, marker: str, check: Callable[[], object] = lambda: None) -> None:
        """Remove all that is below it, hidden or not, and `marker` last; `check` before each."""

    def finish(self, marker: str, check: Callable[[], object] = lambda: None) -> None:
        """Take away `marker` once all that was written would outlive this machine's crash, right
        after a `check`."""

    def is_empty(self) -> bool:
        """Whether nothing is there, hidden or not."""


def open_checkpoint(url: str) -> Checkpoint:
    """Runs on the driver. `url` is read as Spark reads it: nothing in its path is escaped.
    Raises CheckpointError if no file system for `url` is known, or it does not answer.
    """
    parsed = _URL.fullmatch(url)
    if parsed is None:
        return LocalCheckpoint(url, Path(url))
    scheme, authority, path = parsed.groups("")
    if scheme == "file":
        return LocalCheckpoint(url, Path(path))
    system, root = _file_system(scheme, authority, path)
    location = f"{scheme}:{_place(scheme, authority)}"
    location += path if _fsspec_of(system) else path.partition("?")[0]
    return RemoteCheckpoint(without_secrets(url), system, root.rstrip("/"), location.rstrip("/"))


def is_without_scheme(url: str) -> bool:
    """Whether it depends on Spark's settings which file system holds it."""
    return _URL.fullmatch(url) is None


def _place(scheme: str, authority: str) -> str:
    """Without who logs in: Spark does not take that from a URL, and does not write it into files.
    In Azure's URLs a container stands there."""
    user, at, host = authority.rpartition("@")
    if not at or scheme in ("s3", *_SAME):
        return f"//{host}" if at else authority
    return f"{user.partition(':')[0]}@{host}".replace("//@", "//")


def _file_system(scheme: str, authority: str, path: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import fs

    prefix = f"{_SAME.get(scheme, scheme)}:{authority}"
    refused: Exception | None = None
    try:
        try:
            # pyarrow wants it escaped; behind `?` it takes settings that no path can hold.
            system, root = fs.FileSystem.from_uri(prefix + quote(path, safe="/?&=:"))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            refused = error  # it knows no such scheme, or reads something else in the URL
            from fsspec.core import url_to_fs

            found, root = url_to_fs(prefix + path)
            system = fs.PyFileSystem(fs.FSSpecHandler(found))
    except Exception as error:
        advice = (
            f" pyarrow cannot use it ({cut(refused)}). If it has no file system for '{scheme}:', "
            "install fsspec and its package for that."
            if isinstance(error, ImportError)
            else ""
        )
        raise (CheckpointUnreadable if may_pass(error) else CheckpointError)(
            without_secrets(
                f"The checkpoint '{scheme}:{authority}{path}' cannot be reached: "
                f"{cut(error, 400)}.{advice}"
            )
        ) from None
    return system, root


def is_hidden(path: str) -> bool:
    """Whether a part of the path is a temporary file's or folder's name, or a checksum's."""
    return any(part.startswith(".") or part.endswith(".tmp") for part in path.split("/"))


class LocalCheckpoint:
    """On this machine, or mounted."""

    def __init__(self, url: str, root: Path) -> None:
        self.url = url
        self.location = f"file:{root.absolute()}"
        self.scratch: Path | None = root
        self._root = root

    def paths(self) -> list[str]:
        """See Checkpoint."""
        return [path for path in self._all() if not is_hidden(path)]

    def _all(self) -> Iterator[str]:
        def not_listed(error: OSError) -> None:
            # A folder that was removed meanwhile holds nothing; another that cannot be read may.
            if not isinstance(error, FileNotFoundError):
                raise error

        # Spark follows links: 'state' may be one, to a larger disk.
        for folder, _, names in os.walk(self._root, onerror=not_listed, followlinks=True):
            inside = os.path.relpath(folder, self._root)
            yield from (name if inside == "." else f"{inside}/{name}" for name in names)

    def stat(self, path: str) -> FileStat:
        """See Checkpoint."""
        found = os.stat(self._root / path)
        return FileStat(found.st_size, f"{found.st_mtime_ns}.{found.st_ino}")

    def open(self, path: str) -> IO[bytes]:
        """See Checkpoint."""
        return open(self._root / path, "rb")

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """See Checkpoint."""
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "wb") as stream:
            for chunk in chunks:
                stream.write(chunk)

    def remove(self, path: str) -> None:
        """See Checkpoint."""
        target = self._root / path
        target.unlink(missing_ok=True)
        target.with_name(f".{target.name}.crc").unlink(missing_ok=True)

    def take(self, path: str, file: Path) -> None:
        """See Checkpoint."""
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file, target)  # copies, where a link in the path leads to another disk

    def clear(self, marker: str, check: Callable[[], object] = lambda: None) -> None:
        """See Checkpoint."""
        if not self._root.is_dir():
            return
        for entry in sorted(os.scandir(self._root), key=lambda entry: entry.name == marker):
            if entry.is_dir(follow_symlinks=False):
                _remove_tree(entry.path, check)
            elif entry.is_dir():  # a link, to a larger disk: it stays, what is behind it goes
                LocalCheckpoint(entry.path, Path(entry.path)).clear(marker, check)
            else:
                check()
                os.unlink(entry.path)

    def finish(self, marker: str, check: Callable[[], object] = lambda: None) -> None:
        """See Checkpoint."""
        os.sync()
        check()
        os.unlink(self._root / marker)

    def is_empty(self) -> bool:
        """See Checkpoint."""
        return next(self._all(), None) is None  # Path.exists of Python 3.14 hides any OSError


def _remove_tree(folder: str, check: Callable[[], object]) -> None:
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            _remove_tree(entry.path, check)
        else:
            check()
            os.unlink(entry.path)
    os.rmdir(folder)


class RemoteCheckpoint:
    """In a pyarrow file system. Sizes and stamps come with the listing: `stat` is of the time of
    the last `paths`, and asks only for what that did not see."""

    def __init__(self, url: str, system: Any, root: str, location: str) -> None:
        self.url = url
        self.location = location
        self.scratch: Path | None = None
        self._system = system
        self._root = root
        self._listed: dict[str, FileStat] = {}

    def paths(self) -> list[str]:
        """See Checkpoint."""
        self._listed = self._list()
        return [path for path in self._listed if not is_hidden(path)]

    def _list(self) -> dict[str, FileStat]:
        from pyarrow import fs

        root = self._root.strip("/") + "/"
        if known := _fsspec_of(self._system):
            known.invalidate_cache()  # some remember what they listed for as long as they live
            infos = known.find(self._root, detail=True).items()
            return {name.lstrip("/").removeprefix(root): _stat(info) for name, info in infos}
        selector = fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        return {
            found.path.lstrip("/").removeprefix(root): FileStat(found.size, _stamp(found.mtime_ns))
            for found in self._system.get_file_info(selector)
            if found.type == fs.FileType.File
        }

    def stat(self, path: str) -> FileStat:
        """See Checkpoint."""
        from pyarrow import fs

        if path in self._listed:
            return self._listed[path]
        full = f"{self._root}/{path}"
        if known := _fsspec_of(self._system):
            return _stat(known.info(full))
        found = self._system.get_file_info(full)
        if found.type != fs.FileType.File:
            raise FileNotFoundError(f"{self.url}/{path}")
        return FileStat(found.size, _stamp(found.mtime_ns))

    def open(self, path: str) -> IO[bytes]:
        """See Checkpoint."""
        stream: IO[bytes] = self._system.open_input_stream(f"{self._root}/{path}")
        return stream

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """See Checkpoint."""
        target = f"{self._root}/{path}"
        if self._system.type_name not in _WITHOUT_FOLDERS:
            self._system.create_dir(target.rpartition("/")[0], recursive=True)
        with self._system.open_output_stream(target) as stream:
            for chunk in chunks:
                stream.write(chunk)

    def remove(self, path: str) -> None:
        """See Checkpoint. Only local folders have checksums beside the files."""
        with suppress(FileNotFoundError):
            self._system.delete_file(f"{self._root}/{path}")

    def take(self, path: str, file: Path) -> None:
        """See Checkpoint."""
        with open(file, "rb") as stream:
            self.write(path, iter(lambda: stream.read(_PIECE), b""))

    def clear(self, marker: str, check: Callable[[], object] = lambda: None) -> None:
        """See Checkpoint. A folder goes at once."""
        from pyarrow import fs

        there = fs.FileSelector(self._root, allow_not_found=True)
        found = self._system.get_file_info(there)
        for entry in sorted(found, key=lambda entry: entry.base_name == marker):
            check()
            # A folder that was empty may be gone by itself: object stores have none.
            with suppress(FileNotFoundError):
                if entry.type == fs.FileType.Directory:
                    self._system.delete_dir(entry.path)
                else:
                    self._system.delete_file(entry.path)

    def finish(self, marker: str, check: Callable[[], object] = lambda: None) -> None:
        """See Checkpoint. What such a file system has closed, it keeps."""
        check()
        self._system.delete_file(f"{self._root}/{marker}")

    def is_empty(self) -> bool:
        """See Checkpoint."""
        return not self._list()


def _fsspec_of(system: Any) -> Any:
    """The fsspec file system behind a pyarrow one, if there is one: it tells more of a file."""
    return getattr(getattr(system, "handler", None), "fs", None)


def _stat(info: dict[str, Any]) -> FileStat:
    known = (info[name] for name in _STAMPS if info.get(name))
    return FileStat(int(info["size"]), _stamp(next(known, None)))


def _stamp(found: object) -> str:
    return str(found) if found else ""
