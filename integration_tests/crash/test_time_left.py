"""S6 asks whether a transaction has time left, and no wall clock answers. Without Spark, on a real
Kafka."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from eo_kafka.clients.kafka import control_plane
from eo_kafka.core.process.moment import Moment
from eo_kafka.errors import EnvironmentRefused, Undecided
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, preflight, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from harness import committed
from wrong_clock import set_ahead

ROW = Counter([b"row"])


@pytest.fixture
def options(broker, make_topic) -> SinkOptions:
    topic = make_topic("time-left")
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "topic": topic,
        "jobName": topic,
        "transactionTimeout": "1 minute",
    }
    return SinkOptions.parse(given, streaming=True)


def prepared(options: SinkOptions):
    plan = make_plan(options)
    rows = iter([pa.RecordBatch.from_pydict({"value": [b"row"]})])
    return two_phase.write(options, plan, two_phase.TaskIdentity("query", 0, 0, 0), rows)


def visible(options: SinkOptions) -> Counter[bytes]:
    return committed(options.kafka["bootstrap.servers"], options.topic or "")


def hours_ago(hours: float) -> Moment:
    now = Moment.now()
    return replace(now, seconds=now.seconds - 3600 * hours)


@pytest.mark.parametrize("minutes", [-60, 60])
def test_a_drivers_wrong_clock_refuses_no_batch(options, monkeypatch, minutes):
    report = prepared(options)
    set_ahead(monkeypatch, 60 * minutes)
    committer.commit(options, [report], 0)
    monkeypatch.undo()
    assert visible(options) == ROW


def test_a_long_shuffle_before_the_first_row_refuses_no_batch(options):
    report = replace(prepared(options), began=hours_ago(1))
    committer.commit(options, [report], 0)
    assert visible(options) == ROW


def test_what_another_machine_noted_is_not_compared(options):
    """Its clock may be behind by years: that proves nothing, and the task's own age decides."""
    began = Moment("another", Moment.now().seconds)
    report = replace(prepared(options), began=began, open_s=59.0)
    with pytest.raises(Undecided):
        committer.commit(options, [report], 0)
    committer.commit(options, [replace(report, open_s=1.0)], 0)
    assert visible(options) == ROW


def test_with_almost_no_time_left_nothing_is_decided_and_the_advice_helps(options):
    report = replace(prepared(options), began=hours_ago(1), open_s=55.0)
    with pytest.raises(Undecided, match=r"55 s of 60.*'transactionTimeout' \(60000 now\)") as told:
        committer.commit(options, [report], 0)
    assert told.value.retriable
    assert "started again" in str(told.value)
    committer.abort(options, [report])
    committer.commit(options, [prepared(options)], 0)
    assert visible(options) == ROW


def test_a_task_tells_how_long_its_transaction_was_open(options):
    def slow():
        yield pa.RecordBatch.from_pydict({"value": [b"row"]})
        time.sleep(0.5)

    plan = make_plan(options)
    report = two_phase.write(options, plan, two_phase.TaskIdentity("query", 0, 0, 0), slow())
    since_s1 = report.began.age_s()
    assert 0.5 <= report.open_s <= since_s1 < 30


def test_one_that_was_open_for_long_is_told(options, caplog):
    committer.commit(options, [replace(prepared(options), open_s=31.0)], 0)
    assert "was open for 31 s" in caplog.text


def test_the_longest_time_is_what_the_brokers_allow(own, monkeypatch):
    monkeypatch.setattr(preflight, "_allowed_ms", {})
    given = {"kafka.bootstrap.servers": own.bootstrap_servers, "topic": "out", "jobName": "longest"}
    given["transactionTimeout"] = "max"
    options = SinkOptions.parse(given, streaming=True)
    resolved = preflight.with_allowed_timeout(options)
    assert resolved.transaction_timeout_ms == 900_000  # Kafka's default
    asked = control_plane.shared(options.kafka)
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": own.bootstrap_servers})
    admin.create_topics([NewTopic("out", 1)])["out"].result(30)
    report = prepared(resolved)
    found = asked.describe_one(report.participant.identity.transactional_id)
    assert found.timeout_ms == 900_000
    committer.commit(options, [report], 0)  # Spark's fresh writer has not asked
    assert visible(options) == ROW
    monkeypatch.setattr(preflight, "settings_of", lambda *_, **__: {})
    monkeypatch.setattr(preflight, "_allowed_ms", {})
    with pytest.raises(EnvironmentRefused, match="DescribeConfigs"):
        preflight.with_allowed_timeout(options)
