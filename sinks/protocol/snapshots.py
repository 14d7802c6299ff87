"""S6 with a snapshot: takes the checkpoint's new files along with the decision.

Runs on the driver, in `commit(N)`, under the fence. A small snapshot goes into the decision's own
transaction. Of a large one the files go ahead, in transactions of the same coordinator, because the
decision's must end within its timeout; the ledger remembers where they began, so that after a crash
the next snapshot finds them: those that it names it does not send again, the others it removes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from ...clients.kafka.control_plane import ControlPlane
from ...core.crash_points import crash_point
from ...core.errors import CheckpointError, CorruptSnapshot, EnvironmentRefused
from ...state.ledger import records
from ...state.ledger.appender import STATE_PARTITION, Record
from ...state.ledger.blob_names import Blob, SnapshotHead, digest_of
from ...state.ledger.coordinator import Coordinator, Write
from ...state.ledger.job_topics import LEDGER_TOPIC, STATE_TOPIC
from ...state.ledger.ledger import Ledger
from ...state.snapshots import blobs
from ...state.snapshots.blobs import Strays
from ...state.snapshots.checkpoint import Checkpoint, open_checkpoint
from ...state.snapshots.manifest import Manifest
from ...state.snapshots.offset_log import PlannedBatch
from ...state.snapshots.snapshot import Snapshot, take
from ..batches.committable import TaskReport
from ..options import SinkOptions
from .snapshot_interval import is_due

log = logging.getLogger(__name__)

INLINE_MAX = 8 << 20  # bytes of new files that go into the decision's transaction
PORTION = 32 << 20  # bytes of each transaction ahead of it
# The manifest this process wrote or read last, by topic and digest: mostly the next batch asks for
# it.
_last: dict[tuple[str, str], Manifest] = {}


class Snapshots:
    """Takes the snapshot of one batch."""

    def __init__(
        self,
        options: SinkOptions,
        control: ControlPlane,
        checkpoint: Checkpoint,
        first: TaskReport,
        planned: PlannedBatch,
    ) -> None:
        self._options = options
        self._control = control
        self._checkpoint = checkpoint
        self._report = first
        self._topic = options.state_topic or ""
        self._planned = planned
        self.taken: SnapshotHead | None = None

    @classmethod
    def of(
        cls,
        options: SinkOptions,
        control: ControlPlane,
        first: TaskReport,
        planned: PlannedBatch,
    ) -> Snapshots | None:
        """None where none shall be taken. `planned`: what Spark recorded of the batch. Raises
        CheckpointError."""
        if not options.snapshots:
            return None
        if first.checkpoint is None:
            raise CheckpointError(
                "Where Spark keeps the checkpoint is not known here, and option 'snapshots' needs "
                "it: give the query option 'checkpointLocation'. Nothing is decided."
            )
        return cls(options, control, open_checkpoint(first.checkpoint), first, planned)

    def take(self, coordinator: Coordinator, ledger: Ledger) -> Write:
        """What goes into the decision's transaction: the head, the files, tombstones for what
        nobody names any more; nothing if none is due. The files of a large one are sent ahead.

        Raises SnapshotFailed, CheckpointError, or what an append raises.
        """
        if not is_due(self._options, ledger, self._report, self._planned, self._checkpoint):
            return Write([])
        ends = [(self._topic, STATE_PARTITION, which) for which in (None, False)]
        began, start = self._control.look(ends=ends).ends
        before, strays = self._previous(ledger, began, start)
        snapshot = take(self._checkpoint, self._report.batch, before)
        packed = snapshot.manifest.encode()
        manifest = Blob(digest_of(packed), len(packed))
        fresh = snapshot.new_blobs(before.blobs())
        left = self._without_what_is_there(coordinator, fresh, strays, start)
        ahead = sum(blob.size for blob in left) > INLINE_MAX
        if ahead:
            self._send_ahead(coordinator, ledger, snapshot, left, start)
        gone = _gone(ledger, before, strays.keys, {manifest, *snapshot.manifest.blobs().values()})
        head = SnapshotHead(
            batch=self._report.batch,
            generation=self._report.generation,
            query=self._report.query_id,
            manifest=manifest,
            manifest_from=start,
            files=len(snapshot.manifest.files),
            size=snapshot.size,
            sent=sum(blob.size for blob in fresh),
            made_ms=int(time.time() * 1000),
            topic_from=began,
            topic=self._topic,
            run=self._report.run,
        )
        self.taken = head
        self._remember(manifest, snapshot.manifest)
        crash_point("S6.snapshot_taken")
        loading = ahead or ledger.loading_from is not None
        return Write(
            [
                (records.SNAPSHOT_KEY, records.encode_snapshot(head)),
                *([(records.LOADING_KEY, None)] if loading else []),
            ],
            [
                *([] if ahead else _records(snapshot, left)),
                *blobs.chunks(packed, manifest),
                *((key, None) for key in gone),
            ],
        )

    def _without_what_is_there(
        self, coordinator: Coordinator, fresh: list[Blob], strays: Strays, end: int
    ) -> list[Blob]:
        """What an earlier try has not sent. One that took longer than the tasks' transactions may
        be open would be in vain for ever, if each began anew."""
        there = strays.whole()
        left = [blob for blob in fresh if blob.digest not in there]
        if len(left) < len(fresh):
            # A tombstone may stand behind an old end, which a leader that is cut off tells.
            coordinator.count_on_state(end)
            sizes = [sum(blob.size for blob in some) for some in (left, fresh)]
            log.info(
                "Of a snapshot an earlier try has sent a part: %d of %d bytes are left.", *sizes
            )
        return left

    def _previous(self, ledger: Ledger, began: int, end: int) -> tuple[Manifest, Strays]:
        """The newest snapshot's manifest, and what may stand behind it unnamed."""
        head, strays_from, manifest = ledger.snapshot, ledger.loading_from, Manifest()
        lost = ""
        if head is not None:
            try:
                manifest = self._read_manifest(head, began, end)
            except CorruptSnapshot as error:
                lost = f"{error} "
        if not self._is_mine(ledger.loading_topic):  # what is unnamed here is another job's
            strays_from = None
        sent_from = end if strays_from is None else strays_from
        cut = head is not None and self._is_mine(head.topic) and began != head.topic_from
        if strays_from is None and not cut and (head is None or lost):
            self._refuse_what_is_anothers(end, lost)
        if lost:
            log.warning("%sA whole snapshot is sent again.", lost)
            strays_from = 0
            _last.clear()  # should this one be interrupted: none of that is there
        if strays_from is None:
            return manifest, Strays()
        kafka = self._options.kafka
        return manifest, blobs.strays_between(kafka, self._topic, strays_from, end, sent_from)

    def _is_mine(self, topic: str) -> bool:
        """Whether the ledger speaks of this state topic. Older records do not say of which."""
        return topic in ("", self._topic)

    def _refuse_what_is_anothers(self, end: int, lost: str) -> None:
        """Raise EnvironmentRefused if there are files in the topic that the ledger knows nothing
        of. Two jobs in one topic would remove what the other's snapshot names."""
        job, ledger = self._options.job_and_ledger
        # Nobody but this ledger's job can have that name, unless there are two ledgers.
        if (self._topic, ledger) == (STATE_TOPIC.format(job=job), LEDGER_TOPIC.format(job=job)):
            return
        if blobs.keys_between(self._options.kafka, self._topic, 0, end):
            raise EnvironmentRefused(
                f"{lost}State topic '{self._topic}' (option 'stateTopic') holds snapshots that "
                "this job's ledger does not know. Are they another job's? Two jobs in one topic "
                "would remove each other's files. Nothing was written or decided. Give each job a "
                "topic of its own, or leave the option out; if no job uses that topic any more, "
                "delete it and start the query again."
            )

    def _read_manifest(self, head: SnapshotHead, began: int, end: int) -> Manifest:
        if began != head.topic_from:  # what it names may have stood before that
            raise CorruptSnapshot(
                f"Records of topic '{self._topic}' before offset {began} were deleted since the "
                f"snapshot of batch {head.batch}: it is compacted, and nobody may delete by age or "
                "by hand in it."
            )
        known = _last.get((self._topic, head.manifest.digest))
        # A topic that was deleted and made again has none of what it names: read there, it is told
        if known is not None and head.manifest_from < end:
            return known
        packed = blobs.read_blob(
            self._options.kafka, self._topic, head.manifest_from, end, head.manifest
        )
        return self._remember(head.manifest, Manifest.decode(packed))

    def _remember(self, blob: Blob, manifest: Manifest) -> Manifest:
        _last.clear()
        _last[self._topic, blob.digest] = manifest
        return manifest

    def _send_ahead(
        self,
        coordinator: Coordinator,
        ledger: Ledger,
        snapshot: Snapshot,
        fresh: list[Blob],
        start: int,
    ) -> None:
        if ledger.loading_from is None or not self._is_mine(ledger.loading_topic):
            begin = records.encode_loading(start, self._topic)
            coordinator.append([(records.LOADING_KEY, begin)])
        for portion in _portions(_records(snapshot, fresh)):
            coordinator.append([], portion)
            crash_point("S6.while_sending_ahead")


def _gone(ledger: Ledger, before: Manifest, strays: set[bytes], kept: set[Blob]) -> list[bytes]:
    """The keys of what nobody names any more: the last snapshot's, and those of `strays`."""
    old = set(before.blobs().values())
    if ledger.snapshot is not None:
        old.add(ledger.snapshot.manifest)
    keys = strays.union(*(blob.chunk_keys() for blob in old))
    return sorted(keys.difference(*(blob.chunk_keys() for blob in kept)))


def _records(snapshot: Snapshot, fresh: list[Blob]) -> Iterator[Record]:
    for blob in fresh:
        yield from snapshot.chunks(blob)


def _portions(found: Iterator[Record]) -> Iterator[list[Record]]:
    portion: list[Record] = []
    size = 0
    for key, value in found:
        portion.append((key, value))
        size += len(value or b"")
        if size >= PORTION:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
