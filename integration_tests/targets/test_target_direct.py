"""The direct lane into a target of one's own: a Delta table."""

from __future__ import annotations

import os
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lane_copies import LaneCopy, assert_done, die_twice, lane_copy
from target_places import DELTA, ROOT, delta_rows

KEYS = pa.schema([("key", pa.binary()), ("value", pa.binary())])
PLACES = ("S6.before_decision", "S7.before_target", "S7.in_target", "S8.after_done")


@pytest.fixture
def copy(broker, make_topic, tmp_path, monkeypatch) -> LaneCopy:
    examples = str(ROOT / "examples" / "targets")
    monkeypatch.setenv("PYTHONPATH", f"{examples}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    path = str(tmp_path / "table")
    DeltaTable.create(path, KEYS)
    into = {"target": DELTA, "target.path": path}
    return lane_copy(broker, make_topic, tmp_path, into)


@pytest.mark.full
@pytest.mark.parametrize("place", PLACES)
def test_a_task_that_dies_and_a_driver_that_dies_leave_each_row_once(
    copy, crash_points, tmp_path, place
) -> None:
    die_twice(copy, crash_points, "target.while_staging", place, tmp_path / "log")
    assert copy.run_in_own_driver(tmp_path / "log") == 0
    assert_done(copy, Counter(value for _, value in delta_rows(copy.into["target.path"])))
