"""A query that waits for input reports of its next batch: nobody takes that for one that ended."""

from __future__ import annotations

import json
from threading import Event
from types import SimpleNamespace

import pytest

from eo_kafka.connectors.monitoring import query_progress
from eo_kafka.connectors.monitoring.query_progress import progress
from eo_kafka.connectors.spark_reports import ended_batch
from eo_kafka.connectors.state_view import StateView
from eo_kafka.sinks.protocol import batch_figures
from eo_kafka.tools.run import driver_program
from eo_kafka.tools.run.status import Status

ACTIVE = {"message": "Processing new data", "isDataAvailable": True, "isTriggerActive": True}
NEXT_TRIGGER = {**ACTIVE, "message": "Waiting for next trigger", "isTriggerActive": False}
NO_DATA = {
    "message": "Waiting for data to arrive",
    "isDataAvailable": False,
    "isTriggerActive": False,
}
STARTING = {**NO_DATA, "message": "Initializing sources"}


def report(batch: int, *, idle: bool = False) -> SimpleNamespace:
    """As Spark 4.3 makes it after batch `batch`, and ten seconds later, when no other came."""
    steps = {"latestOffset": 1, "triggerExecution": 2, **({} if idle else {"addBatch": 9})}
    spark = {"id": "i1", "runId": "r", "name": None, "timestamp": "t", "sources": []}
    return SimpleNamespace(**spark, batchId=batch + idle, durationMs=steps)


def test_an_idle_report_is_of_the_batch_that_comes_next() -> None:
    assert [ended_batch(one) for one in (None, report(4), report(4, idle=True))] == [None, 4, 4]
    assert ended_batch(report(-1, idle=True)) is None


def test_progress_keeps_the_sinks_of_the_batch_that_has_ended(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(query_progress, "_driver_directory", lambda: str(tmp_path))
    figures = {"jobName": "shout", "batchId": 4, "durationMs": {}, "openTransactions": 2}
    path = tmp_path / f"{batch_figures._of_query('i1')}-x"
    path.write_text(json.dumps(figures) + "\n")
    for one in (report(4), report(4, idle=True)):
        found = progress(one)
        assert found is not None
        assert (found.batchId, [sink.jobName for sink in found.sinks]) == (4, ["shout"])
    assert progress(report(-1, idle=True)) is None


class Query:
    """Waits after batch 4. From 100 s on, two batches of 400 s, one behind the other."""

    isActive = True

    def __init__(self, clock: list[float]) -> None:
        self._clock = clock

    @property
    def lastProgress(self) -> SimpleNamespace:
        now = self._clock[0]
        if now < 60:
            return report(4)
        if now < 500:
            return report(4, idle=True)
        return report(5 if now < 900 else 6)

    @property
    def status(self) -> dict[str, object]:
        return ACTIVE if self._clock[0] >= 100 else NO_DATA


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(
        driver_program, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    )
    return now


def test_no_driver_is_stuck_whose_batches_end(clock) -> None:
    query, status = Query(clock), Status(query="q")
    for second in range(1300):
        clock[0] = status.told_s = float(second)
        driver_program._look(query, status)
        assert status.stuck_for_s(second) <= 400, second
    assert status.batch == 6


def test_sigterm_waits_for_the_batch_that_runs_and_not_for_the_next(clock) -> None:
    clock[0] = 450
    driver_program._end_batch(Query(clock), [1], 3600.0)
    assert 500 <= clock[0] < 501


def test_a_view_is_refreshed_when_the_batch_after_a_wait_ends() -> None:
    clock, refreshed = [0.0], []

    class Ended(Event):
        def wait(self, timeout: float | None = None) -> bool:
            clock[0] += 10
            return clock[0] > 890

    view = object.__new__(StateView)
    view._ended, view.error = Ended(), None
    view.refresh = lambda: refreshed.append(clock[0])
    view._follow(Query(clock))
    assert refreshed == [10, 500]


@pytest.mark.parametrize(
    ("status", "busy"),
    [(ACTIVE, True), (STARTING, True), (NO_DATA, False), (NEXT_TRIGGER, False)],
)
def test_a_driver_is_busy_that_does_not_wait_for_data_or_its_next_trigger(
    clock, status, busy
) -> None:
    """After a batch with data, Spark says until the next trigger that there is data."""
    query = SimpleNamespace(status=status, lastProgress=report(5))
    told = Status(query="q", batch=5, busy_since_s=0.0)
    clock[0] = told.told_s = 3600.0
    driver_program._look(query, told)
    assert told.stuck_for_s(3600.0) == (3600.0 if busy else 0.0)
