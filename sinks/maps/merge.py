"""Merges an IMap's entry with a row by the user's function.

It is called within the members' transaction that also says that the chunk is applied: so its result
counts once, also where the same row twice would give something else (a sum, a list that grows).
Driver only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...clients.hazelcast import internals
from ...core.errors import SinkError, cut
from ...core.imported import imported
from .objects import Entries, checked_text, keys_of

if TYPE_CHECKING:
    import pyarrow as pa
    from hazelcast import HazelcastClient

# (key, what is there or None, the row's value) -> what is to be there, or None to remove it
Merge = Callable[[str | bytes, str | bytes | None, str | bytes], str | bytes | None]


def merge_function(name: str) -> Merge:
    """The function that `module:function` names, imported here. Raises ValueError."""
    found: Merge = imported(name, "function")
    return found


def merged(
    client: HazelcastClient,
    lock: Callable[[bytes], bytes | None],
    rows: pa.Table,
    json: bool,
    name: str,
) -> Entries:
    """The entries that rows make, in their order, of what the map holds; `lock` locks a serialized
    key until the transaction ends, and gives its value; it gets them in the keys' own order. Raises
    SinkError if the function does, or is not here."""
    try:
        function = merge_function(name)
    except ValueError as error:
        raise SinkError(
            f"Rows wait to be merged by '{name}' (option 'mergeFunction'), and it {error}. The "
            "batch stays decided. Restore the function and start the query."
        ) from None
    key_column, values = rows.column("key"), rows.column("value")
    values = (checked_text(values) if json else values).to_pylist()
    keys = list(zip(key_column.to_pylist(), keys_of(client, key_column), strict=True))
    stored = {internals.to_bytes(client, key): (plain, key) for plain, key in keys}
    now: Entries = {}
    for data, (plain, key) in sorted(stored.items()):
        found = lock(data)
        now[key] = _plain(plain, None if found is None else _object(client, plain, found))
    for (plain, key), value in zip(keys, values, strict=True):
        if value is None:
            now[key] = None
            continue
        try:
            now[key] = _result(function(plain, now[key], value), value)
        except Exception as error:
            raise SinkError(
                f"Function '{name}' (option 'mergeFunction') failed for key {cut(plain)}: "
                f"{type(error).__name__}: {cut(error)}. The batch stays decided, and this chunk "
                "is not applied. Repair the function and start the query: it goes on there."
            ) from None
    return {key: _stored(value, json) for key, value in now.items()}


def _result(found: str | bytes | None, value: str | bytes) -> str | bytes | None:
    if found is not None and type(found) is not type(value):
        given, wanted = type(found).__name__, type(value).__name__
        raise TypeError(f"it returned {given}, and the row's value is {wanted}")
    return found


def _object(client: HazelcastClient, key: object, found: bytes) -> Any:
    from hazelcast.errors import HazelcastSerializationError

    try:
        return internals.to_object(client, found)
    except HazelcastSerializationError as error:
        raise _foreign(key, f"cannot be read ({cut(error)})") from None


def _plain(key: object, found: Any) -> str | bytes | None:
    from hazelcast.core import HazelcastJsonValue

    if isinstance(found, HazelcastJsonValue):
        return str(found.to_string())
    if isinstance(found, bytearray):
        return bytes(found)
    if found is None or isinstance(found, str):
        return found
    raise _foreign(key, f"is of {type(found).__name__}")


def _foreign(key: object, what: str) -> SinkError:
    return SinkError(
        f"The entry of key {cut(key)} {what}, and only text, JSON and byte arrays can be merged: "
        "somebody else writes into the map. The batch stays decided; set that right and start the "
        "query."
    )


def _stored(value: str | bytes | None, json: bool) -> Any:
    from hazelcast.core import HazelcastJsonValue

    if value is None:
        return None
    if json:
        return HazelcastJsonValue(value)
    return bytearray(value) if isinstance(value, bytes) else value
