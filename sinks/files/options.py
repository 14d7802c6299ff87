"""Declares and parses the options of a writer of files. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...core.options import Option, OptionReader, one_of, text
from ...targets.files.columns import column_problems
from ...targets.files.formats import CSV, JSON, PARQUET
from ...targets.files.home import home_of
from ...targets.files.manifest import loose
from ..options import SinkOptions
from ..targets.options import FAIL_ON_DATA_LOSS, checked
from .target import REFERENCE, StagedFiles

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PATH: Option[str | None] = Option(
    "path",
    text,
    None,
    "The directory that the files are in, which driver and executors see, or `s3://bucket/prefix`. "
    "`start(path)`, `save(path)` and `load(path)` say the same.",
)
FILE_FORMAT = Option(
    "fileFormat",
    one_of(PARQUET, JSON, CSV),
    PARQUET,
    "What new files are: `parquet`, `json` (an object a line) or `csv` (with a line of names).",
)
OPTIONS = (PATH, FILE_FORMAT, FAIL_ON_DATA_LOSS)


def read_options(given: Mapping[str, str], schema: StructType) -> tuple[SinkOptions, StagedFiles]:
    """Read and check `given`, for rows of `schema`; raises OptionsError with every problem."""
    types = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    reader = OptionReader(given)

    def made(into: Sequence[str]) -> StagedFiles:
        target = _target(reader, tuple(into), _columns(schema, into))
        for sentence in column_problems(target.settings["fileformat"], target.settings["schema"]):
            reader.problem(sentence)
        return target

    return checked(reader, given, OPTIONS, schema.names, types, made)


def read_target(given: Mapping[str, str]) -> StagedFiles:
    """For an operator's command: which files a job writes. Raises OptionsError."""
    reader = OptionReader(given)
    target = _target(reader, (), "")
    reader.check_names(option.name for option in OPTIONS)
    reader.finish()
    return target


def path_of(reader: OptionReader) -> str:
    """The path, or nothing with a problem noted."""
    path = reader.get(PATH) or ""
    if not path and PATH.name not in reader:
        reader.problem("Option 'path' must be specified: the directory of the files.")
    if path:
        try:
            home_of(path)
        except ValueError as error:
            reader.problem(f"Option 'path' {error}.")
    return path


def _columns(schema: StructType, into: Sequence[str]) -> str:
    """In JSON; of each it is not said that it has no nulls."""
    fields = [one for one in loose(schema.jsonValue())["fields"] if one["name"] in into]
    return json.dumps({"type": "struct", "fields": fields})


def _target(reader: OptionReader, into: tuple[str, ...], schema: str) -> StagedFiles:
    fail = reader.get(FAIL_ON_DATA_LOSS)
    settings = {
        "path": path_of(reader),
        "fileformat": reader.get(FILE_FORMAT),
        "schema": schema,
        "failondataloss": str(fail).lower(),
    }
    return StagedFiles(REFERENCE, settings, into, fail)
