"""Holds what a transform gives to the columns and types that are written. On executors.

A type is changed where every value stays what it was, or Arrow says that it cannot: a larger
integer, another layout of texts. What Arrow would change in silence is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...core.errors import SinkError
from ...formats import bad_records

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = "pyarrow.RecordBatch"  # in sentences
_INVISIBLE = "Nothing of the batch is visible."
_NAMES = "'schema' of eo_kafka.direct names the types that are written."


def in_shape(batch: pa.RecordBatch, shape: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of the schema and no other, as the sink drops those it does not
    know. Raises SinkError."""
    import pyarrow as pa

    if not isinstance(batch, pa.RecordBatch):
        raise not_one_of(batch, f"a {BATCH}")
    check_names(batch.schema.names, shape)
    columns = [_cast(batch.column(field.name), field) for field in shape]
    for column, field in zip(_readable(columns, shape), shape, strict=True):
        if where := _null_in(column, field):
            raise SinkError(
                f"The transform's column '{field.name}' has a null in {where}, which is NOT NULL "
                f"in the schema that is written. {_INVISIBLE} Give a value, leave such rows out, "
                "or leave NOT NULL out of 'schema' of eo_kafka.direct."
            )
    return pa.RecordBatch.from_arrays(columns, schema=shape)


def check_names(given: Sequence[str], shape: pa.Schema) -> None:
    """Raises SinkError unless each column that is written is there, once."""
    if missing := [name for name in shape.names if name not in given]:
        raise SinkError(
            f"The transform gave no column {missing}; it gave {list(given)}. {_INVISIBLE} 'schema' "
            "of eo_kafka.direct names the columns that are written."
        )
    if twice := [name for name in shape.names if given.count(name) > 1]:
        raise SinkError(f"The transform gave two columns {twice}. {_INVISIBLE}")


def not_one_of(given: object, wanted: str) -> SinkError:
    """Of something else that a transform gave."""
    return SinkError(
        f"The transform gave a {type(given).__name__} and not {wanted}. {_INVISIBLE} A transform "
        "is a function that takes an iterator of them and yields them one by one."
    )


def cannot_be_written(name: str, found: object, wanted: object, why: object) -> SinkError:
    """Of a column's values."""
    return SinkError(
        f"The transform's column '{name}' is of type {found} and cannot be written as {wanted} "
        f"({why}). {_INVISIBLE} {_NAMES}"
    )


def _readable(columns: list[pa.Array], shape: pa.Schema) -> list[pa.Array]:
    """Without the rows of records that could not be read: they have nulls, and go as they came."""
    place = shape.get_field_index(bad_records.COLUMN)
    if place < 0 or columns[place].null_count == len(columns[place]):
        return columns
    read = columns[place].is_null()
    return [column.filter(read) for column in columns]


def _has_not_null(field: pa.Field) -> bool:
    """Whether it, or what is in it, takes no null. The keys of maps take none anyway."""
    kind = field.type
    inner = range(kind.num_fields)
    return not field.nullable or any(_has_not_null(kind.field(n)) for n in inner)


def _null_in(column: pa.Array, field: pa.Field, path: str = "") -> str | None:
    """Where a field that takes no null has one, as a path; None: nowhere."""
    import pyarrow.types as kinds

    if not _has_not_null(field):
        return None
    path = f"{path}.{field.name}" if path else field.name
    if not field.nullable and column.null_count:
        return path
    kind = column.type
    if (kinds.is_map(kind) or kinds.is_struct(kind)) and column.null_count:
        column = column.drop_null()
    if kinds.is_map(kind):
        inner = [(column.items, kind.item_field)]
    elif kinds.is_struct(kind):
        inner = list(zip(column.flatten(), kind, strict=True))
    elif kinds.is_list(kind):
        inner = [(column.flatten(), kind.value_field)]
    else:
        return None
    return next(filter(None, (_null_in(*pair, path) for pair in inner)), None)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    if column.type == field.type:
        return column
    if pa.types.is_struct(column.type) and column.null_count:
        # Arrow looks for nulls in what is NOT NULL also below a value that is null as a whole.
        there = np.asarray(column.is_valid())
        places = pa.array(np.cumsum(there) - 1, mask=~there)
        return _cast(column.drop_null(), field).take(places)
    if why := loss(column.type, field.type):
        raise cannot_be_written(field.name, column.type, field.type, why)
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise cannot_be_written(field.name, column.type, field.type, error) from None


def loss(found: pa.DataType, wanted: pa.DataType, *, of_objects: bool = False) -> str | None:
    """What Arrow would do in silence to values on their way from a type to another; None if it does
    nothing, or says so. `of_objects`: the values are Python's, and the type was guessed from
    them."""
    import pyarrow.types as kinds

    if found == wanted or kinds.is_null(found):
        return None
    found = _held(found)
    if of_objects and kinds.is_floating(found) and kinds.is_integer(wanted):
        return "fractions would be cut off"
    if kinds.is_struct(found) and kinds.is_struct(wanted):
        return _loss_of_fields(found, wanted, of_objects)
    inner = (loss(*pair, of_objects=of_objects) for pair in _inner(found, wanted))
    ours = (why for applies, why in _RULES if applies(found, wanted))
    return next(filter(None, (*inner, *ours)), None)


def _held(kind: pa.DataType) -> pa.DataType:
    """Of what the values are, where a type says how they are kept, too, such as pandas' category:
    Arrow writes the values."""
    import pyarrow as pa
    import pyarrow.types as kinds

    while True:
        if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
            kind = kind.value_type
        elif isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        else:
            return kind


def _inner(found: pa.DataType, wanted: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]]:
    """The types of what is in lists and maps, side by side."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_map(wanted):
        if kinds.is_map(found):
            return [(found.key_type, wanted.key_type), (found.item_type, wanted.item_type)]
        if kinds.is_struct(found):  # guessed of dicts
            return [(one.type, wanted.item_type) for one in found]
    if _is_list(found) and _is_list(wanted):
        return [(found.value_type, wanted.value_type)]
    if kinds.is_map(found) and _is_list(wanted):
        pair = pa.struct([("key", found.key_type), ("value", found.item_type)])
        return [(pair, wanted.value_type)]
    return []


def _loss_of_fields(found: pa.DataType, wanted: pa.DataType, of_objects: bool) -> str | None:
    there = {one.name: one.type for one in found}
    names = [one.name for one in wanted]
    if not of_objects and (missing := [name for name in names if name not in there]):
        return f"it has no field {missing}, which would be null"
    if unknown := [name for name in there if name not in names]:
        return f"its values have a field {unknown} that would be left out"
    if len(there) < found.num_fields:
        twice = [name for name in there if found.get_all_field_indices(name)[1:]]
        return f"its values have two fields {twice}"
    both = ((there[one.name], one.type) for one in wanted if one.name in there)
    return next(filter(None, (loss(*pair, of_objects=of_objects) for pair in both)), None)


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow.types as kinds

    lists = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
    return any(is_one(kind) for is_one in lists)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind))


def _decimal_of_float(found: pa.DataType, wanted: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_floating(found) and kinds.is_decimal(wanted))


def _float_of_decimal(found: pa.DataType, wanted: pa.DataType) -> bool:
    return _decimal_of_float(wanted, found)


def _smaller_float(found: pa.DataType, wanted: pa.DataType) -> bool:
    import pyarrow.types as kinds

    both = kinds.is_floating(found) and kinds.is_floating(wanted)
    return bool(both and found.bit_width > wanted.bit_width)


def _float_of_text(found: pa.DataType, wanted: pa.DataType) -> bool:
    import pyarrow.types as kinds

    texts = (
        *(kinds.is_string, kinds.is_large_string, kinds.is_string_view),
        *(kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view),  # read as texts
        kinds.is_fixed_size_binary,
    )
    return any(is_text(found) for is_text in texts) and bool(kinds.is_floating(wanted))


def _list_of_view(found: pa.DataType, wanted: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_list_view(found) or kinds.is_large_list_view(found))


def _other_zone(found: pa.DataType, wanted: pa.DataType) -> bool:
    import pyarrow.types as kinds

    both = kinds.is_timestamp(found) and kinds.is_timestamp(wanted)
    return bool(both and (found.tz is None) != (wanted.tz is None))


def _day_of_time(found: pa.DataType, wanted: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_timestamp(found) and kinds.is_date(wanted))


def _time_without_day(found: pa.DataType, wanted: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_timestamp(found) and kinds.is_time(wanted))


def _time_of_day(found: pa.DataType, wanted: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_date(found) and kinds.is_timestamp(wanted) and wanted.tz is not None)


def _time_and_number(found: pa.DataType, wanted: pa.DataType) -> bool:
    import pyarrow.types as kinds

    either = (found, wanted), (wanted, found)
    return any(kinds.is_temporal(one) and _is_number(other) for one, other in either)


def _truth_of_number(found: pa.DataType, wanted: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return bool(_is_number(found) and kinds.is_boolean(wanted))


_RULES: tuple[tuple[Callable[[pa.DataType, pa.DataType], bool], str], ...] = (
    (_decimal_of_float, "its values would be rounded"),
    (_float_of_decimal, "its values would be rounded"),
    (_smaller_float, "its values would be rounded, and large ones become infinite"),
    (_float_of_text, "its values would be rounded, and large ones become infinite"),
    (
        _other_zone,
        "one has a time zone and the other has none, so that it is not known which moment is meant:"
        " TIMESTAMP has one, TIMESTAMP_NTZ has none",
    ),
    (_day_of_time, "the time of day would be cut off"),
    (_time_without_day, "the date would be cut off"),
    (_time_of_day, "it is not known where the day begins"),
    (_time_and_number, "it is not known what the number counts"),
    (_truth_of_number, "numbers would become true"),
    (_list_of_view, "Arrow loses elements of list views: make lists (pyarrow.list_) of them"),
)
