"""The driver of `eo-kafka run module:function`: builds the query, starts it, and tells how it does.

Its one argument is a file, which holds a `DriverWords` in JSON. SIGTERM asks it to end: the running
batch ends, for as long as it is given, and then the query is stopped.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...connectors.spark_reports import ended_batch
from ...core.errors import EoKafkaError, OptionsError
from ...core.process.log_lines import show_from
from ..shared.job_function import Config, job_function
from .metrics import DriverMetrics
from .query_start import NoQuery, check_job, started
from .status import DriverWords, Status
from .verdict import last_error

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 1
LOOK_AT_THE_END_S = 0.05
# Spark's words while it is at nothing. Its `isDataAvailable` stays true from a batch with data to
# the next trigger, which may be an hour away.
WAITING = ("Waiting for next trigger", "Waiting for data to arrive")

log = logging.getLogger(__name__)


def main() -> None:
    """Run the query to its end. Exit code 0: in order; 1: the status says why, or a traceback."""
    told = Path(sys.argv[1])
    words = DriverWords(**json.loads(told.read_text()))
    told.unlink()  # the config may hold secrets
    show_from(logging.INFO)
    status, path = Status(pid=os.getpid()), Path(words.status)
    status.write(path)
    code = 0
    try:
        _run(words, status, path)
    except Exception as error:
        code = 1
        ours = _error_of_ours(error)
        if ours is None:
            traceback.print_exc()
        else:
            status.error, status.said = ours
    status.ended = True
    _tell(status, path)
    _stop_spark()
    sys.stdout.flush()
    os._exit(code)  # no thread of the user's function keeps a driver without a query


def _tell(status: Status, path: Path) -> None:
    """A query does not die of a full disk here. Its supervisor calls it stuck after a while, and
    judges its end by its exit code."""
    try:
        status.write(path)
    except OSError as error:
        log.warning("How the query is cannot be written into %s: %s.", path, error.strerror)


def _error_of_ours(error: Exception) -> tuple[str, str] | None:
    if isinstance(error, EoKafkaError):
        return type(error).__name__, str(error)
    found = last_error(str(error))
    return None if found is None else (found.name, found.said)


def _stop_spark() -> None:
    from pyspark.sql import SparkSession

    with suppress(Exception):
        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()


def _run(words: DriverWords, status: Status, path: Path) -> None:
    sys.path.insert(0, os.getcwd())
    try:
        function = job_function(words.function)
    except (ValueError, ImportError, AttributeError) as error:
        raise OptionsError([f"{error}"]) from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.appName(words.function)
    for name, value in words.conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    metrics = DriverMetrics(session, Path(words.metrics)) if words.metrics else None
    made = function(session, Config(words.config))
    check_job(words.job, made)
    if words.once and hasattr(made, "awaitTermination"):
        raise OptionsError(
            [
                f"--once needs a writer that is not started, and {words.function} returned a query "
                "that runs."
            ]
        )
    try:
        query = started(made, words.once)
    except NoQuery as error:
        raise OptionsError(
            [
                f"{words.function} returned {type(made).__name__}: it must return a "
                "DataStreamWriter that is not started, or the started query."
            ]
        ) from error
    # From here on; before, there is nothing to end, and SIGTERM ends the process.
    asked: list[int] = []  # a handler may not wait for a lock that it has interrupted
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    _watch(query, asked, words.grace_s, status, path, metrics)


def _watch(
    query: StreamingQuery,
    asked: list[int],
    grace_s: float,
    status: Status,
    path: Path,
    metrics: DriverMetrics | None,
) -> None:
    status.query = str(query.id)
    status.busy_since_s = time.monotonic()  # its first batch takes the longest
    while True:
        _look(query, status)
        _tell(status, path)
        if metrics is not None:
            metrics.write()
        if query.awaitTermination(LOOK_S):
            return
        if asked:
            break
    _end_batch(query, asked, grace_s)
    query.stop()
    error = query.exception()
    if error is not None:
        raise error


def _look(query: StreamingQuery, status: Status) -> None:
    now, told, newest = time.monotonic(), query.status, ended_batch(query.lastProgress)
    if newest != status.batch:
        status.batch, status.busy_since_s = newest, now
    if not told["isTriggerActive"] and told["message"] in WAITING:
        status.busy_since_s = None
    elif status.busy_since_s is None:
        status.busy_since_s = now


def _end_batch(query: StreamingQuery, asked: list[int], grace_s: float) -> None:
    """Return when the running batch has ended; or its time, or a second SIGTERM has come."""
    before, deadline = ended_batch(query.lastProgress), time.monotonic() + grace_s
    while query.isActive and query.status["isTriggerActive"]:
        if ended_batch(query.lastProgress) != before:
            return
        if time.monotonic() > deadline:
            log.warning("The batch has not ended within %.0f s: the query is stopped.", grace_s)
            return
        if len(asked) > 1:
            log.warning("Asked a second time: the query is stopped in its batch.")
            return
        time.sleep(LOOK_AT_THE_END_S)
