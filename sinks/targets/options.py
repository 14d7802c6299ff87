"""Declares and parses the options of a writer of a target of the user's own. No I/O but the import
of its class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...core.errors import OptionsError, cut
from ...core.options import Option, OptionReader, boolean, text
from ...state.ledger.record_fields import TEXT_MAX
from .. import options
from ..options import SinkOptions
from ..rows.columns_needed import column_problems
from ..rows.one_value import KAFKA_COLUMNS
from ..staged_options import check_guarantee, ledger_options
from .target import StagedCustomTarget

Made = TypeVar("Made", bound=StagedCustomTarget)

PREFIX = "target."
TARGET: Option[str | None] = Option(
    "target",
    text,
    None,
    "`module:class` of an `eo_kafka.targets.Target`, importable on the driver and the executors. "
    "It is made with the options `target.*`, without that prefix and in lower case.",
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    boolean,
    True,
    "Whether the query stops when the target does not show what the ledger says (it was restored "
    "from an older copy), or an input topic was made again. With `false` it warns and goes on.",
)
OPTIONS: tuple[Option[Any], ...] = (TARGET, FAIL_ON_DATA_LOSS)
_TOPIC = "topic"


def read_options(
    given: Mapping[str, str], columns: Sequence[str], types: Sequence[tuple[str, str]]
) -> tuple[SinkOptions, StagedCustomTarget]:
    """Read and check `given`, for rows of `columns` (`types`: name and Spark's type string); raises
    OptionsError with every problem."""
    own, rest = _split(given)
    reader = OptionReader(rest)
    return checked(
        reader, rest, OPTIONS, columns, types, lambda into: _target(reader, own, tuple(into))
    )


def checked(
    reader: OptionReader,
    given: Mapping[str, str],
    own: Sequence[Option[Any]],
    columns: Sequence[str],
    types: Sequence[tuple[str, str]],
    made: Callable[[Sequence[str]], Made],
) -> tuple[SinkOptions, Made]:
    """The options of any such writer, `own` and a sink's, and its target, which is `made` of the
    columns that go into it. Raises OptionsError with every problem, and those in `reader`."""
    into = list(columns)
    if _TOPIC in reader:
        mine = [(name, kind) for name, kind in types if name in KAFKA_COLUMNS]
        for sentence in column_problems(mine, topic_option=True):
            reader.problem(sentence)
        into = [name for name in columns if name not in KAFKA_COLUMNS]
    if not into:
        reader.problem("The rows have no column for the target.")
    if len(set(columns)) != len(columns):
        reader.problem("Two columns of the rows have the same name.")
    target = made(into)
    check_guarantee(reader, "a target")
    if reader.get(options.COMMIT) == options.IDEMPOTENT:
        reader.problem("Option 'commit' is 'idempotent': a target is decided by the job's ledger.")
    reader.check_names([option.name for option in (*own, *options.OPTIONS)])
    found = ledger_options(given, own, reader)
    if reader.problems or found is None:
        raise OptionsError(reader.problems)
    target.made()
    found = replace(found, staging=target, fail_on_data_loss=target.fail_on_loss)
    if (size := len(found.target.encode(errors="replace"))) > TEXT_MAX:  # a ledger holds no more
        what = f"The target's name has {size} bytes, more than {TEXT_MAX}: {cut(found.target)}"
        raise OptionsError([f"{what}. Take a shorter one."])
    return found, target


def read_target(given: Mapping[str, str]) -> StagedCustomTarget:
    """For an operator's command: which target a job writes. Raises OptionsError."""
    own, rest = _split(given)
    reader = OptionReader(rest)
    target = _target(reader, own, ())
    reader.check_names(option.name for option in OPTIONS)
    reader.finish()
    target.made()
    return target


def _split(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The target's own, in lower case as Spark hands options over, and all others."""
    own = {
        name.lower().removeprefix(PREFIX): value
        for name, value in given.items()
        if name.lower().startswith(PREFIX)
    }
    rest = {name: v for name, v in given.items() if not name.lower().startswith(PREFIX)}
    return own, rest


def _target(
    reader: OptionReader, own: Mapping[str, str], into: tuple[str, ...]
) -> StagedCustomTarget:
    if TARGET.name not in reader:
        reader.problem(
            f"Option '{TARGET.name}' must be specified: 'module:class' of the target to write."
        )
    return StagedCustomTarget(reader.get(TARGET) or "", own, into, reader.get(FAIL_ON_DATA_LOSS))
