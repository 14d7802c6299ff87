"""Decodes Protobuf values one by one, as one message. Runs on executors.

Fields have numbers, so that the schema a value was written with is not needed to read it. With a
registry that schema says which message the value is, and whether its fields are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared import registry as wire
from ..shared.registry import PROTOBUF, Registry
from ..shared.schema_numbers import SchemaNumbers
from . import registered
from .codec import codec

if TYPE_CHECKING:
    import pyarrow as pa

    from ..shared.decoding import Rows


class ProtobufReader:
    """Pickled to the executors, where it remembers the schemas it met. `schema` was `pruned`."""

    def __init__(
        self, schema: str, message: str, known: Registry | None, subject: str | None = None
    ) -> None:
        self._schema, self._message = schema, message
        self._known, self._subject = known, subject
        self._ways: SchemaNumbers[frozenset[tuple[int, ...]]] = SchemaNumbers()

    def decode(self, value: bytes) -> Any:
        """Raises EoKafkaError for what is not the value's fault; anything else is:
        what the library raises for wrong bytes is of many kinds."""
        if self._known is not None:
            number, data = wire.unpack(value)
            way, value = registered.unpack(data)
            if way not in self._own(number):
                raise ValueError(
                    f"it is another message of schema {number} ({'.'.join(map(str, way))}), and no "
                    f"'{self._message}'"
                )
        return codec(self._schema, self._message).decode(value)

    def column(self, values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Rows] | None:
        """None: all are left to `decode`, which the library does in C."""
        return None

    def _own(self, number: int) -> frozenset[tuple[int, ...]]:
        known = self._known
        assert known is not None

        def ask(one: int) -> frozenset[tuple[int, ...]]:
            found = known.schema(one, PROTOBUF, self._subject)
            return registered.ways(found, one, self._schema, self._message)

        return self._ways.get(number, ask)
