"""Decodes a column of bytes: as a whole where possible, else value by value.

A decoder may decode a column at once (`Decoder.column`), and says which rows it leaves. Those are
read one by one, so that what is a bad value, and why, is decided in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ...core.errors import EoKafkaError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Rows = npt.NDArray[np.int64]


class Decoder(Protocol):
    """Of one format. Runs on executors."""

    def decode(self, value: bytes) -> Any:
        """A value for Arrow. Raises EoKafkaError for what is not the value's fault, as SourceError
        if the registry does not answer; anything else is."""

    def column(self, values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Rows] | None:
        """All values as `kind`, and the rows that are left to `decode`; None: all are. What it
        gives is what `decode` would have given."""


def typed(
    values: pa.Array, decoder: Decoder, kind: pa.DataType, bad: Callable[[int, Exception], None]
) -> pa.Array:
    """The column, with nulls stay nulls, and null where a value is bad, after `bad` was told the
    row and what is wrong. Raises EoKafkaError, and what `bad` raises."""
    import numpy as np

    found = decoder.column(values, kind)
    if found is None:
        return _one_by_one(values, decoder, kind, bad)
    array, left = found
    if not len(left):
        return array
    rows = left.tolist()
    rest = _one_by_one(values.take(left), decoder, kind, lambda row, error: bad(rows[row], error))
    whole = np.arange(len(values), dtype=np.int64)
    return merged(len(values), [(whole, array), (left, rest)])


def merged(count: int, pieces: Sequence[tuple[Rows, pa.Array]]) -> pa.Array:
    """One array of `count` rows out of several with the rows they are for; the last one says."""
    import numpy as np
    import pyarrow as pa

    source = np.zeros(count, np.int64)
    first = 0
    for rows, array in pieces:
        source[rows] = np.arange(first, first + len(array))
        first += len(array)
    return pa.concat_arrays([array for _, array in pieces]).take(pa.array(source))


def _one_by_one(
    values: pa.Array, decoder: Decoder, kind: pa.DataType, bad: Callable[[int, Exception], None]
) -> pa.Array:
    import pyarrow as pa

    unfit = (pa.ArrowException, ValueError, TypeError, OverflowError)
    found: list[Any] = []
    for row, value in enumerate(values.to_pylist()):
        try:
            found.append(None if value is None else decoder.decode(value))
        except EoKafkaError:
            raise  # the registry's fault, or the machine's: a file of its settings is not here
        except Exception as error:  # what decoders raise for wrong bytes is of many kinds
            found.append(None)
            bad(row, error)
    try:
        return pa.array(found, kind)
    except unfit:
        pass  # one of them is what no column can hold: find out which
    for row, one in enumerate(found):
        try:
            pa.array([one], kind)
        except unfit as error:
            found[row] = None
            bad(row, error)
    return pa.array(found, kind)


class Utf8:
    """Text."""

    def decode(self, value: bytes) -> str:
        """Raises ValueError."""
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"it is not UTF-8 (byte {error.start})") from None

    def column(self, values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Rows] | None:
        """All or none."""
        import numpy as np
        import pyarrow as pa

        try:
            return values.cast(kind), np.empty(0, np.int64)
        except pa.ArrowInvalid:
            return None
