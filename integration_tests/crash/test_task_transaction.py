"""A task's transactional id is taken while its first rows are being read."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pyarrow as pa
import pytest

from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.clients.kafka.transactional_producer import transaction_failure
from eo_kafka.core.transaction import Described, TransactionState
from eo_kafka.errors import EnvironmentRefused, Fenced, SinkError, WriteFailed
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.transactions.task_transaction import TaskTransaction
from harness import committed, wait_until

ROWS = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"v"]})


@pytest.fixture(autouse=True)
def last_task_had_rows(monkeypatch):
    monkeypatch.setattr(TaskTransaction, "_had_rows", True)


@pytest.fixture
def given(broker, make_topic) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "topic": make_topic("ahead"),
        "jobName": f"ahead-{uuid.uuid4().hex[:8]}",
    }


@pytest.fixture
def options(given) -> SinkOptions:
    return SinkOptions.parse(given, streaming=True)


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def described(broker, name) -> Iterator[Callable[[], Described]]:
    with closing(ControlPlane({"bootstrap.servers": broker.bootstrap_servers})) as control:
        yield lambda: control.describe_one(name)


def is_opening() -> bool:
    return any(thread.name.startswith("eo-kafka-open") for thread in threading.enumerate())


def test_the_id_is_taken_before_the_first_row_and_once(broker, options, name, described):
    transaction = TaskTransaction(options, [name], "a task")
    transaction.open_ahead()
    wait_until(lambda: described().epoch >= 0, "the id is taken")
    ahead = described().identity
    transaction.send(ROWS)
    assert transaction.identity == ahead
    assert transaction.prepare() == ahead
    transaction.commit()
    assert committed(broker.bootstrap_servers, options.topic) == {b"v": 1}


def test_a_task_without_rows_leaves_no_transaction_and_nothing_that_could_begin_one(
    options, name, described
):
    asked = threading.Event()
    transaction = TaskTransaction(options, [name], "a task", before_open=lambda _: asked.set())
    transaction.open_ahead()
    assert asked.wait(30)
    transaction.abort()
    assert not is_opening()
    assert described().state is TransactionState.EMPTY
    TaskTransaction(options, [uuid.uuid4().hex], "the next one").open_ahead()
    assert not is_opening(), "most tasks of this process have no rows"


def test_what_forbids_the_id_is_raised_at_the_first_row(options, name, described):
    def replaced(_: str) -> None:
        raise Fenced("another driver")

    transaction = TaskTransaction(options, [name], "a task", before_open=replaced)
    transaction.open_ahead()
    with pytest.raises(Fenced, match="another driver"):
        transaction.send(ROWS)
    transaction.abort()
    assert described().state is TransactionState.MISSING


def test_what_kafka_refuses_is_raised_at_the_first_row(given, name):
    too_long = {**given, "kafka.transaction.timeout.ms": "1000000000"}
    options = SinkOptions.parse(too_long, streaming=True)
    transaction = TaskTransaction(options, [name], "a task")
    transaction.open_ahead()
    with pytest.raises(EnvironmentRefused, match=r"max\.timeout\.ms"):
        transaction.send(ROWS)
    transaction.abort()


def test_a_token_that_is_refused_is_no_prepared_task(broker, make_topic, options, name):
    """The rows' transaction would be committed, and taken for lost, and the rows written again."""
    limited = make_topic("limited", config={"max.message.bytes": "300"})
    transaction = TaskTransaction(options, [name], "a task")
    transaction.send(ROWS)
    transaction.produce(limited, b"token", b"it says more than the topic takes" * 20, 0)
    with pytest.raises(WriteFailed, match="did not take the record of the rows: .*too large"):
        transaction.prepare((limited, 0))
    transaction.abort()
    assert committed(broker.bootstrap_servers, options.topic) == {}


def failed_by(transaction: TaskTransaction, too_large: pa.RecordBatch) -> None:
    """Send it, and let the broker's answer come before the task does anything else."""
    transaction.send(too_large)
    wait_until(lambda: transaction_failure(transaction._producer), "the transaction has failed")


@pytest.mark.parametrize("then", ["more rows", "the token"])
def test_what_is_written_after_a_refused_row_names_what_was_refused(
    broker, make_topic, given, name, then
):
    limited = make_topic("limited", config={"max.message.bytes": "20000"})
    options = SinkOptions.parse({**given, "topic": limited}, streaming=True)
    transaction = TaskTransaction(options, [name], "a task")
    failed_by(transaction, pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"v" * 40_000]}))
    with pytest.raises(WriteFailed, match="a task: .*Message size too large"):
        if then == "more rows":
            transaction.send(ROWS)
        transaction.produce(given["topic"], b"token", b"of the rows", 0)
    transaction.abort()
    assert committed(broker.bootstrap_servers, limited) == {}


@pytest.mark.parametrize("then", ["more rows", "the end"])
def test_a_row_without_a_key_for_a_compacted_topic_is_no_matter_of_another_start(
    make_topic, given, name, then
):
    compacted = make_topic("compacted", config={"cleanup.policy": "compact"})
    options = SinkOptions.parse({**given, "topic": compacted}, streaming=True)
    transaction = TaskTransaction(options, [name], "a task")
    failed_by(transaction, pa.RecordBatch.from_pydict({"value": [b"v"]}))
    with pytest.raises(SinkError, match="a task: .* whose key is null: give .*visible") as told:
        if then == "more rows":
            transaction.send(ROWS)
        transaction.prepare()
    assert not told.value.retriable
    transaction.abort()


def test_the_token_waits_for_room_in_a_full_queue(broker, make_topic, given, name):
    full = {"kafka.queue.buffering.max.messages": "100", "kafka.linger.ms": "2000"}
    options = SinkOptions.parse({**given, **full}, streaming=True)
    transaction = TaskTransaction(options, [name], "a task")
    transaction.send(pa.RecordBatch.from_pydict({"key": [b"k"] * 100, "value": [b"v"] * 100}))
    transaction.produce(options.topic, b"token", b"of the rows", 0)
    transaction.prepare()
    transaction.commit()
    found = committed(broker.bootstrap_servers, options.topic)
    assert found == {b"v": 100, b"of the rows": 1}
