"""A large snapshot of which an earlier try sent a part: that is not sent again, and is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eo_kafka.sinks.protocol import snapshots
from eo_kafka.state.ledger.appender import Record
from eo_kafka.state.ledger.blob_names import Blob, digest_of
from eo_kafka.state.ledger.coordinator import Write
from eo_kafka.state.ledger.ledger import Ledger
from eo_kafka.state.snapshots import blobs
from eo_kafka.state.snapshots.checkpoint import open_checkpoint
from eo_kafka.state.snapshots.offset_log import parse

TOPIC = "__eo_kafka.j.state"
LARGE, FILES = 3 << 20, 3


class Tries:
    """Snapshots of batch 5, of which none is decided, into a state topic that is a list."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.log = folder, list[Record]()
        self.ledger, self.sent, self.counted_on = Ledger(), 0, list[int]()
        self.put("metadata", b'{"id":"q"}')
        for batch in (4, 5):
            planned = b'v1\n{"batchTimestampMs":1}\n{"in":{"0":%d}}' % batch
            self.put(f"offsets/{batch}", planned)
        self.put("commits/4", b'v1\n{"nextBatchWatermarkMs":0}')
        for store in range(FILES):
            self.put(f"state/0/{store}/5.snapshot", os.urandom(LARGE))

        def read(_settings: object, _topic: str, _partition: int, start: int, end: int, _: int):
            return ((n, *self.log[n]) for n in range(start, end))

        monkeypatch.setattr(blobs, "read_records", read)

    def put(self, path: str, content: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def append(self, records: list[Record], state: list[Record] | tuple[()] = ()) -> None:
        for key, value in records:
            self.ledger.apply(key, value)
        self.log.extend(state)
        self.sent += sum(len(value or b"") for _, value in state)

    def count_on_state(self, end: int) -> None:
        self.counted_on.append(end)

    def take(self) -> Write:
        self.sent = 0
        options: Any = SimpleNamespace(
            state_topic=TOPIC,
            job_and_ledger=("j", "__eo_kafka.j.ledger"),
            kafka={},
            snapshot_interval_ms=0,
        )
        control: Any = SimpleNamespace(look=lambda ends: SimpleNamespace(ends=[0, len(self.log)]))
        report: Any = SimpleNamespace(batch=5, generation=7, query_id="q", run="r")
        planned = parse((self.folder / "offsets/5").read_text())
        one = snapshots.Snapshots(
            options, control, open_checkpoint(str(self.folder)), report, planned
        )
        snapshots._last.clear()
        coordinator: Any = self
        return one.take(coordinator, self.ledger)

    def decide(self, write: Write) -> None:
        """And look whether all that its manifest names is there, once it is compacted."""
        self.append(list(write.records), list(write.state))
        head = self.ledger.snapshot
        assert head is not None
        assert self.ledger.loading_from is None
        left = dict(self.log)
        named = [head.manifest, *self.manifest(head.manifest, left).blobs().values()]
        for blob in named:
            content = b"".join(left[key] or b"" for key in blob.chunk_keys())
            assert digest_of(content) == blob.digest
        there = {key for key, value in left.items() if value is not None}
        assert there == {key for blob in named for key in blob.chunk_keys()}

    def manifest(self, blob: Blob, left: dict[bytes, bytes | None]) -> snapshots.Manifest:
        packed = b"".join(left[key] or b"" for key in blob.chunk_keys())
        return snapshots.Manifest.decode(packed)


@pytest.fixture
def tries(tmp_path, monkeypatch) -> Tries:
    return Tries(tmp_path, monkeypatch)


def test_the_next_try_sends_what_is_left(tries) -> None:
    tries.take()
    assert tries.sent > FILES * LARGE
    assert tries.counted_on == []
    for _ in range(2):  # the tasks' transactions were over: nothing was decided
        write = tries.take()
        assert tries.sent == 0
    assert sum(len(value or b"") for _, value in write.state) < 10_000, "the manifest"
    assert tries.counted_on == [len(tries.log)] * 2
    tries.decide(write)


def interrupted(log: list[Record]) -> None:
    """In the middle of the second of three files."""
    del log[len(log) // 2 :]


def taken_away(log: list[Record]) -> None:
    """By a decision whose records stand behind the first ones."""
    log.append((next(key for key, _ in log if key.endswith(b"/3")), None))


def changed(log: list[Record]) -> None:
    """A file that another content was sent of, to its end, than what it was digested of."""
    at = next(n for n, (key, _) in enumerate(log) if key.endswith(b"/5"))
    log[at] = log[at][0], bytes(len(log[at][1] or b""))


def sent_again_in_part(log: list[Record]) -> None:
    """By an older eo-kafka, which died meanwhile."""
    at = next(n for n, (key, _) in enumerate(log) if key.endswith(b"/1"))
    log += log[at - 1 : at + 1]


@pytest.mark.parametrize("harm", [interrupted, taken_away, changed, sent_again_in_part])
def test_what_is_not_whole_is_sent_again(tries, harm: Callable[[list[Record]], None]) -> None:
    tries.take()
    harm(tries.log)
    write = tries.take()
    sent = tries.sent + sum(len(value or b"") for _, value in write.state)
    assert 1 <= sent // LARGE < FILES
    assert sent % LARGE < 10_000, "whole files, and the manifest"
    tries.decide(write)


def test_what_is_there_of_a_snapshot_before_is_not_counted_on(tries) -> None:
    """Only what stands behind `blobsFrom`, in transactions of this coordinator: where records of a
    snapshot are lost, Kafka may be deleting the others, too."""
    tries.take()
    tries.decide(tries.take())
    tries.log[:] = [one for one in tries.log if one[0].endswith((b"/0", b"/1", b"/4", b"/5"))]
    head = tries.ledger.snapshot
    tries.ledger.snapshot = type(head)(**{**vars(head), "topic_from": 1})
    write = tries.take()
    assert tries.sent > FILES * LARGE
    assert tries.take().state == write.state
    assert tries.sent == 0
    tries.decide(write)
