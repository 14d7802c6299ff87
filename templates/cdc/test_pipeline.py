"""Is the map what model.py says, whatever dies? Run `pytest`: it starts a Kafka of its own."""

from __future__ import annotations

import json

from conftest import Tested
from eo_kafka.testing import assert_windows
from generate import records
from model import expected
from rows import START

COUNT = 400


def test_the_map_is_the_table_though_driver_disk_and_task_are_lost(tested: Tested) -> None:
    made = [*records(COUNT, START)]
    tested.write(made[: COUNT // 2])
    tested.job.run(crash="S7.after_first_end_txn", until="crashed")  # it is decided, half is seen
    tested.job.lose_checkpoint()
    tested.write(made[COUNT // 2 :])
    tested.job.run(crash="S3.while_writing", how="kill")  # one task; Spark tries it again
    rows = {
        key: json.dumps(row, separators=(",", ":")) if row else None
        for key, row in expected(made, tested.settings)["sink"]
    }
    assert_windows("source", "sink", model=lambda _: rows)
