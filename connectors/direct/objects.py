"""Columns of Python's own values, such as Decimals and dicts, in frames of pandas. On executors.

Told a type, Arrow cuts and shifts some of them in silence. So it guesses their type first, which
`shape.py` judges; and what it made of them is then compared with what they were, since it cannot
guess all, and goes by the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from math import isnan
from numbers import Number
from typing import TYPE_CHECKING, Any
from uuid import UUID

from .loss import loss
from .shape import cannot_be_written

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_MOMENTS = (date, time, timedelta)  # datetimes are dates
_BYTES = (bytes, bytearray, memoryview)
_EXPONENT_MAX = 76  # Arrow's largest decimals have so many digits
_USUAL = {bool, int, float, str, bytes, Decimal, datetime, date, time, timedelta, type(None)}


def of_objects(series: pd.Series[Any], field: pa.Field) -> pa.Array:
    """The values as Arrow's. Raises SinkError, and Arrow's own."""
    import pyarrow as pa
    import pyarrow.types as kinds

    values = series.to_numpy()
    try:
        guessed = pa.array(values, from_pandas=True).type
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        guessed = pa.null()  # of more than one kind, or too large: then what is told decides
    why = loss(guessed, field.type, of_objects=True)
    if why is None and kinds.is_temporal(field.type):
        why = _mixed(values)
    if why:
        raise cannot_be_written(field.name, guessed, field.type, why)
    if kinds.is_null(guessed) and any(map(_is_far, values)):
        raise cannot_be_written(field.name, "object", field.type, "a decimal's exponent is too far")
    made = pa.array(values, type=field.type, from_pandas=True)
    plain = kinds.is_string(guessed) or kinds.is_binary(guessed) or kinds.is_boolean(guessed)
    if not plain and (changed := _changed(values, made.to_pylist())):
        raise cannot_be_written(field.name, "object", field.type, changed)
    return made


def _is_far(given: Any) -> bool:
    """Whether there is a Decimal with an exponent at which Arrow crashes."""
    given = _plain(given)
    if isinstance(given, Decimal):
        exponent = given.as_tuple().exponent
        return isinstance(exponent, int) and abs(exponent) > _EXPONENT_MAX
    return any(map(_is_far, _parts(given, None)))


def _mixed(values: Any) -> str | None:
    """Whether some have a time or a zone and some have none: Arrow goes by the first one."""
    import pandas as pd

    days = [one for one in values if isinstance(one, date) and one is not pd.NaT]
    found = {(isinstance(one, datetime), getattr(one, "tzinfo", None) is None) for one in days}
    return "some of them have a time or a time zone and some have none" if len(found) > 1 else None


def _changed(given: Iterable[Any], made: Iterable[Any]) -> str | None:
    """What became of the first value that is not what it was; None if all are."""
    return next(filter(None, map(_change, given, made)), None)


def _change(given: Any, made: Any) -> str | None:
    """Of one value: as it was given, and as Arrow made it."""
    if type(given) in _USUAL and given == made:  # as almost all are
        return None
    given = _plain(given)
    if made is None or isinstance(made, str | bytes):
        is_it = _is_missing(given) if made is None else _as_bytes(given) == _as_bytes(made)
        return _if(not is_it, given, made)
    if isinstance(made, dict):
        return _change_of_fields(given, made)
    if isinstance(made, list | tuple):
        parts = _parts(given, made)
        return _changed(parts, made) or _if(len(parts) != len(made), given, made)
    if isinstance(made, _MOMENTS):
        return _change_of_moment(given, made)
    return _change_of_number(given, made)


def _plain(given: Any) -> Any:
    """The value that numpy's or Arrow's own holds."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    if isinstance(given, pa.Scalar):
        return given.as_py()
    if isinstance(given, np.datetime64):
        return pd.Timestamp(given)
    if isinstance(given, np.timedelta64):
        return pd.Timedelta(given)
    if isinstance(given, np.generic) or (isinstance(given, np.ndarray) and given.ndim == 0):
        return given.item()
    return given


def _is_missing(given: Any) -> bool:
    import pandas as pd

    return given is None or (pd.api.types.is_scalar(given) and bool(pd.isna(given)))


def _change_of_fields(given: Any, made: dict[str, Any]) -> str | None:
    """Of a struct: Arrow takes a dict, values in their order, and pairs with names."""
    if isinstance(given, Mapping):
        return _change_of_names(given, made)
    parts = _parts(given, made)
    same_size = len(parts) == len(made)
    why = _changed(parts, made.values()) if same_size else _not_the_same(given, made)
    if why and all(isinstance(one, tuple) and len(one) == 2 for one in parts):
        return _change_of_names(dict(parts), made)
    return why


def _change_of_names(given: Mapping[Any, Any], made: dict[str, Any]) -> str | None:
    if given.keys() == made.keys():
        return _changed(map(given.get, made), made.values())
    named = {_as_bytes(name): value for name, value in given.items()}
    known = [_as_bytes(name) for name in made]
    if unknown := [name for name in given if _as_bytes(name) not in known]:
        return f"its values have a field {unknown} that would be left out"
    return _changed(map(named.get, known), made.values())


def _parts(given: Any, made: Any) -> list[Any]:
    """The elements of a list, or of a map its entries, which Arrow takes as dicts, too."""
    if isinstance(given, Mapping):
        is_entry = isinstance(made, tuple)
        return [given.get("key"), given.get("value")] if is_entry else list(given.items())
    is_one = isinstance(given, (str, *_BYTES)) or not isinstance(given, Iterable)
    return [] if is_one else list(given)


def _change_of_moment(given: Any, made: Any) -> str | None:
    if isinstance(given, Number):
        return "it is not known what the number counts"
    if isinstance(given, datetime) and not isinstance(made, datetime):
        return "the time of day, or the date, would be cut off"
    if not isinstance(given, type(made)):
        return _not_the_same(given, made)
    zones = [getattr(one, "tzinfo", None) is None for one in (given, made)]
    if zones[0] != zones[1]:
        return (
            "one of them has a time zone and another has none, so that it is not known which "
            "moment is meant: TIMESTAMP has one, TIMESTAMP_NTZ has none"
        )
    if getattr(given, "nanosecond", 0) or getattr(given, "nanoseconds", 0):
        return "it would lose data: nanoseconds would be cut off"
    if isinstance(made, datetime) and not zones[0]:
        # Of two zones, no hour that a clock shows twice equals another
        given, made = (one.astimezone(timezone.utc) for one in (given, made))
    return _if(given != made, given, made)


def _change_of_number(given: Any, made: Any) -> str | None:
    if not isinstance(given, Number):  # Decimals are, too
        return _not_the_same(given, made)
    both_nan = isinstance(given, float) and isinstance(made, float) and isnan(given) and isnan(made)
    if given != made and not both_nan:
        return "fractions or digits would be cut off, or large numbers would become infinite"
    return None


def _as_bytes(given: Any) -> bytes | None:
    if isinstance(given, str):
        return given.encode(errors="surrogatepass")
    if isinstance(given, UUID):
        return given.bytes
    return bytes(given) if isinstance(given, _BYTES) else None


def _if(is_so: bool, given: Any, made: Any) -> str | None:
    return _not_the_same(given, made) if is_so else None


def _not_the_same(given: Any, made: Any) -> str:
    kinds = type(given).__name__, type(made).__name__
    return f"a value of Python's type {kinds[0]} would become another one of type {kinds[1]}"
