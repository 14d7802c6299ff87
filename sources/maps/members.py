"""Asks members for objects and Compact schemas."""

from __future__ import annotations

from typing import Any

from ...clients.hazelcast import internals
from ...clients.hazelcast.client import answer
from ...clients.hazelcast.internals import CompactSchema
from ...core.errors import SourceError
from .options import MapOptions


class MembersOf:
    """As `map_rows.Members`, for one task. Each schema is asked for once."""

    def __init__(self, options: MapOptions, client: Any) -> None:
        self._options, self._client = options, client
        self._schemas: dict[int, CompactSchema] = {}

    def to_object(self, data: bytes) -> Any:
        """As `hazelcast_internals.to_object`."""
        return internals.to_object(self._client, data)

    def compact_schema(self, schema_id: int) -> CompactSchema:
        """By its id. Raises ReadTimeout, SourceError if the cluster does not know it."""
        if schema_id not in self._schemas:
            asked = internals.compact_schema(self._client, schema_id)
            found = answer(asked, self._options.map, self._options.hazelcast)
            if found is None:
                raise SourceError(
                    f"It is a Compact value of schema {schema_id}, which the cluster does not "
                    "know: the value is damaged, or its schema was lost with all members."
                )
            self._schemas[schema_id] = found
        return self._schemas[schema_id]
