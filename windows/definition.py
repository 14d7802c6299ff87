"""What the windows of a query are, left in its checkpoint, so that a start with others stops.

State and timers hold neither the length of a window nor what its values are of, and a window that
was closed is forgotten: with another `size`, aggregates in another order or a longer
`allowed_lateness`, results would be wrong without a word. So a state is declared, and never
written, whose *types* spell a digest of the definition. Spark compares types, and not the names of
fields, with the checkpoint's before a start's first batch, and its error shows both schemas: the
names say what the windows are. Checkpoints without it go on, and have it then.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import types

from .aggregates import Aggregate, function_of

STATE = "eo_kafka_windows"
_WAY = (
    "eo_kafka windows stay what they are as long as the checkpoint, allowed_lateness too: "
    "take the change back, or start with a new checkpoint and a new jobName"
)
# None is read as another where Spark evolves schemas (state in Avro), as INT is as BIGINT.
_PLAIN = (types.BooleanType(), types.StringType(), types.LongType(), types.DateType())
_DIGITS = (*_PLAIN, *(types.ArrayType(one) for one in _PLAIN))
_LENGTH = 24  # of three bits each


def defined(
    shape: Mapping[str, Any],
    time: str,
    by: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    results: Sequence[types.DataType],
    lateness: int,
) -> types.StructType:
    """The state's schema. `shape`: the kind, and lengths in microseconds."""
    columns = zip(aggregates.items(), results, strict=True)
    told = {
        **shape,
        "allowed_lateness": lateness,
        "time": time,
        "by": list(by),
        "aggregates": [
            [name, function_of(one), one.column, kind.simpleString()]
            for (name, one), kind in columns
        ],
    }
    text = json.dumps(told)
    number = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    schema = types.StructType().add(_name(text), _PLAIN[0]).add(_name(_WAY), _PLAIN[0])
    for place in range(_LENGTH):
        schema = schema.add(f"d{place}", _DIGITS[number >> 3 * place & 7])
    return schema


def _name(text: str) -> str:
    """As Avro allows it."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
