"""Writes a snapshot's files into an empty checkpoint.

Runs wherever the user restores, once. A file `_eo_kafka_restoring` stands in the folder from the
first byte to the last: a restore that was interrupted is started again, and a query that was
started on its leavings is stopped. It says whose it is: of two restores of one folder the later one
goes on, and the earlier one finds that out before it removes or writes a file, and stops. And it
says what is being written: what is left of another job, or of a start-from, is left as it is.
`metadata`, which makes Spark take the folder for the query's, comes last.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ...core.crash_points import crash_point
from ...core.errors import CheckpointError, CheckpointUnreadable, CorruptSnapshot
from ...core.process import moment
from ...core.progress import Told
from ..ledger.blob_names import Blob, SnapshotHead, parse_chunk_key
from ..ledger.log_reader import read_records
from . import blobs, operators
from .assembly import Content, assembled, pieces
from .checkpoint import Checkpoint
from .manifest import Manifest
from .snapshot import RESTORING
from .unreadable import may_pass

_LAST = "metadata"
_CHECK_AGAIN_S = 1.0  # while files are written: who was stopped for a while looks first


@dataclass(frozen=True)
class Purpose:
    """What a folder is being filled with: a snapshot of `job`, or, for a new `job`, an `export` of
    the job `source` (start-from)."""

    job: str
    source: str = ""
    export: str = ""

    def marker(self) -> bytes:
        """What the marker file holds, another one each time."""
        return json.dumps({"id": uuid.uuid4().hex, **asdict(self)}).encode()

    @classmethod
    def of(cls, marker: bytes) -> Purpose | None:
        """None of one that does not say it, as those of eo-kafka before November 2026."""
        try:
            found = json.loads(marker)
            return cls(*(str(found[name]) for name in ("job", "source", "export")))
        except (ValueError, TypeError, KeyError, RecursionError):
            return None


def check_nothing_left(checkpoint: Checkpoint, job: str) -> None:
    """Raise CheckpointError if something left the folder unfinished; asked where `job` has nothing
    to restore into it."""
    marker = _marker(checkpoint)
    if marker is not None:
        none = f" Job '{job}' has no snapshot here to restore."
        raise CheckpointError(_unfinished(checkpoint.url, Purpose.of(marker), none))


def _unfinished(url: str, left: Purpose | None, why: str = "") -> str:
    if left is None:
        what = (
            "an unfinished restore, or start-from, of an older eo-kafka, which does not say of what"
        )
        again = "If 'eo-kafka snapshots start-from' was filling it, run that again, as it was"
    elif left.export:
        command = f"eo-kafka snapshots start-from {left.source} {left.export} --job {left.job}"
        what = f"what '{command}' has not finished: it was interrupted, or is still at work"
        again = f"It goes on when it is run again, '{command} --checkpoint {url} ...', as it was"
    else:
        what = f"an unfinished restore of job '{left.job}'"
        again = f"'eo-kafka snapshots restore {left.job} {url} ...' restores it"
    return (
        f"The checkpoint '{url}' holds {what}.{why} It was left as it is, and no query may start "
        f"from it. {again}. If nobody needs it any more, delete the folder."
    )


def _marker(checkpoint: Checkpoint) -> bytes | None:
    try:
        with checkpoint.open(RESTORING) as stream:
            return stream.read()
    except FileNotFoundError:
        return None


class Claim:
    """A restore's hold on a folder, from its making on.

    Raises CheckpointError unless the folder is empty, or was left unfinished for the same
    `purpose`, or for one that is not known; then it is emptied.
    """

    def __init__(self, checkpoint: Checkpoint, purpose: Purpose) -> None:
        self._checkpoint = checkpoint
        self._id = purpose.marker()
        self._checked_s = 0.0
        if not checkpoint.is_empty():
            # Right before it is taken over: whoever had it may have come to its end meanwhile.
            found = _marker(checkpoint)
            if found is None:
                raise CheckpointError(
                    f"The checkpoint '{checkpoint.url}' is not empty, and a snapshot is restored "
                    "into an empty one only. Start the query from it as it is, or name another "
                    "folder."
                )
            left = Purpose.of(found)
            if left not in (purpose, None):
                raise CheckpointError(_unfinished(checkpoint.url, left))
            self._write()
            checkpoint.clear(RESTORING, self.check)
        self._write()

    def check(self, within_s: float = 0.0) -> None:
        """Raise CheckpointError if another restore has taken the folder over; not asked if that was
        seen `within_s`."""
        now = moment.seconds()
        if now - self._checked_s < within_s:
            return
        if _marker(self._checkpoint) != self._id:
            raise CheckpointError(
                f"Another restore has taken over the checkpoint '{self._checkpoint.url}' while "
                "this one was at it. This one stops, and leaves what is there to the other one, "
                "which may have ended already."
            )
        self._checked_s = now

    def clear(self) -> None:
        """Leave the folder empty."""
        self._checkpoint.clear(RESTORING, self.check)

    def finish(self) -> None:
        """A query may start from it."""
        self._checkpoint.finish(RESTORING, self.check)

    def _write(self) -> None:
        self._checkpoint.write(RESTORING, [self._id])


def restore(
    settings: Mapping[str, str],
    topic: str,
    end: int,
    head: SnapshotHead,
    checkpoint: Checkpoint,
    told: Told,
    purpose: Purpose,
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
        claim = Claim(checkpoint, purpose)
        try:
            _write_files(settings, topic, end, manifest, checkpoint, claim, told, leave_out)
        except CorruptSnapshot:
            claim.clear()
            raise
        claim.check()
        before_finish()
        claim.finish()


@contextmanager
def filling(checkpoint: Checkpoint) -> Iterator[None]:
    """While a checkpoint is looked at and written: CheckpointError for what a full disk says, or an
    object store that does not let us in; CheckpointUnreadable where the next start may do it."""
    try:
        yield
    except OSError as error:
        passes = may_pass(error)
        todo = "When its store answers, run" if passes else "Correct this and run"
        raise (CheckpointUnreadable if passes else CheckpointError)(
            f"The checkpoint '{checkpoint.url}' could not be filled: {error}. It is incomplete, "
            f"and no query starts from it. {todo} the same again."
        ) from error


def _write_files(
    settings: Mapping[str, str],
    topic: str,
    end: int,
    manifest: Manifest,
    checkpoint: Checkpoint,
    claim: Claim,
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
            claim.check(_CHECK_AGAIN_S)
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
        claim.check()
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
