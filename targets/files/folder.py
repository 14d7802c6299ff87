"""Files in a directory that driver and executors see, and see alike at every moment.

    path/_eo_files/manifest-0000000007.json   the newest is the truth; KEEP older ones are left
    path/_eo_files/published-0000000007       its files are where they stay
    path/_eo_files/staged/...                 chunks that wait for their decision
    path/_eo_files/publishing/7/...           a batch that is put together
    path/batch=0000000007/...                 a batch that plain readers see, as a whole

The atomic step is a hard link: a manifest is written under another name, is durable, and gets its
own one, which the file system gives only once. Then files only ever move on: staged, publishing,
published. Each move is a rename, which whoever comes second finds done; who looks for a file in
this order finds it. The next manifest is created when the last one's files are published.

Old manifests are removed, so a name can be free again: a driver that was paused just before its
link may get the name of a manifest that came and went. So a link is not yet the answer. Nobody
removes a manifest unless one is there that is KEEP newer. Hence the newest that there ever was is
always there, and what a late driver links in a gap is older than that: it is never the newest, no
reader takes it for the truth, and it goes with the others. After its link a driver looks: if its
manifest is the newest, then nothing newer has ever been, so nothing had its name before it. If
there is a newer one, that one's marker says whether ours was counted. Until then nothing is
published.
A directory is not listed in one moment, so `newest` looks twice.

The same holds of what a late driver does afterwards. Its files have moved on, so it moves nothing;
it puts nothing back that somebody has removed since; what it removes was old when it looked.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.crash_points import crash_point
from ...core.errors import EnvironmentRefused
from .home import Shown
from .lost import check_restored, gone
from .manifest import OWN, DataFile, Manifest, batch_folder, batch_in

if TYPE_CHECKING:
    import pyarrow as pa

KEEP = 10
_NUMBERED = re.compile(r"(?:manifest|published)-(\d+)(?:\.json|\.[0-9a-f]+\.new|)")
_MANIFEST = re.compile(r"manifest-(\d+)\.json")
_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]+\.new")
_HIDDEN = ("_", ".")
_DONE_ALREADY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)


class Folder:
    """`Home` says what is asked."""

    def __init__(self, path: str) -> None:
        self._path = Path(os.path.normpath(path))
        self._own = self._path / OWN
        self._staged, self._publishing = self._own / "staged", self._own / "publishing"

    @property
    def place(self) -> str:
        return f"directory {self._path}"

    def check(self) -> Manifest | None:
        if (self._path / "_spark_metadata").exists():
            raise EnvironmentRefused(
                f"Spark's own file sink has written {self._path}: readers would follow its log "
                f"({self._path}/_spark_metadata), and see no batch of this one. Nothing was "
                "written. Take another directory."
            )
        if (newest := self.newest()) is not None:
            return newest
        for folder in (self._staged, self._publishing):
            folder.mkdir(parents=True, exist_ok=True)
        _sync(self._path.parent, self._path, self._own)
        # all that plain readers would see
        if foreign := sorted(one for one in _names(self._path) if not one.startswith(_HIDDEN)):
            raise EnvironmentRefused(
                f"{self._path} is not empty ({', '.join(foreign[:3])}) and has no manifest "
                "of eo-kafka: plain readers would see those beside the batches, and "
                "format('eo-files') would not. Nothing was written. Take an empty directory."
            )
        self._check_links()
        return None

    def _check_links(self) -> None:
        one, other = (self._own / f"tried-{uuid.uuid4().hex}" for _ in range(2))
        try:
            one.touch()
            os.link(one, other)
            with suppress(FileExistsError):
                os.link(one, other)
                raise OSError("a name was given twice")
        except OSError as error:
            raise EnvironmentRefused(
                f"The file system of {self._path} cannot give a file a second name, once "
                f"({error}): two drivers could write the same batch. Nothing was written. Take a "
                "directory on a file system with hard links."
            ) from None
        finally:
            one.unlink(missing_ok=True)
            other.unlink(missing_ok=True)

    def newest(self) -> Manifest | None:
        found: Manifest | None = None
        while True:
            numbers = [int(of[1]) for of in map(_MANIFEST.fullmatch, _names(self._own)) if of]
            newest = max(numbers, default=0)
            if not newest:
                return None
            if found is not None and found.sequence == newest:
                return found
            path = self._manifest(newest)
            with suppress(FileNotFoundError):  # there is one that is KEEP newer
                found = Manifest.decoded(path.read_bytes(), str(path))

    def create(self, new: Manifest, newest: Manifest | None, writer: str) -> bool:
        self._check_next(new.sequence)
        path = self._manifest(new.sequence)
        waiting = path.with_name(f"{path.stem}.{new.id}.new")
        linked = False
        try:
            _write(waiting, new.encoded())
            crash_point("files.before_link")
            os.link(waiting, path)
            linked = True
        except FileExistsError:  # another driver's; or ours, and a server has lost its answer
            with suppress(FileNotFoundError):
                linked = Manifest.decoded(path.read_bytes(), str(path)).id == new.id
        except FileNotFoundError:  # it was cleaned away
            pass
        finally:
            waiting.unlink(missing_ok=True)
        crash_point("files.after_link")
        _sync(self._own)
        now = self.newest()
        if now is None or not linked:
            return False
        return now.id == new.id or now.marker(writer) == new.marker(writer)

    def _check_next(self, sequence: int) -> None:
        there = self._path / batch_folder(sequence)
        if there.exists() or self._flag(sequence).exists():
            check_restored(there, self._own, self.newest(), sequence)

    def publish(self, newest: Manifest, *, fail: bool) -> None:
        if not newest.files or self._flag(newest.sequence).exists():
            return
        final = self._path / batch_folder(newest.sequence)
        here = self._publishing / str(newest.sequence)
        if not final.exists():
            lost = self._gather(newest, here)
            if lost and not self._is_published(newest.sequence):
                gone(self.place, newest.sequence, lost, self._staged, fail=fail)
                for file in lost:  # it may be there, and be another one
                    (here / file.name).unlink(missing_ok=True)
            if len(lost) < len(newest.files):
                self._show(here, final)
        with suppress(OSError):  # it is renamed, or came late and is empty
            here.rmdir()
        _sync(self._path, self._publishing)
        crash_point("files.after_rename")
        self._flag(newest.sequence).touch()

    def _gather(self, newest: Manifest, here: Path) -> list[DataFile]:
        """Put a batch together; what is not there."""
        with suppress(FileExistsError):  # exist_ok trips over one that is renamed at that moment
            here.mkdir()
        for file in newest.files:
            with suppress(FileNotFoundError):  # it has moved on
                (self._staged / file.name).rename(here / file.name)
            crash_point("files.while_publishing")
        there = _sizes(here)
        return [file for file in newest.files if there.get(file.name) != file.bytes]

    def _show(self, here: Path, final: Path) -> None:
        try:
            _sync(here)
            crash_point("files.before_rename")
            here.rename(final)
        except OSError as error:
            if error.errno not in _DONE_ALREADY:
                raise

    def _is_published(self, sequence: int) -> bool:
        """By another driver, since."""
        if (self._path / batch_folder(sequence)).exists() or self._flag(sequence).exists():
            return True
        newest = self.newest()
        return newest is not None and newest.sequence > sequence

    def clean(self, newest: Manifest) -> None:
        for name in _names(self._own):
            found = _NUMBERED.fullmatch(name)
            # One that was never linked can only be second, or a gap's
            old = newest.sequence - (0 if name.endswith(".new") else KEEP)
            if found and int(found[1]) <= old:
                (self._own / name).unlink(missing_ok=True)
        for name in _names(self._publishing):  # of a driver that came late: empty
            if int(name) < newest.sequence:
                with suppress(OSError):
                    (self._publishing / name).rmdir()

    def stage(self, file: str, data: pa.Buffer) -> None:
        if not self._staged.is_dir():
            raise FileNotFoundError(
                f"{self._staged} is not there: the driver has made it, so this executor sees "
                "another directory under that path. Mount the same one everywhere"
            )
        waiting = self._staged / f".{file}.{uuid.uuid4().hex}.new"
        try:
            _write(waiting, data)
            waiting.rename(self._staged / file)
        finally:
            waiting.unlink(missing_ok=True)
        _sync(self._staged)

    def staged(self) -> Mapping[str, int]:
        found = {}
        for name, size in _sizes(self._staged).items():
            unfinished = _UNFINISHED.fullmatch(name)
            if unfinished is None:
                found[name] = size
            else:
                found.setdefault(unfinished[1], -1)
        return found

    def remove(self, files: Collection[str]) -> None:
        for name in _names(self._staged):
            unfinished = _UNFINISHED.fullmatch(name)
            if name in files or (unfinished and unfinished[1] in files):
                (self._staged / name).unlink(missing_ok=True)

    def shown(self, newest: Manifest) -> list[Shown]:
        found = []
        for folder in _names(self._path):
            batch = batch_in(folder)
            if batch is not None and batch < newest.sequence:
                sizes = _sizes(self._path / folder).items()
                found += [Shown(batch, *one) for one in sizes if not one[0].startswith(_HIDDEN)]
        mine = [Shown(newest.sequence, file.name, file.bytes) for file in newest.files]
        lost = [one for one in mine if not any(path.exists() for path in self._places(one))]
        if lost and not self._is_published(newest.sequence):
            names = [DataFile(one.file, one.bytes) for one in lost]
            gone(self.place, newest.sequence, names, self._staged, fail=True)
        return found + [one for one in mine if one not in lost]

    def read(self, shown: Shown) -> pa.NativeFile:
        import pyarrow as pa

        for path in self._places(shown):
            with suppress(FileNotFoundError):
                return pa.OSFile(str(path))
        raise FileNotFoundError(f"{shown.file} of batch {shown.sequence} in {self._path}")

    def _places(self, shown: Shown) -> Iterator[Path]:
        """Where a file may be, in the order in which it moves on."""
        yield self._staged / shown.file
        yield self._publishing / str(shown.sequence) / shown.file
        yield self._path / batch_folder(shown.sequence) / shown.file

    def _manifest(self, sequence: int) -> Path:
        return self._own / f"manifest-{sequence:010}.json"

    def _flag(self, sequence: int) -> Path:
        return self._own / f"published-{sequence:010}"


def _names(folder: Path) -> list[str]:
    """None, of one that is not there (any more)."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _sizes(folder: Path) -> dict[str, int]:
    found = {}
    for name in _names(folder):
        with suppress(FileNotFoundError):
            found[name] = (folder / name).stat().st_size
    return found


def _write(path: Path, data: bytes | pa.Buffer) -> None:
    """Durable when it returns."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(*folders: Path) -> None:
    """Their names are durable when it returns."""
    for folder in folders:
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
