"""Is the output what model.py says, whatever dies? Run `pytest`: it starts a Kafka of its own."""

from __future__ import annotations

from conftest import Tested
from eo_kafka.testing import assert_exactly_once
from generate import customers, records
from model import expected
from rows import START

COUNT = 200


def test_a_batch_keeps_its_customers_though_driver_and_task_are_killed(tested: Tested) -> None:
    made = [*records(COUNT, START)]
    first, second = made[: COUNT // 2], [*customers("gold"), *made[COUNT // 2 :]]
    tested.write(first)
    tested.job.run(crash="S6.before_decision", until="crashed")  # it is written, and nobody sees it
    tested.write(second)  # when that batch runs again, its customers are bronze still
    tested.job.run(crash="S3.while_writing", how="kill")  # one task; Spark tries it again
    rows = expected([*first, *second], tested.settings)["sink"]
    assert {row["tier"] for _, row in rows if "tier" in row} == {"bronze", "gold"}
    assert_exactly_once("source", "sink", expected=lambda _: rows)
