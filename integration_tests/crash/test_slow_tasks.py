"""A task that takes longer than its transaction may be open: whatever it meets first, it names the
option. Without Spark, on a real Kafka."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product

import pyarrow as pa
import pytest

from eo_kafka.core import librdkafka
from eo_kafka.errors import EoKafkaError, Fenced, WriteFailed
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import batch, one_phase, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.transactions import task_transaction
from eo_kafka.testing.processes import wait_until
from harness import committed, control_plane

ROW = pa.RecordBatch.from_pydict({"value": [b"row"]})
MANY = pa.RecordBatch.from_pydict({"value": [b"row"] * 200_000})
TOLD = re.compile(
    r"artition 0: the task took \d+ s from its first row on, of 2 s that option "
    r"'transactionTimeout' allows.*Nothing of it is visible.*maxOffsetsPerTrigger.*same options"
)
THEN = {"the end": [], "a row": [ROW], "many rows": [MANY]}
BOTH = pytest.mark.parametrize("way", ["two-phase", "idempotent"])


@pytest.fixture
def path(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(librdkafka, "available", lambda: "a test says so")


@pytest.fixture
def options(broker, make_topic) -> Callable[[str], SinkOptions]:
    def of(way: str) -> SinkOptions:
        topic = make_topic("slow")
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": topic,
            "transactionalIdPrefix": topic,
            "transactionTimeout": "2 s",
            **({} if way == "save" else {"jobName": topic, "commit": way}),
        }
        return SinkOptions.parse(given, streaming=way != "save")

    return of


def wait_until_aborted(options: SinkOptions) -> None:
    """For its age, by Kafka."""
    with control_plane(options.kafka["bootstrap.servers"]) as control:

        def is_open() -> bool:
            return bool(control.open_transactions(f"{options.prefix}.*", lambda _: True))

        wait_until(is_open, "Kafka knows the transaction")
        wait_until(lambda: not is_open(), "Kafka aborts what timed out", 60)


def run(way: str, options: SinkOptions, rows: Iterator[pa.RecordBatch]) -> object:
    if way == "save":
        return batch.write(options, batch.new_batch(options), 0, 0, rows)
    write = one_phase.write if options.one_phase else two_phase.write
    return write(options, make_plan(options), two_phase.TaskIdentity("query", 0, 0, 0), rows)


def assert_names_the_timeout(way: str, options: SinkOptions, rows, caplog) -> None:
    with pytest.raises(WriteFailed, match=TOLD) as told:
        run(way, options, rows)
    assert "newer" not in f"{told.value}{caplog.text}", "nobody newer is there"
    assert not committed(options.kafka["bootstrap.servers"], options.topic)


# Each leaves a producer with its pipes, and py4j needs numbers of files below 1024
IN_CI = {
    *(("fast", "two-phase", "the end"), ("fast", "idempotent", "many rows")),
    *(("plain", "two-phase", "many rows"), ("plain", "save", "a row")),
}
CASES = [
    pytest.param(*case, id="-".join(case), marks=[] if case in IN_CI else pytest.mark.full)
    for case in product(("fast", "plain"), ("two-phase", "idempotent", "save"), THEN)
]


@pytest.mark.parametrize(("path", "way", "then"), CASES, indirect=["path"])
def test_a_task_that_is_slow_between_rows_names_the_timeout(path, options, caplog, way, then):
    given = options(way)

    def rows():
        yield ROW
        wait_until_aborted(given)
        yield from THEN[then]

    assert_names_the_timeout(way, given, rows(), caplog)


@pytest.mark.parametrize(
    ("way", "module", "point"),
    [
        pytest.param("two-phase", task_transaction, "S5.after_flush", id="prepared"),
        pytest.param("idempotent", one_phase, "S5.prepared", id="committed"),
    ],
)
def test_a_task_that_is_slow_before_it_is(options, caplog, monkeypatch, way, module, point):
    given = options(way)

    def slow_at(name: str) -> None:
        if name == point:
            wait_until_aborted(given)

    monkeypatch.setattr(module, "crash_point", slow_at)
    assert_names_the_timeout(way, given, iter([ROW]), caplog)


@pytest.mark.parametrize("then", [[], [MANY]], ids=["the end", "many rows"])
@BOTH
def test_one_that_a_newer_driver_has_ended_meanwhile_is_fenced(options, way, then):
    given = options(way)

    def rows():
        yield ROW
        wait_until_aborted(given)
        make_plan(given)
        yield from then

    with pytest.raises(Fenced, match="another driver of job"):
        run(way, given, rows())


@BOTH
def test_one_that_was_ended_in_time_does_not_blame_the_time(options, way):
    given = options(way)
    patient = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": given.kafka["bootstrap.servers"],
            "topic": given.topic,
            "transactionalIdPrefix": given.prefix,
            "jobName": given.job,
            "commit": way,
        },
        streaming=True,
    )

    def rows():
        yield ROW
        with control_plane(given.kafka["bootstrap.servers"]) as control:
            wait_until(lambda: ended_by_hand(control, given.prefix), "it is ended")

    with pytest.raises(WriteFailed) as told:
        run(way, patient, rows())
    assert "transactionTimeout" not in str(told.value)


def ended_by_hand(control, prefix: str) -> bool:
    found = control.open_transactions(f"{prefix}.*", lambda _: True)
    with suppress(EoKafkaError):
        control.end_all([one.identity for one in found], False, control.end_txn_version(), 10.0)
    return bool(found)
