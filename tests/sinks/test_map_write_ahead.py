"""What is written ahead of a chunk's commit, and what it says of an entry that is found."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.errors import LedgerError
from eo_kafka.sinks.maps.staging import ChunkKey, RecordKey
from eo_kafka.sinks.maps.write_ahead import Change, State, WriteAhead, WriteAheads

VALUES = st.none() | st.binary(min_size=4)
CHANGES = st.builds(Change.of, st.binary(), VALUES, VALUES)


@given(st.lists(CHANGES), st.booleans())
def test_a_record_comes_back_as_it_was(changes, merged) -> None:
    ahead = WriteAhead(7, 3, merged, tuple(changes), "d")
    assert WriteAhead.decode(ahead.encode()) == ahead


@given(VALUES, VALUES, VALUES)
def test_an_entry_is_what_it_was_or_what_it_was_to_become_or_another_s(before, after, now) -> None:
    def of(value: bytes | None) -> bytes | None:
        return None if value is None else value[4:]

    found = Change.of(b"key", before, after).state(now)
    if of(now) == of(after):
        assert found is State.MADE
    else:
        assert found is (State.NOT_MADE if of(now) == of(before) else State.OVERTAKEN)


def test_a_large_value_that_was_there_is_not_kept() -> None:
    change = Change.of(b"key", bytes(1 << 20), b"\0\0\0\0new")
    assert len(WriteAhead(1, 0, False, (change,)).encode()) < 2000


def test_a_record_that_is_not_ours_is_told() -> None:
    for strange in (b"", b"\0" * 100, b"no arrow at all"):
        staging = SimpleNamespace(name="staged", record=lambda key, found=strange: found)
        with pytest.raises(LedgerError, match="Entry 'main/4/2' of map 'staged' is not what"):
            WriteAheads(staging, "main").read(2, 4)


def test_records_and_chunks_are_told_apart() -> None:
    record, chunk = RecordKey("main", 4, 2), ChunkKey("main", 4, 0, 0, 1, 9, 0)
    assert RecordKey.decode(record.encode()) == record
    assert ChunkKey.decode(chunk.encode()) == chunk
    assert RecordKey.decode(chunk.encode()) is ChunkKey.decode(record.encode()) is None
