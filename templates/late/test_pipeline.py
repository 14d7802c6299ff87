"""Is each ticket counted once, or late, whatever dies? Run `pytest`: it starts its own Kafka."""

from __future__ import annotations

import json

from conftest import Tested
from eo_kafka.testing import assert_exactly_once, assert_windows
from generate import records
from rows import START
from wanted import wanted

COUNT = 400


def test_counted_and_late_tickets_are_the_input_though_driver_disk_and_task_are_lost(
    tested: Tested,
) -> None:
    made = [*records(COUNT, START)]
    tested.write(made[: COUNT // 2])
    tested.job.run(crash="S7.after_first_end_txn", until="crashed")  # it is decided, half is seen
    tested.job.lose_checkpoint()
    tested.write(made[COUNT // 2 :])
    tested.job.run(crash="S3.while_writing", how="kill")  # one task; Spark tries it again
    late, newest = tested.rows("late"), dict(tested.rows("sink"))
    assert len(late) + sum(result["tickets"] for result in newest.values()) == COUNT
    rows = wanted(made, tested.settings, {"late": late})
    results = {key: json.dumps(row, separators=(",", ":")) for key, row in rows["sink"]}
    assert_exactly_once("source", "late", expected=lambda _: rows["late"])
    assert_windows("source", "sink", model=lambda _: results)
