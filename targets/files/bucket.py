"""Files in an object store that is reached as S3.

    url/_eo_files/manifest.json               the truth
    url/_eo_files/published-0000000007        its files are where they stay
    url/_eo_files/staged/...                  chunks that wait for their decision
    url/batch=0000000007/...                  what readers see that do not honour the manifest

The atomic step is a conditional write: the manifest is replaced if it is still the one that was
read (`If-Match`), or made if there is none (`If-None-Match: *`). Its ETag comes of its content, in
which an id of its own stands, so no manifest is ever taken for an earlier one, however long a
driver was paused. There is only the one; no name is freed, and none is used again.

A store cannot rename. A batch is published by a copy of each file, and then the staged ones are
removed: a file is in one of the two places, and who looks for it in this order finds it. Readers
that do not honour the manifest may see some files of the newest batch before the others. The next
manifest is written when all are published. A late driver finds nothing staged any more, and copies
nothing.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from ...core.crash_points import crash_point
from ...core.errors import EnvironmentRefused
from .home import Shown
from .lost import check_restored, gone
from .manifest import OWN, DataFile, Manifest, batch_folder, batch_in

if TYPE_CHECKING:
    import pyarrow as pa

_MANIFEST, _STAGED, _FLAG = f"{OWN}/manifest.json", f"{OWN}/staged", f"{OWN}/published-"
AT_ONCE = 16  # copies
_HIDDEN = ("_", ".")
TIMEOUT, INSIST_FOR = "30 seconds", timedelta(seconds=60)


class Bucket:
    """`Home` says what is asked. Pickled to the tasks; each process connects when it is used."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/").replace("s3a://", "s3://", 1)
        self._read: tuple[str, str] | None = None  # the newest manifest's id and ETag
        self._done = 0  # the newest batch that is known to be published

    @property
    def place(self) -> str:
        return f"object store {self._url}"

    @property
    def _store(self) -> Any:
        return _store(self._url)

    def check(self) -> Manifest | None:
        if (newest := self.newest()) is not None:
            return newest
        # An object without a name is the folder's own, as consoles make one
        if foreign := sorted(key for key in self._keys() if key and not key.startswith(f"{OWN}/")):
            raise EnvironmentRefused(
                f"{self._url} is not empty ({', '.join(foreign[:3])}) and has no manifest of "
                "eo-kafka: plain readers would see those beside the batches, and "
                "format('eo-files') would not. Nothing was written. Take another prefix."
            )
        self._check_conditions()
        return None

    def _check_conditions(self) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        tried, refused = f"{OWN}/tried-{uuid.uuid4().hex}", 0
        modes: tuple[Any, ...] = ("create", {"e_tag": '"another"'})
        first = obstore.put(self._store, tried, b"1", mode="create")
        try:
            for mode in modes:
                with suppress(AlreadyExistsError, PreconditionError):
                    obstore.put(self._store, tried, b"2", mode=mode)
                    refused -= 1
                refused += 1
            obstore.put(self._store, tried, b"3", mode={"e_tag": first["e_tag"] or ""})
        except PreconditionError:
            refused = 0
        finally:
            obstore.delete(self._store, tried)
        if refused != 2:
            raise EnvironmentRefused(
                f"The store of {self._url} does not honour conditional writes (If-Match, "
                "If-None-Match): two drivers could write the same batch. Nothing was written. "
                "Take a store that does, such as Amazon S3, MinIO or SeaweedFS."
            )

    def newest(self) -> Manifest | None:
        import obstore

        try:
            found = obstore.get(self._store, _MANIFEST)
        except FileNotFoundError:
            return None
        raw = bytes(found.bytes())
        newest = Manifest.decoded(raw, f"{self._url}/{_MANIFEST}")
        self._read = newest.id, found.meta["e_tag"] or ""
        return newest

    def create(self, new: Manifest, newest: Manifest | None, writer: str) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        there = batch_folder(new.sequence)
        if self._keys(there) or self._has(self._flag(new.sequence)):
            own = f"{self._url}/{OWN}"
            check_restored(f"{self._url}/{there}", own, self.newest(), new.sequence)
        mode: Any = "create"
        if newest is not None:
            if self._read is None or self._read[0] != newest.id:
                return False  # somebody else's was read since
            mode = {"e_tag": self._read[1]}
        crash_point("files.before_link")
        try:
            obstore.put(self._store, _MANIFEST, new.encoded(), mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            now = self.newest()  # ours, where the answer was lost and the write came twice
            return now is not None and now.id == new.id
        crash_point("files.after_link")
        return True

    def publish(self, newest: Manifest, *, fail: bool) -> None:
        import obstore

        sequence = newest.sequence
        if not newest.files or self._done == sequence or self._has(self._flag(sequence)):
            self._done = sequence
            return
        copied = self._copied(newest)
        there = self._keys(batch_folder(sequence)) if len(copied) < len(newest.files) else {}
        lost = [
            file
            for file in newest.files
            if file.name not in copied and there.get(_final(sequence, file.name)) != file.bytes
        ]
        if lost and not self._is_published(sequence):
            gone(self.place, sequence, lost, f"{self._url}/{_STAGED}", fail=fail)
        crash_point("files.before_rename")
        self.remove([file.name for file in newest.files])
        crash_point("files.after_rename")
        obstore.put(self._store, self._flag(sequence), b"")
        self._done = sequence

    def _copied(self, newest: Manifest) -> set[str]:
        """The files that were still staged, which are where they stay now."""
        import obstore

        def copy(file: DataFile) -> str | None:
            to = _final(newest.sequence, file.name)
            try:
                obstore.copy(self._store, f"{_STAGED}/{file.name}", to)
            except FileNotFoundError:  # another driver was first
                return None
            crash_point("files.while_publishing")
            return file.name

        staged = self.staged()
        here = [file for file in newest.files if staged.get(file.name) == file.bytes]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return {name for name in pool.map(copy, here) if name}

    def _is_published(self, sequence: int) -> bool:
        """By another driver, since."""
        newest = self.newest()
        later = newest is not None and newest.sequence > sequence
        return later or self._has(self._flag(sequence))

    def clean(self, newest: Manifest) -> None:
        import obstore

        flags = [one for one in self._keys(OWN) if one.startswith(_FLAG)]
        if old := [one for one in flags if one < self._flag(newest.sequence)]:
            obstore.delete(self._store, old)

    def stage(self, file: str, data: pa.Buffer) -> None:
        import obstore

        obstore.put(self._store, f"{_STAGED}/{file}", data.to_pybytes(), use_multipart=False)

    def staged(self) -> Mapping[str, int]:
        return {key.rpartition("/")[2]: size for key, size in self._keys(_STAGED).items()}

    def remove(self, files: Collection[str]) -> None:
        import obstore

        obstore.delete(self._store, [f"{_STAGED}/{file}" for file in files])

    def shown(self, newest: Manifest) -> list[Shown]:
        found = []
        for key, size in self._keys().items():
            folder, _, file = key.partition("/")
            batch = batch_in(folder)
            if batch is not None and batch < newest.sequence and not file.startswith(_HIDDEN):
                found.append(Shown(batch, file, size))
        mine = [Shown(newest.sequence, file.name, file.bytes) for file in newest.files]
        lost = [one for one in mine if not any(map(self._has, self._places(one)))]
        if lost and not self._is_published(newest.sequence):
            names = [DataFile(one.file, one.bytes) for one in lost]
            where = f"{self._url}/{_STAGED}"
            gone(self.place, newest.sequence, names, where, fail=True)
        return found + [one for one in mine if one not in lost]

    def read(self, shown: Shown) -> pa.NativeFile:
        import obstore
        import pyarrow as pa

        for key in self._places(shown):
            with suppress(FileNotFoundError):
                return pa.BufferReader(pa.py_buffer(obstore.get(self._store, key).bytes()))
        raise FileNotFoundError(f"{shown.file} of batch {shown.sequence} in {self._url}")

    def _places(self, shown: Shown) -> Iterator[str]:
        """Where a file may be, in the order in which it moves on."""
        yield f"{_STAGED}/{shown.file}"
        yield _final(shown.sequence, shown.file)

    def _keys(self, folder: str | None = None) -> dict[str, int]:
        import obstore

        return {
            one["path"]: one["size"]
            for page in obstore.list(self._store, prefix=folder)
            for one in page
        }

    def _size(self, key: str) -> int | None:
        """None: it is not there."""
        import obstore

        try:
            size: int = obstore.head(self._store, key)["size"]
        except FileNotFoundError:
            return None
        return size

    def _has(self, key: str) -> bool:
        return self._size(key) is not None

    def _flag(self, sequence: int) -> str:
        return f"{_FLAG}{sequence:010}"


def _final(sequence: int, file: str) -> str:
    return f"{batch_folder(sequence)}/{file}"


@cache
def _store(url: str) -> Any:
    """By the environment's variables (AWS_...), which hold the credentials."""
    try:
        from obstore.store import S3Store
    except ImportError:
        raise EnvironmentRefused(
            "Files in an object store need obstore: pip install 'eo-kafka[files]', on the driver "
            "and on the executors."
        ) from None
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    client: Any = {"timeout": TIMEOUT, **({"allow_http": True} if plain else {})}
    again: Any = {"max_retries": 5, "retry_timeout": INSIST_FOR}
    return S3Store(bucket, prefix=prefix or None, client_options=client, retry_config=again)
