"""Calls a user's function `build(spark, config)` and takes the query that it would start, without
starting it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ...connectors import restored_start
from ...core.errors import OptionsError, cut
from ..shared.job_function import Config, job_function


class _Started(BaseException):
    """The function wanted to start this writer. No Exception: the function must not catch it."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer


def session() -> SparkSession:
    """A local Spark that runs nothing, or the one that is there."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    for name, value in (
        ("spark.master", "local[1]"),
        ("spark.ui.enabled", "false"),
        ("spark.log.level", "ERROR"),
    ):
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made


def build(name: str, config: Mapping[str, str], spark: SparkSession) -> Any:
    """What the function that `name` names returns, or the writer that it would start.

    Raises OptionsError: there is no such function, it fails, or it asks for what `config` has not.
    """
    sys.path.insert(0, os.getcwd())
    try:
        function = job_function(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise OptionsError([f"{error}"]) from None
    try:
        with _not_started():
            return function(spark, Config(config))
    except _Started as started:
        return started.writer
    except OptionsError:
        raise
    except Exception as error:
        raise OptionsError(
            [f"{name} failed: {type(error).__name__}: {cut(error, 1000)}"]
        ) from error


@contextmanager
def _not_started() -> Iterator[None]:
    with (
        patch.object(DataStreamWriter, "start", _start),
        patch.object(DataStreamWriter, "toTable", _to_table),
        patch.object(restored_start, "restore_missing", lambda *_: None),
    ):
        yield


def _start(writer: Any, path: Any = None, format: Any = None, **given: Any) -> Any:
    """What `start()` of this writer would do, but for the start."""
    output_mode, query_name = given.pop("outputMode", None), given.pop("queryName", None)
    given.pop("partitionBy", None)
    for value, setter in (
        (format, writer.format),
        (output_mode, writer.outputMode),
        (query_name, writer.queryName),
    ):
        if value is not None:
            setter(value)
    writer.options(**given, **({} if path is None else {"path": path}))
    raise _Started(writer)


def _to_table(writer: Any, table: str, **given: Any) -> Any:
    """The same for `toTable()`: which format the table has, its catalog knows."""
    given.pop("format", None)
    return _start(writer, format="catalog table", path=table, **given)
