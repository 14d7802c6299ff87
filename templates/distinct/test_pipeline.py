"""Is each reading there once, whatever dies? Run `pytest`: it starts a Kafka of its own."""

from __future__ import annotations

import pytest
from pyspark.sql import GroupedData

from conftest import Tested
from eo_kafka.testing import assert_exactly_once
from generate import records
from model import expected
from rows import START

COUNT = 400
BY_THE_CLOCK = pytest.mark.skipif(
    not hasattr(GroupedData, "transformWithState"), reason="PySpark 4.1 is the first that can"
)


@pytest.mark.parametrize("ttl_seconds", ["0", pytest.param("3600", marks=BY_THE_CLOCK)])
def test_each_reading_is_there_once_though_driver_disk_and_task_are_lost(
    tested: Tested, ttl_seconds: str
) -> None:
    tested.job.config["ttl_seconds"] = ttl_seconds
    made = [*records(COUNT, START)]
    tested.write(made[: COUNT // 2])
    tested.job.run(crash="S7.after_first_end_txn", until="crashed")  # it is decided, half is seen
    tested.job.lose_checkpoint()
    tested.write(made[COUNT // 2 :])
    tested.job.run(crash="S3.while_writing", how="kill")  # one task; Spark tries it again
    assert_exactly_once(
        "source", "sink", expected=lambda _: expected(made, tested.settings)["sink"]
    )


@BY_THE_CLOCK
def test_a_reading_that_is_forgotten_counts_again(tested: Tested) -> None:
    tested.job.config["ttl_seconds"] = "1"
    made, wanted = [*records(COUNT // 4, START)], []
    for _ in range(2):  # more than a second passes while a driver starts
        tested.write(made)
        tested.job.run()
        wanted.extend(expected(made, tested.settings)["sink"])
        assert_exactly_once("source", "sink", expected=lambda _: wanted)
