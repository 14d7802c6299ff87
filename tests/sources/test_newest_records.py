"""The newest record of each key, compared with a dictionary."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eo_kafka.sources.maps import newest_records
from eo_kafka.sources.maps.newest_records import NewestRecords

KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"\xff\x00", None])
RECORDS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=3))), max_size=40)


def batch(records, first: int) -> pa.RecordBatch:
    keys, values = (pa.array(column, pa.binary()) for column in zip(*records, strict=True))
    offsets = pa.array(range(first, first + len(records)), pa.int64())
    return pa.record_batch([keys, values, offsets], names=["key", "value", "offset"])


def newest_of(records, step: int) -> dict:
    newest = NewestRecords()
    for first in range(0, len(records), step):
        newest.add(batch(records[first : first + step], first))
    rows = [row for found in newest.batches(3) for row in found.to_pylist()]
    assert all(row["partition"] == 3 for row in rows)
    assert len({row["key"] for row in rows}) == len(rows), "a key came twice"
    return {row["key"]: (row["value"], row["offset"]) for row in rows}


@settings(deadline=None)
@given(RECORDS, st.integers(1, 7), st.integers(1, 10))
def test_it_is_what_a_dictionary_makes_of_the_records(records, step, least) -> None:
    expected: dict = {}
    for offset, (key, value) in enumerate(records):
        expected.pop(key, None)
        if value is not None:
            expected[key] = (value, offset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newest_records, "_LEAST_ROWS", least)
        assert newest_of(records, step) == expected


def test_large_values_come_in_batches_of_bounded_size(monkeypatch) -> None:
    monkeypatch.setattr(newest_records, "_BATCH_BYTES", 1000)
    newest = NewestRecords()
    newest.add(batch([(b"%d" % number, bytes(300)) for number in range(20)], 0))
    found = list(newest.batches(0))
    assert sum(one.num_rows for one in found) == 20
    assert max(one.num_rows for one in found) <= 3
