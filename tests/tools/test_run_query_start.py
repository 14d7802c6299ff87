"""What `eo-kafka run` looks at in the writer that a job's function returned: by foreachBatch, the
options of what writes the rows."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest

import eo_kafka
from eo_kafka.connectors import restored_start
from eo_kafka.errors import OptionsError
from eo_kafka.tools.run import query_start

SINK = {"kafka.bootstrap.servers": "x:1", "topic": "t", "jobName": "totals", "snapshots": "true"}


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a writer of Spark Classic of a function and a query name; it tells what started it."""
    monkeypatch.setattr(restored_start, "function_of", lambda made: made.function)
    monkeypatch.setattr(query_start, "options_of", lambda made: made.options)
    monkeypatch.setattr(query_start, "start", lambda _: "restored")

    def make(function: Any, query: str, **options: str) -> Any:
        made = SimpleNamespace(function=function, options={"queryName": query, **options})
        made.trigger = lambda **_: made
        made.start = lambda: "started"
        return made

    return make


def _wrapped(write: Any) -> Any:
    @functools.wraps(write)
    def looks_first(rows: Any, batch: int) -> None:
        write(rows, batch)

    return looks_first


@pytest.mark.parametrize("as_given", [lambda write: write, _wrapped])
def test_by_foreach_batch_the_functions_job_is_compared_and_not_the_querys_name(writer, as_given):
    write = as_given(eo_kafka.foreach_batch(SINK))
    query_start.check_job("totals", writer(write, "hourly totals"))
    with pytest.raises(OptionsError, match="--job is 'hourly', and .* is 'totals'"):
        query_start.check_job("hourly", writer(write, "hourly"))


def test_a_lost_checkpoint_of_foreach_batch_is_restored(writer):
    write = eo_kafka.foreach_batch(SINK)
    assert query_start.started(writer(write, "totals"), False) == "restored"
    assert query_start.started(writer(_wrapped(write), "totals"), True) == "restored"
    without = eo_kafka.foreach_batch({**SINK, "snapshots": "false"})
    assert query_start.started(writer(without, "totals"), False) == "started"


def test_of_a_function_that_does_not_say_what_it_writes_nothing_is_known(writer):
    own = writer(lambda rows, batch: None, "hourly", snapshots="true")
    query_start.check_job("totals", own)
    assert query_start.started(own, False) == "started"


def test_a_sink_is_known_by_the_querys_options(writer):
    query_start.check_job("totals", writer(None, "totals"))
    query_start.check_job("totals", writer(None, "hourly", jobName="totals"))
    with pytest.raises(OptionsError, match="--job is 'totals', and .* is 'hourly'"):
        query_start.check_job("totals", writer(None, "hourly"))
    assert query_start.started(writer(None, "totals", snapshots="true"), False) == "restored"
