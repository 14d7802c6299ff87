"""Is the output what model.py says, whatever dies? Run `pytest`: it starts a Kafka of its own."""

from __future__ import annotations

from conftest import Tested
from eo_kafka.testing import assert_exactly_once
from generate import records
from model import expected
from rows import START

COUNT = 400


def test_the_output_is_right_though_driver_disk_and_task_are_lost(tested: Tested) -> None:
    made = [*records(COUNT, START)]
    tested.write(made[: COUNT // 2])
    tested.job.run(crash="S7.after_first_end_txn", until="crashed")  # it is decided, half is seen
    tested.job.lose_checkpoint()
    tested.write(made[COUNT // 2 :])
    tested.job.run(crash="S3.while_writing", how="kill")  # one task; Spark tries it again
    for topic, rows in expected(made, tested.settings).items():
        assert_exactly_once("source", topic, expected=lambda _, rows=rows: rows)  # type: ignore[misc]
