"""Does the job bill each order once, whatever dies? Run `pytest` in this folder."""

from __future__ import annotations

import itertools

import pytest

from eo_kafka.testing import (
    CRASH_POINTS,
    assert_deterministic,
    assert_exactly_once,
    assert_order,
)

JOB = "my_app.pipeline:build"
QUICK = {"transaction_timeout_ms": "10000"}
numbers = itertools.count()


def orders(count: int = 50) -> list[dict[str, object]]:
    """New ones."""
    return [{"id": f"order-{n}", "amount": n % 90} for n in itertools.islice(numbers, count)]


def bills(orders):
    """What the orders should have become."""
    return [{"id": o.json["id"], "total": o.json["amount"] * 119 // 100} for o in orders]


def test_an_order_is_billed_once_though_the_job_dies_in_the_middle_of_its_commit(eo_broker, eo_job):
    topic = eo_broker.topic("orders", partitions=4).write(orders())
    job = eo_job(JOB, source="orders", sink="billed")
    job.run(crash="S6.after_decision", until="crashed")
    topic.write(orders())
    job.run(crash="S3.while_writing", how="kill")  # one task's process; Spark tries it again
    assert_exactly_once("orders", "billed", expected=bills)
    assert_order("orders", "billed", key="json:id")


@pytest.mark.slow
def test_orders_survive_everything(eo_broker, eo_job):
    topic = eo_broker.topic("orders", partitions=4)
    job = eo_job(JOB, source="orders", sink="billed")
    for point in CRASH_POINTS:
        topic.write(orders())
        job.run(crash=point, until="drained")
    assert_exactly_once("orders", "billed", key="json:id")


@pytest.mark.slow
def test_an_outage_is_longer_than_the_transactions_live(eo_broker, eo_job):
    eo_broker.topic("orders", partitions=4).write(orders())
    job = eo_job(JOB, source="orders", sink="billed", config=QUICK)
    job.run(crash="S7.after_first_end_txn", until="crashed")
    job.expire_transactions()
    job.run()
    assert_exactly_once("orders", "billed", key="json:id")
    assert_deterministic(job)


@pytest.mark.slow
@pytest.mark.eo_kafka(own=True)
def test_orders_survive_the_nemesis(eo_broker, eo_job):
    eo_broker.topic("orders", partitions=4)
    job = eo_job(JOB, source="orders", sink="billed")
    job.nemesis(seed=7, minutes=1, feed=lambda step: orders())
    assert_exactly_once("orders", "billed", key="json:id")
