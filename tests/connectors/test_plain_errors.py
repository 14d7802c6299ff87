"""In a process of Spark's, an error of ours is told as its sentence; all else is as it was."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import datasource
from pyspark.sql.types import StructType
from pyspark.util import handle_worker_exception

import eo_kafka.connectors as connectors
from eo_kafka.connectors.kafka import KafkaDataSource
from eo_kafka.connectors.ledger_writer import Report
from eo_kafka.connectors.plain_errors import _CALLED_BY_SPARK, plain_errors
from eo_kafka.errors import CheckpointUnreadable, EnvironmentRefused, OptionsError, WriteFailed
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer
from eo_kafka.state.snapshots.query_id import read_query_id

SPARKS = tuple(
    getattr(datasource, name)
    for name in dir(datasource)
    if name.startswith("DataSource") and inspect.isclass(getattr(datasource, name))
)


class Calls:
    """A method of each kind."""

    def commit(self, error: Exception) -> None:
        raise error

    def read(self, error: Exception) -> Iterator[int]:
        yield 1
        raise error

    def streamReader(self, error: Exception) -> Any:
        raise error

    def streamWriter(self, error: Exception) -> Any:
        raise error

    # methods of the package are what is decorated
    for ours in (commit, read, streamReader, streamWriter):
        ours.__module__ = connectors.__name__


Face = plain_errors(Calls)


@pytest.fixture
def in_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark starts its workers so: `python -m pyspark.daemon pyspark.worker`."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


def told(call: Callable[[], Any]) -> str:
    """What Spark's worker tells the JVM of the error."""
    out = io.BytesIO()
    try:
        call()
    except Exception as error:
        handle_worker_exception(error, out)
    return out.getvalue()[8:].decode()


@pytest.mark.parametrize("call", [Face().commit, lambda error: list(Face().read(error))])
def test_an_error_of_ours_is_told_as_its_sentence(call: Any, in_spark: None) -> None:
    said = told(lambda: call(WriteFailed("Row 7 is too large.")))
    assert said == "eo_kafka.errors.WriteFailed: Row 7 is too large.\n"


def test_any_other_error_keeps_its_traceback(in_spark: None) -> None:
    said = told(lambda: Face().commit(KeyError("a")))
    assert said.startswith("Traceback (most recent call last):")
    assert "in commit" in said


def test_a_stream_that_is_refused_is_refused_at_its_first_call(in_spark: None) -> None:
    """Spark 4.3 trips over the reader that it did not get and tells of that."""
    for first in ("initialOffset", "latestOffset"):
        refused = Face().streamReader(OptionsError(["Option 'a' is wrong."]))
        said = told(getattr(refused, first))
        assert said == "eo_kafka.errors.OptionsError: Option 'a' is wrong.\n"


def test_a_writer_that_is_refused_is_refused_but_for_its_abort(in_spark: None) -> None:
    """Where `abort` raises after `commit` has, Spark 4.3 tells of neither."""
    refused = Face().streamWriter(OptionsError(["Option 'a' is wrong."]))
    for call in (lambda: refused.commit([], 7), lambda: CloudPickleSerializer().dumps(refused)):
        assert told(call) == "eo_kafka.errors.OptionsError: Option 'a' is wrong.\n"
    refused.abort([], 7)


def test_a_writer_that_is_refused_for_its_checkpoint_aborts_what_was_prepared(
    in_spark: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hides what is behind it from readers. The tasks say which query it is of."""
    (tmp_path / "metadata").mkdir()
    given = {"kafka.bootstrap.servers": "localhost:1", "topic": "out"}
    source = KafkaDataSource({**given, "checkpointlocation": str(tmp_path)})
    aborted: list[tuple[Any, ...]] = []

    def abort(options: SinkOptions, reports: Any, generation: int | None) -> None:
        aborted.append((options.job, options.query_id, options.checkpoint, reports))

    monkeypatch.setattr(committer, "abort", abort)
    task = SimpleNamespace(query_id="ours")
    writer = source.streamWriter(StructType().add("value", "binary"), overwrite=False)
    assert "cannot be read now" in told(lambda: writer.commit([Report(task)], 7))
    writer.abort([None, Report(task)], 7)
    assert aborted == [("ours", "ours", str(tmp_path), [None, task])]
    writer.abort([None], 7)
    assert len(aborted) == 1, "whose it is, nobody knows"
    with pytest.raises(CheckpointUnreadable):
        read_query_id(str(tmp_path))


def test_nothing_is_hidden_in_a_program_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    made = Face().streamReader, Face().streamWriter
    for call in (Face().commit, *made, lambda error: list(Face().read(error))):
        with pytest.raises(EnvironmentRefused):
            call(EnvironmentRefused("There is no topic."))
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def classes() -> list[type]:
    """All that Spark is given: sources, readers and writers."""
    found = set()
    for module in pkgutil.walk_packages(connectors.__path__, f"{connectors.__name__}."):
        for one in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(one) and issubclass(one, SPARKS) and one not in SPARKS:
                found.add(one)
    ours = (one for one in found if one.__module__.startswith("eo_kafka."))
    public = (one for one in ours if not one.__name__.startswith("_"))
    return sorted(
        (one for one in public if not inspect.isabstract(one)), key=lambda one: one.__name__
    )


def test_no_class_that_spark_calls_was_forgotten() -> None:
    assert len(classes()) > 15
    for one in classes():
        for name in _CALLED_BY_SPARK:
            method = getattr(one, name, None)
            if inspect.isfunction(method) and method.__module__.startswith("eo_kafka."):
                assert hasattr(vars(one).get(name), "__wrapped__"), f"{one.__name__}.{name}"
