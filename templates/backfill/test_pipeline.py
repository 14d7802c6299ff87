"""Is each order billed once, whatever dies? Run `pytest`: it starts a Kafka of its own."""

from __future__ import annotations

from collections.abc import Callable

from conftest import Tested
from eo_kafka.testing import Job, assert_exactly_once
from generate import records
from model import expected
from rows import START

COUNT = 400


def test_stream_and_backfill_are_the_input_though_each_is_killed(
    tested: Tested, eo_job: Callable[..., Job]
) -> None:
    made = [*records(COUNT, START)]
    tested.write(made)
    stream, spark = tested.job, tested.job.spark
    stream.run(crash="S3.while_writing", how="kill")  # one task; Spark tries it again
    backfill = eo_job(
        "pipeline:backfill", source=None, sink="sink", config=stream.config, spark=spark
    )
    backfill.run(crash="S7.after_first_end_txn", until="crashed")  # it is decided, half is seen
    backfill.run()
    backfill.run()  # once more, when it is done
    assert_exactly_once(
        "source", "sink", expected=lambda _: expected(made, tested.settings)["sink"]
    )
