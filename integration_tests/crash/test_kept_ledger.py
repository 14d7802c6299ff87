"""What a process has read of a ledger it does not read again, and never mistakes for another's."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eo_kafka.clients.kafka import control_plane
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.state.ledger import ledger_memory
from eo_kafka.state.ledger import topics as ledger_topic
from eo_kafka.state.ledger.coordinator import Coordinator
from harness import delete_topic, wait_until


@pytest.fixture
def options(broker, make_topic):
    topic = make_topic("kept-ledger")
    servers = broker.bootstrap_servers
    given = {"kafka.bootstrap.servers": servers, "topic": topic, "jobName": topic}
    return SinkOptions.parse(given, streaming=True)


@pytest.fixture
def starts(monkeypatch):
    """Where each read of a ledger's decisions begins, in order."""
    found, read = [], ledger_memory.read_records

    def noted(settings, topic, partition, start, end):
        found.append(start)
        return read(settings, topic, partition, start, end)

    monkeypatch.setattr(ledger_memory, "read_records", noted)
    return found


def run(options, batch):
    """A batch of one row."""
    plan = make_plan(options)
    rows = iter([pa.RecordBatch.from_pydict({"value": [b"row"]})])
    task = two_phase.TaskIdentity(options.job, batch, 0, batch)
    committer.commit(options, [two_phase.write(options, plan, task, rows)], batch)
    return plan


def test_a_batch_reads_what_is_new_since_the_last_one(options, starts):
    plans = [run(options, batch) for batch in range(4)]

    assert starts == sorted(starts), "something was read twice"
    assert len(starts) <= 2 * len(plans), "once in S1, once in S6"
    assert [sorted(plan.decisions) for plan in plans] == [[], [0], [0, 1], [0, 1, 2]]
    fresh = Coordinator(options, control_plane.shared(options.kafka))
    assert fresh.read(fenced=False).decisions.keys() == {("main", batch) for batch in range(4)}
    assert starts[-1] == 0


def test_another_topic_of_the_same_name_is_read_from_its_beginning(options, starts):
    run(options, 0)
    topic = options.job_and_ledger[1]
    control = control_plane.shared(options.kafka)
    (old,) = control.topic_ids([topic]).values()
    delete_topic(options.kafka["bootstrap.servers"], topic)
    wait_until(lambda: not control.topic_ids([topic]), "the topic is gone")
    ledger_topic._checked.clear()
    ledger_topic.ensure(options)
    wait_until(lambda: control.topic_ids([topic]), "the topic is there again")
    assert control.topic_ids([topic])[topic] != old
    starts.clear()

    plan = make_plan(options, by_hand=True)
    assert (plan.generation, plan.decisions) == (1, {})
    again = make_plan(options)
    assert (again.generation, again.decisions) == (2, {})
    assert starts == [0]  # of the first plan there was nothing to read


def test_what_was_read_long_ago_is_read_again(options, starts, monkeypatch):
    run(options, 0)
    starts.clear()
    monkeypatch.setattr(ledger_memory, "MEMORY_S", 0.0)

    assert make_plan(options).decisions.keys() == {0}
    assert starts == [0]
