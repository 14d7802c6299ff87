"""Takes a snapshot: finds the files of a checkpoint, and digests and sends new ones.

Runs on the driver, in `commit(N)`, before batch N is decided: the files that a restart at N needs
are complete by then, because batch N - 1 wrote the state and Spark the offsets before the tasks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace

from ...core.errors import CheckpointError, SnapshotFailed
from ..ledger.blob_names import CHUNK, Blob, Digester, chunk_key
from . import offset_log
from .checkpoint import Checkpoint
from .closure import Incomplete, needed
from .manifest import FileEntry, Manifest, checked_path

RESTORING = "_eo_kafka_restoring"  # there while a restore writes; see restore.py
ATTEMPTS = 5
READERS = 8
KEPT_IN_MEMORY = 64 * 1024  # bytes of a file that need not be read twice
KEPT_ALTOGETHER = 16 << 20
_VERSION = re.compile(r"(\d+)[^/]*")
_KINDS = (".delta", ".snapshot", ".changelog", ".zip", ".crc")


@dataclass(frozen=True)
class _Read:
    """A file as it was found. `content` of a small one that was read now."""

    path: str
    entry: FileEntry
    content: bytes | None = None


class Snapshot:
    """The files of one batch, and how to read those that the topic does not hold yet."""

    def __init__(self, checkpoint: Checkpoint, found: list[_Read]) -> None:
        self._checkpoint = checkpoint
        self._found = {read.entry.blob.digest: read for read in found}
        self.manifest = Manifest({read.path: read.entry for read in found})

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.blob.size for entry in self.manifest.files.values())

    def new_blobs(self, known: Mapping[str, Blob]) -> list[Blob]:
        """Contents that `known` lacks."""
        return [blob for name, blob in self.manifest.blobs().items() if name not in known]

    def chunks(self, blob: Blob) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of each record of `blob`. Raises SnapshotFailed if its file was replaced
        or removed since it was digested."""
        read = self._found[blob.digest]
        # Of an empty file nothing would be read, and it is one record.
        content = read.content if blob.size else b""
        if content is not None:
            yield chunk_key(blob.digest, 0), content
            return
        digester = Digester()
        problem = "it changed"
        try:
            for index, piece in enumerate(_pieces(self._checkpoint, read.path)):
                digester.update(piece)
                yield chunk_key(blob.digest, index), piece
        except OSError as error:
            problem = str(error)
        if digester.digest() != blob.digest:
            raise SnapshotFailed(
                f"{read.path} of checkpoint '{self._checkpoint.url}' changed while it was sent: "
                f"{problem}. Nothing is decided. Start the query again."
            )


def take(checkpoint: Checkpoint, batch: int, previous: Manifest) -> Snapshot:
    """Find and digest what a restart at `batch` needs. `previous` saves reading what it lists.

    Spark's maintenance removes files at any moment: one that vanishes makes us list again.
    Raises SnapshotFailed (nothing is decided; the batch may be run again), CheckpointError.
    """
    for attempt in range(ATTEMPTS):
        time.sleep(0.1 * 2**attempt if attempt else 0)
        try:
            return _take(checkpoint, batch, previous)
        except (Incomplete, FileNotFoundError) as error:
            problem = error
        except OSError as error:
            raise SnapshotFailed(
                f"The checkpoint '{checkpoint.url}' could not be read: {error}. Nothing is decided."
            ) from error
    raise SnapshotFailed(
        f"The checkpoint '{checkpoint.url}' does not hold all that a restart at batch {batch} "
        f"needs: {problem}. Nothing is decided: start the query again. If it stops here again, "
        "the checkpoint is damaged: stop the query, delete the checkpoint and restore the newest "
        "snapshot ('eo-kafka snapshots restore JOB CHECKPOINT'). Is "
        "'spark.sql.streaming.minBatchesToRetain' 1? Then Spark removes what a batch starts from "
        "while it is committed: set 2 or more."
    )


def _take(checkpoint: Checkpoint, batch: int, previous: Manifest) -> Snapshot:
    paths = checkpoint.paths()
    if RESTORING in paths:
        raise CheckpointError(
            f"The checkpoint '{checkpoint.url}' was not restored to its end. Stop the query and "
            "restore again: eo_kafka.restore(...) or 'eo-kafka snapshots restore'; or run "
            "'eo-kafka snapshots start-from' again, if that made it."
        )

    def find(path: str) -> _Read:
        return _find(checkpoint, path, batch, previous.files.get(path))

    def content(path: str) -> bytes:
        return b"".join(_pieces(checkpoint, path))

    offsets = f"offsets/{batch}"
    planned = offset_log.parse(content(offsets).decode() if offsets in paths else "")
    wanted = needed(paths, batch, content, planned.state_partitions)
    _check_names(checkpoint, wanted)
    found, kept = [], 0
    # To start a thread takes longer than to read a small local file.
    is_small = checkpoint.scratch is not None and len(wanted) <= READERS
    with nullcontext() if is_small else ThreadPoolExecutor(READERS) as pool:
        for read in pool.map(find, wanted) if pool else map(find, wanted):
            kept += len(read.content or b"")
            found.append(read if kept <= KEPT_ALTOGETHER else replace(read, content=None))
    return Snapshot(checkpoint, found)


def _check_names(checkpoint: Checkpoint, paths: Iterable[str]) -> None:
    """A manifest with another name is refused when it is read: nothing could be restored then."""
    try:
        for path in paths:
            checked_path(path)
    except ValueError as error:
        raise SnapshotFailed(
            f"The checkpoint '{checkpoint.url}' holds a file that is not Spark's: {error}, and no "
            "snapshot can name it. Nothing is decided. Move the file to another place and start "
            "the query again."
        ) from None


def _find(checkpoint: Checkpoint, path: str, batch: int, before: FileEntry | None) -> _Read:
    stat = checkpoint.stat(path)
    same = before and stat.stamp and (before.blob.size, before.stamp) == (stat.size, stat.stamp)
    if before and same and _is_settled(path, batch):
        return _Read(path, before)
    digester, kept = Digester(), []
    for piece in _pieces(checkpoint, path):
        digester.update(piece)
        if digester.size <= KEPT_IN_MEMORY:
            kept.append(piece)
    whole = b"".join(kept) if digester.size <= KEPT_IN_MEMORY else None
    entry = FileEntry(Blob(digester.digest(), digester.size), stat.stamp)
    return _Read(path, entry, whole)


def _is_settled(path: str, batch: int) -> bool:
    """Whether nobody writes this path any more. A batch that runs again writes its version of the
    state under the same name, perhaps within the clock's resolution of a file system."""
    name = path.rpartition("/")[2]
    if path.startswith("state/") and name.endswith(_KINDS):
        version = _VERSION.match(name)
        return version is not None and int(version[1]) < batch
    return not path.startswith(("offsets/", "commits/"))


def _pieces(checkpoint: Checkpoint, path: str) -> Iterator[bytes]:
    with checkpoint.open(path) as stream:
        while piece := stream.read(CHUNK):
            yield piece
