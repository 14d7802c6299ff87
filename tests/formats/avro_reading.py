"""Reads an Avro value as a source does."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from eo_kafka.formats.avro import columns as avro_columns
from eo_kafka.formats.avro.codec import parsed
from eo_kafka.formats.avro.reader import AvroReader
from eo_kafka.formats.avro.types import spark_type
from eo_kafka.formats.shared.arrow_types import arrow_type
from eo_kafka.formats.shared.decoding import typed
from eo_kafka.formats.shared.registry import pack


def read_as_source(old: Any, new: Any, data: bytes) -> tuple[pa.Array, list[str]]:
    """One value, written as `old` and wanted as `new`: columns at once, and the rest one by one.
    Also why it is bad."""
    texts = [json.dumps(one) for one in (old, new)]

    class Registry:
        def schema(self, *_: object) -> str:
            return texts[0]

    bad: list[str] = []
    avro_columns._warm_up()
    reader = AvroReader(texts[1], Registry())  # type: ignore[arg-type]
    kind = arrow_type(spark_type(parsed(new))[0])
    found = typed(pa.array([pack(7, data)]), reader, kind, lambda _, why: bad.append(str(why)))
    return found, bad
