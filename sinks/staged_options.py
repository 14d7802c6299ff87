"""The ledger's side of the options of a target whose rows are staged: a map, a table, or one of
the user's own. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import OptionsError
from ..core.options import Option, OptionReader
from ..state.ledger.job import EXACTLY_ONCE
from . import options
from .options import SinkOptions


def check_guarantee(reader: OptionReader, what: str) -> None:
    """Note in `reader` if it is to be a weaker one; `what` is written, such as `a table`."""
    found = reader.get(options.GUARANTEE)
    if found != EXACTLY_ONCE:
        reader.problem(
            f"Option 'guarantee' is '{found}': {what} is written '{EXACTLY_ONCE}'. Take it away."
        )


def ledger_options(
    given: Mapping[str, str], own: Iterable[Option[Any]], reader: OptionReader
) -> SinkOptions | None:
    """The sink's options in `given`, without the target's `own`; what is wrong with them is noted
    in `reader`."""
    mine = {option.key for option in own} | {options.GUARANTEE.key}
    rest = {name: value for name, value in given.items() if name.lower() not in mine}
    try:
        return SinkOptions.parse(rest, streaming=True)
    except OptionsError as error:
        for sentence in error.problems:
            reader.problem(sentence)
        return None
