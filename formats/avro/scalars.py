"""Single values of whole columns as the pieces of bytes that Avro writes them as, with numpy.

What `pieces.py` puts together. A value that is not taken here is `Left` to the encoder of single
values. Runs on executors.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING, Any, TypeAlias

from .program import INT32, INT64
from .slots import Unsupported

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Bytes = npt.NDArray[np.uint8]
    Numbers = npt.NDArray[np.int64]

# What values are made of, one behind the other: columns of bytes, and bytes that all of them have
Pieces: TypeAlias = "list[pa.Array | bytes]"
Write: TypeAlias = "Callable[[pa.Array], Pieces]"  # of a column without nulls

# Python has no years before 1 and after 9999; these are in them in every time zone
_EPOCH = date(1970, 1, 1).toordinal()
_DAYS = (date(2, 1, 1).toordinal() - _EPOCH, date(9998, 12, 31).toordinal() - _EPOCH)
_MICROS = (_DAYS[0] * 86_400_000_000, _DAYS[1] * 86_400_000_000)
_MILLI_US = 1000
_BITS = 7  # of a number in each byte
_DECIMAL_BYTES = 16


class Left(Exception):
    """There is a value that is written, or refused, on its own."""


def scalar(schema: Any, kind: pa.DataType) -> Write:
    """For a type that has no parts. Raises Unsupported."""
    import pyarrow as pa

    of, logical = pa.types, schema.get("logicalType")
    what = "decimal" if logical == "decimal" else schema["type"]
    is_number = of.is_integer(kind) or of.is_float32(kind) or of.is_float64(kind)
    is_text = of.is_string(kind) or of.is_large_string(kind)
    is_bytes = of.is_binary(kind) or of.is_large_binary(kind)
    if what in ("int", "long"):
        return _integer(what, logical, kind)
    if what == "decimal" and of.is_decimal128(kind):
        return _decimal(schema, kind)
    for fits, write in (
        (what == "null", _null),
        (what == "boolean" and of.is_boolean(kind), _boolean),
        (what == "float" and is_number, _float),
        (what == "double" and is_number, _double),
        (what == "string" and is_text, _text),
        (what == "bytes" and is_bytes, _sized),
        (what == "enum" and is_text, lambda column: _enum(column, schema["symbols"])),
        (what == "fixed" and is_bytes, lambda column: _fixed(column, schema["size"])),
    ):
        if fits:
            return write
    raise Unsupported(f"{kind} as {schema}")


def zigzag(numbers: Numbers) -> pa.Array:
    """Avro's int and long."""
    import numpy as np

    left = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    most = int(left.max(initial=0)).bit_length()
    if most <= _BITS:
        return _of_equal_size(left.astype(np.uint8))
    shape = (len(numbers), -(-most // _BITS))
    found, is_used = np.empty(shape, np.uint8), np.ones(shape, np.bool_)
    for at in range(shape[1]):
        rest = left >> np.uint64(_BITS)
        goes_on = rest != 0
        found[:, at] = (left & np.uint64(127)) | (goes_on.astype(np.uint64) << np.uint64(_BITS))
        if at + 1 < shape[1]:
            is_used[:, at + 1] = goes_on
        left = rest
    return of_sizes(found[is_used], is_used.sum(axis=1))


def of_sizes(data: Any, sizes: npt.NDArray[Any]) -> pa.Array:
    """Bytes as a column of pieces of these sizes."""
    import numpy as np

    return cut(data, np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes))))


def cut(data: Any, offsets: npt.NDArray[Any]) -> pa.Array:
    """As `of_sizes`, by where each piece begins and the last one ends. Raises ArrowException for
    more than a column holds."""
    import numpy as np
    import pyarrow as pa

    if offsets[-1] > INT32[1]:
        raise pa.ArrowCapacityError("more than 2 GB in a column")
    held = [pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, *held])


def _of_equal_size(data: npt.NDArray[Any]) -> pa.Array:
    """Of each number its bytes, as they are."""
    import numpy as np

    return cut(data, np.arange(len(data) + 1) * data.itemsize)


def _null(column: pa.Array) -> Pieces:
    if column.null_count < len(column):
        raise Left
    return [b""]


def _boolean(column: pa.Array) -> Pieces:
    import numpy as np

    return [_of_equal_size(np.asarray(column).astype(np.uint8))]


def _float(column: pa.Array) -> Pieces:
    import numpy as np

    _check_whole(column, 2**24)
    given = np.asarray(column).astype("<f8")  # as Python's floats are
    with np.errstate(over="ignore"):
        found = given.astype("<f4")
    if np.any((found != given) & ~np.isnan(given)):
        raise Left
    return [_of_equal_size(found)]


def _double(column: pa.Array) -> Pieces:
    import numpy as np

    _check_whole(column, 2**53)
    return [_of_equal_size(np.asarray(column).astype("<f8"))]


def _check_whole(column: pa.Array, most: int) -> None:
    """Of larger integers not all are floating-point numbers, too."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        numbers = np.asarray(column)
        if numbers.min() < -most or numbers.max() > most:
            raise Left


def _text(column: pa.Array) -> Pieces:
    column.validate(full=True)  # it is UTF-8
    return _sized(column)


def _sized(column: pa.Array) -> Pieces:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = np.asarray(pc.binary_length(column)).astype(np.int64)
    return [zigzag(sizes), column.cast(pa.binary())]


def _fixed(column: pa.Array, size: int) -> Pieces:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.all(pc.equal(pc.binary_length(column), size)).as_py():
        raise Left
    return [column.cast(pa.binary())]


def _enum(column: pa.Array, symbols: list[str]) -> Pieces:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.index_in(column, pa.array(symbols, column.type))
    if found.null_count:
        raise Left
    return [zigzag(np.asarray(found).astype(np.int64))]


def _integer(what: str, logical: str | None, kind: pa.DataType) -> Write:
    import numpy as np
    import pyarrow as pa

    of, divisor = pa.types, 1
    stored, (lowest, highest) = kind, INT32 if what == "int" else INT64
    if of.is_date32(kind) and (what, logical) == ("int", "date"):
        stored, (lowest, highest) = pa.int32(), _DAYS
    elif of.is_timestamp(kind) and kind.unit == "us" and what == "long":
        local, _, unit = str(logical).rpartition("timestamp-")
        if unit not in ("millis", "micros") or local != ("" if kind.tz else "local-"):
            raise Unsupported(f"{kind} as {logical}")
        stored, (lowest, highest) = pa.int64(), _MICROS
        divisor = _MILLI_US if unit == "millis" else 1
    elif not of.is_integer(kind):
        raise Unsupported(f"{kind} as {what}")

    def write(column: pa.Array) -> Pieces:
        numbers = np.asarray(column.view(stored).cast(pa.int64()))
        if numbers.min() < lowest or numbers.max() > highest:
            raise Left
        if divisor > 1 and np.any(numbers % divisor):
            raise Left
        return [zigzag(numbers if divisor == 1 else numbers // divisor)]

    return write


def _decimal(schema: Any, kind: pa.DataType) -> Write:
    import numpy as np

    size = schema.get("size")
    if kind.scale != schema.get("scale", 0) or kind.precision > schema["precision"]:
        raise Unsupported(f"{kind} as {schema}")

    def write(column: pa.Array) -> Pieces:
        found, sizes = _big_endian(column)
        if size is None:
            return [zigzag(sizes), of_sizes(found[_last(sizes)], sizes)]
        if size > _DECIMAL_BYTES or sizes.max() > size:
            raise Left
        return [_of_equal_size(np.ascontiguousarray(found[:, -size:]).view(f"V{size}"))]

    return write


def _big_endian(column: pa.Array) -> tuple[Bytes, Numbers]:
    """Decimals as 16 bytes each, and how many of the last ones fastavro writes: for -128, -32768
    and so on one more than there must be."""
    import numpy as np

    words = np.frombuffer(column.buffers()[1], "<u8").reshape(-1, 2)
    words = words[column.offset : column.offset + len(column)]
    low, high = words[:, 0], words[:, 1]
    is_negative = high.view(np.int64) < 0
    absolute = np.empty((len(words), 2), ">u8")
    absolute[:, 1] = np.where(is_negative, ~low + np.uint64(1), low)
    absolute[:, 0] = np.where(is_negative, ~high + (low == 0).astype(np.uint64), high)
    digits = absolute.view(np.uint8)
    first = np.argmax(digits != 0, axis=1)
    first[~digits.any(axis=1)] = _DECIMAL_BYTES - 1
    sizes = _DECIMAL_BYTES - first + (digits[np.arange(len(words)), first] > 127)
    return words[:, ::-1].astype(">u8").view(np.uint8), sizes


def _last(sizes: Numbers) -> npt.NDArray[np.bool_]:
    """Which of 16 bytes are the last ones, of each row this many."""
    import numpy as np

    found: npt.NDArray[np.bool_] = np.arange(_DECIMAL_BYTES) >= _DECIMAL_BYTES - sizes[:, None]
    return found
