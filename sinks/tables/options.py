"""Declares and parses the options of a writer of a table. No I/O.

They are the table's options, and those of the ledger in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...clients.postgres import client as postgres_client
from ...clients.postgres.client import PostgresSettings
from ...core.errors import OptionsError
from ...core.options import Option, OptionReader, boolean, one_of, text
from .. import options
from ..options import TWO_PHASE, SinkOptions
from ..rows.columns_needed import column_problems
from ..rows.one_value import KAFKA_COLUMNS
from ..staged_options import check_guarantee, ledger_options
from .target import StagedTable

STAGED = "staged"


def _names(value: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in value.split(","))
    if not all(found) or len(set(found)) != len(found):
        raise ValueError("must be column names, separated by commas, each once")
    return found


TABLE: Option[str | None] = Option(
    "table", text, None, 'The table, as in SQL: `orders`, `sales.orders`, `"Sales".orders`.'
)
KEYS: Option[tuple[str, ...]] = Option(
    "keys",
    _names,
    (),
    "Columns that tell the table's rows apart, separated by commas; they need a unique index. A "
    "row whose key is there takes its place. Without it all rows are appended.",
)
OPERATION_COLUMN: Option[str | None] = Option(
    "operationColumn",
    text,
    None,
    "With `keys` and `commit=staged`: a text column that says `upsert` or `delete` of each row; it "
    "is not written.",
)
STAGING_SCHEMA: Option[str | None] = Option(
    "stagingSchema",
    text,
    None,
    "Where rows wait for their decision, and the marker of what is applied is. Default: the "
    "table's own schema.",
)
COMMIT = Option(
    "commit",
    one_of(STAGED, TWO_PHASE),
    STAGED,
    "`staged`: tasks copy rows into a staging table, and after the decision one transaction moves "
    "them into the table. `two-phase`: each task writes into the table itself, in a transaction "
    "that it leaves prepared (`PREPARE TRANSACTION`), and after the decision they are committed "
    "one by one; the server needs `max_prepared_transactions`.",
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    boolean,
    True,
    "Whether the query stops when the table is not where the ledger left it (a database restored "
    "from an older copy), or an input topic was made again. With `false` it warns and goes on.",
)
OPTIONS: tuple[Option[Any], ...] = (
    *postgres_client.OPTIONS,
    *(TABLE, KEYS, OPERATION_COLUMN, STAGING_SCHEMA, COMMIT, FAIL_ON_DATA_LOSS),
)
_TOPIC = "topic"


def read_table(
    given: Mapping[str, str], columns: Sequence[tuple[str, str]]
) -> tuple[SinkOptions, StagedTable]:
    """Read and check `given`, for rows of `columns` (name, Spark's type string, `json` for what is
    sent as JSON); raises OptionsError with every problem. Contacts nobody."""
    reader = OptionReader(given)
    target = _target(reader, columns)
    check_guarantee(reader, "a table")
    reader.check_names([option.name for option in (*OPTIONS, *options.OPTIONS)])
    found = ledger_options(given, OPTIONS, reader)
    target = replace(target, commit=reader.get(COMMIT))
    if target.commit == TWO_PHASE and target.operation is not None:
        reader.problem(
            "Option 'operationColumn' needs 'commit' to be 'staged': to delete a key that is not "
            "there locks nothing, so with 'two-phase' nobody would find out that another task has "
            "a row of the same key."
        )
    if reader.problems or found is None:
        raise OptionsError(reader.problems)
    return replace(found, staging=target, fail_on_data_loss=target.fail_on_loss), target


def read_target(given: Mapping[str, str]) -> StagedTable:
    """For an operator's command: which table a job writes. Raises OptionsError."""
    reader = OptionReader(given)
    target = replace(_target(reader, None), commit=reader.get(COMMIT))
    reader.check_names(option.name for option in OPTIONS)
    reader.finish()
    return target


def _target(reader: OptionReader, columns: Sequence[tuple[str, str]] | None) -> StagedTable:
    if TABLE.name not in reader:
        reader.problem(f"Option '{TABLE.name}' must be specified: the table to write.")
    keys, operation = reader.get(KEYS), reader.get(OPERATION_COLUMN)
    if operation is not None and not keys:
        reader.problem("Option 'operationColumn' needs option 'keys': which row is to go.")
    into = [] if columns is None else _table_columns(reader, columns, keys, operation)
    return StagedTable(
        reader.get(TABLE) or "-",
        PostgresSettings.read(reader),
        tuple(into),
        keys,
        operation,
        reader.get(STAGING_SCHEMA),
        reader.get(FAIL_ON_DATA_LOSS),
    )


def _table_columns(
    reader: OptionReader,
    columns: Sequence[tuple[str, str]],
    keys: Sequence[str],
    operation: str | None,
) -> list[tuple[str, str]]:
    """Those of the table; with option `topic`, the Kafka sink's columns go to the topic alone."""
    types = dict(columns)
    of_topic: Sequence[str] = ()
    if _TOPIC in reader:
        of_topic = KAFKA_COLUMNS
        mine = [(name, kind) for name, kind in columns if name in KAFKA_COLUMNS]
        for sentence in column_problems(mine, topic_option=True):
            reader.problem(sentence)
    into = [(name, kind) for name, kind in columns if name not in (*of_topic, operation)]
    names = [name for name, _ in into]
    if not into:
        reader.problem("The rows have no column for the table.")
    if len(types) != len(columns):
        reader.problem("Two columns of the rows have the same name.")
    missing = [key for key in keys if key not in names]
    if missing:
        reader.problem(
            f"Option 'keys' names {', '.join(map(repr, missing))}, and the rows for the table have "
            f"{', '.join(names) or 'no columns'}."
        )
    if operation is not None and types.get(operation) != "string":
        what = types.get(operation, "not there")
        reader.problem(
            f"Option 'operationColumn': column '{operation}' must be a string; it is {what}."
        )
    reserved = [name for name in names if name.startswith("_eo_")]
    if reserved:
        reader.problem(f"Column '{reserved[0]}': names that begin with '_eo_' are eo-kafka's own.")
    return into
