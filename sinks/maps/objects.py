"""Turns rows into the objects that the Hazelcast client puts: text, JSON, byte arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...clients.hazelcast import internals
from ...core.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa
    from hazelcast import HazelcastClient

Entries = dict[Any, Any]  # the last one of each key; None removes


def entries_of(
    client: HazelcastClient, rows: pa.RecordBatch | pa.Table, values_are_json: bool
) -> Entries:
    """The entries that rows with a key and a value make."""
    return dict(pairs_of(client, rows, values_are_json))


def pairs_of(
    client: HazelcastClient, rows: pa.RecordBatch | pa.Table, values_are_json: bool
) -> Iterator[tuple[Any, Any]]:
    """The same, in the rows' order, with keys that come more than once."""
    keys = _objects(client, rows.column("key"), False)
    values = _objects(client, rows.column("value"), values_are_json)
    return zip(keys, values, strict=True)


def keys_of(client: HazelcastClient, keys: Any) -> list[Any]:
    """A column of keys."""
    return _objects(client, keys, False)


def _objects(client: HazelcastClient, column: Any, as_json: bool) -> list[Any]:
    import pyarrow as pa
    from hazelcast.core import HazelcastJsonValue

    found = (checked_text(column) if as_json else column).to_pylist()
    if as_json:
        return [None if one is None else HazelcastJsonValue(one) for one in found]
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        # a bytearray can be no key of a dictionary; what it is serialized to can
        return [None if one is None else internals.to_data(client, bytearray(one)) for one in found]
    return list(found)


def checked_text(column: Any) -> Any:
    """JSON as text. Raises SinkError for bytes that are no UTF-8."""
    import pyarrow as pa

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column
    try:
        return column.cast(pa.string() if pa.types.is_binary(column.type) else pa.large_string())
    except pa.ArrowInvalid:
        raise SinkError(
            "A row's value is to be JSON, and its bytes are no UTF-8: with 'value.format' 'text' "
            "bytes are stored as they are."
        ) from None
