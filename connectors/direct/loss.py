"""What Arrow would do in silence to values on their way from a type to another. On executors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


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
    Arrow writes the values. Of pandas' periods and intervals it would write only a part."""
    import pyarrow as pa
    import pyarrow.types as kinds

    while True:
        if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
            kind = kind.value_type
        elif isinstance(kind, pa.BaseExtensionType) and not _is_of_pandas(kind):
            kind = kind.storage_type
        else:
            return kind


def _is_of_pandas(kind: pa.DataType, _: pa.DataType | None = None) -> bool:
    return str(getattr(kind, "extension_name", "")).startswith("pandas.")


def _inner(found: pa.DataType, wanted: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]]:
    """The types of what is in lists and maps, side by side."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_map(wanted):
        if kinds.is_map(found):
            return [(found.key_type, wanted.key_type), (found.item_type, wanted.item_type)]
        if kinds.is_struct(found):  # guessed of dicts
            return [(one.type, wanted.item_type) for one in found]
    if is_list(found) and is_list(wanted):
        return [(found.value_type, wanted.value_type)]
    if kinds.is_map(found) and is_list(wanted):
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


def is_list(kind: pa.DataType) -> bool:
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


def is_text(kind: pa.DataType) -> bool:
    """Or bytes, which Arrow reads as texts."""
    import pyarrow.types as kinds

    texts = (
        *(kinds.is_string, kinds.is_large_string, kinds.is_string_view),
        *(kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view),
        kinds.is_fixed_size_binary,
    )
    return any(is_one(kind) for is_one in texts)


def _float_of_text(found: pa.DataType, wanted: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return is_text(found) and bool(kinds.is_floating(wanted))


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


def _text_of_duration(found: pa.DataType, wanted: pa.DataType) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_duration(found)) and is_text(wanted)


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
    (_text_of_duration, "it is not known what the number counts"),
    (_is_of_pandas, "Arrow would write the numbers that pandas keeps for it: convert it before"),
    (_time_and_number, "it is not known what the number counts"),
    (_truth_of_number, "numbers would become true"),
    (_list_of_view, "Arrow loses elements of list views: make lists (pyarrow.list_) of them"),
)
