"""Writes a snapshot's files into an empty checkpoint.

Runs wherever the user restores, once. A file `_eo_kafka_restoring` stands in the folder from the
first byte to the last: a restore that was interrupted is started again, and a query that was
started on its leavings is stopped. `metadata`, which makes Spark take the folder for the query's,
comes last.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ...core.crash_points import crash_point
from ...core.errors import CheckpointError, CorruptSnapshot
from ...core.progress import Told
from ..ledger.blob_names import Blob, SnapshotHead, parse_chunk_key
from ..ledger.log_reader import read_records
from . import blobs, operators
from .assembly import Content, assembled, pieces
from .checkpoint import Checkpoint
from .manifest import Manifest
from .snapshot import RESTORING

_LAST = "metadata"


def check_free(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError unless the folder is empty, or a restore left it unfinished; then it
    is emptied."""
    if checkpoint.is_empty():
        return
    if RESTORING not in checkpoint.paths():
        raise CheckpointError(
            f"The checkpoint '{checkpoint.url}' is not empty, and a snapshot is restored into an "
            "empty one only. Start the query from it as it is, or name another folder."
        )
    checkpoint.clear(RESTORING)


def restore(
    settings: Mapping[str, str],
    topic: str,
    end: int,
    head: SnapshotHead,
    checkpoint: Checkpoint,
    told: Told,
    leave_out: frozenset[str] = frozenset(),
    before_finish: Callable[[], object] = lambda: None,
) -> None:
    """Put all files of `head` in place, but those in `leave_out`. `end` is the state topic's.
    `before_finish` is called when they are, while the folder still counts as unfinished; `told`
    hears how many bytes are in place.

    Reads the topic once, by position; memory stays bounded, the disk holds what is incomplete.
    Raises CheckpointError, CorruptSnapshot (the folder is left empty then), ReadTimeout.
    """
    packed = blobs.read_blob(settings, topic, head.manifest_from, end, head.manifest)
    manifest = Manifest.decode(packed)
    if len(manifest.files) != head.files:
        raise CorruptSnapshot(
            f"The manifest of batch {head.batch} lists {len(manifest.files)} files of {head.files}."
        )
    with filling(checkpoint):
        check_free(checkpoint)
        checkpoint.write(RESTORING, [b""])
        try:
            _write_files(settings, topic, end, manifest, checkpoint, told, leave_out)
        except CorruptSnapshot:
            checkpoint.clear(RESTORING)
            raise
        before_finish()
        checkpoint.finish(RESTORING)


@contextmanager
def filling(checkpoint: Checkpoint) -> Iterator[None]:
    """While a checkpoint is looked at and written: CheckpointError for what a full disk says, or an
    object store that does not let us in."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint '{checkpoint.url}' could not be filled: {error}. It is incomplete, "
            "and no query starts from it. Correct this and restore again."
        ) from error


def _write_files(
    settings: Mapping[str, str],
    topic: str,
    end: int,
    manifest: Manifest,
    checkpoint: Checkpoint,
    told: Told,
    leave_out: frozenset[str],
) -> None:
    paths: dict[str, list[str]] = defaultdict(list)
    for path, entry in manifest.files.items():
        if path not in leave_out:
            paths[entry.blob.digest].append(path)
    wanted = {name: blob for name, blob in manifest.blobs().items() if name in paths}
    done, total = 0, sum(blob.size * len(paths[name]) for name, blob in wanted.items())
    told(done, total)
    last = None
    for blob, content in read_blobs(settings, topic, end, wanted, checkpoint.scratch):
        for path in paths[blob.digest]:
            if path == _LAST:
                last = b"".join(pieces(content))
            elif operators.is_description(path):
                text = b"".join(pieces(content))
                checkpoint.write(path, [operators.moved(text, checkpoint.location)])
            elif isinstance(content, Path) and path is paths[blob.digest][-1]:
                checkpoint.take(path, content)
            else:
                checkpoint.write(path, pieces(content))
            done += blob.size
            told(done, total)
        crash_point("restore.while_writing")
    if wanted:
        names = sorted(path for name in wanted for path in paths[name])
        raise CorruptSnapshot(
            f"Topic '{topic}' lacks the contents of {len(names)} of {len(manifest.files)} files "
            f"of the snapshot, or parts of them: {', '.join(names[:3])}. It was not used. Was "
            "the topic cut by retention, or did somebody else write to it?"
        )
    if last is not None:
        checkpoint.write(_LAST, [last])


def read_blobs(
    settings: Mapping[str, str],
    topic: str,
    end: int,
    wanted: dict[str, Blob],
    scratch: Path | None = None,
) -> Iterator[tuple[Blob, Content]]:
    """Each blob of `wanted`, by digest, once it is whole, and its content, for `pieces`. The next
    step takes it out of `wanted`: what is left there at the end is not in the topic.

    Memory stays bounded; what is incomplete is in `scratch`, or where temporary files are. Raises
    CorruptSnapshot, ReadTimeout.
    """
    with tempfile.TemporaryDirectory(prefix=".eo-kafka-restore-", dir=scratch) as folder:
        for blob, content in assembled(_chunks(settings, topic, end, wanted), Path(folder)):
            yield blob, content
            del wanted[blob.digest]


def _chunks(
    settings: Mapping[str, str], topic: str, end: int, wanted: Mapping[str, Blob]
) -> Iterator[tuple[Blob, int, bytes]]:
    """The chunks of what is still wanted, until nothing is."""
    for _, key, value in read_records(settings, topic, 0, 0, end, blobs.AT_ONCE):
        digest, index = parse_chunk_key(key)
        if value is not None and digest in wanted:
            yield wanted[digest], index, value
        if not wanted:
            return
