"""The memory of a share group's messages, read back after it was written for days."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from eo_kafka.errors import EnvironmentRefused
from eo_kafka.sources.queues.kept_offsets import KeptOffsets
from eo_kafka.sources.queues.message import Headers
from eo_kafka.sources.queues.offset_memory import KEPT, OffsetMemory

Found = Iterator[tuple[int, bytes, bytes | None, Headers]]


def recalled(records: list[tuple[str, object]]) -> OffsetMemory:
    memory = OffsetMemory("kept", "inbox")
    packed = [(key.encode(), json.dumps(value).encode()) for key, value in records]

    def read(name: str, begin: int, end: int) -> Found:
        assert begin == 0
        found = packed if name == "kept" else [(b"", b"")]
        return ((offset, *one, []) for offset, one in enumerate(found))

    memory.recall({"kept": len(packed), "inbox": 5}, read)
    return memory


def of(number: int, *edges: int) -> tuple[str, object]:
    return json.dumps(["id", number]), {KEPT: KeptOffsets(0, edges).packed()}


def test_only_the_newest_record_of_a_partition_is_decoded() -> None:
    """Each has an edge for each gap: a marker of each transaction, in the queue's topic."""
    key, value = of(0, *range(18_000))
    records = [(key, value)] * 2000 + [of(1, 0, 3), of(0, *range(18_002))]
    packed = {id(one): json.dumps(one).encode() for _, one in records[-3:]}
    memory = OffsetMemory("kept", "inbox")

    def read(name: str, *_: int) -> Found:
        found = records if name == "kept" else []
        return ((n, k.encode(), packed[id(v)], []) for n, (k, v) in enumerate(found))

    started = time.process_time()
    memory.recall({"kept": len(records), "inbox": 5}, read)
    assert time.process_time() - started < 2, "8 s, when each was decoded"
    assert (memory.end("id", 0), memory.end("id", 1)) == (18_001, 3)


def test_the_newest_must_be_what_this_version_writes() -> None:
    old, new = of(0, 0, 5), (json.dumps(["id", 0]), {"kept2": []})
    with pytest.raises(EnvironmentRefused, match="Record 2 of topic 'kept' was not written by"):
        recalled([of(1, 0, 2), old, new])
    assert recalled([new, old]).end("id", 0) == 5
