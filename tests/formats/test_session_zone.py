"""What is written does not depend on the session's zone, also in the first and last years."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from eo_kafka.formats.avro import pieces
from eo_kafka.formats.json import texts
from eo_kafka.formats.shared.encoding import Encode

NEVER = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=timezone.utc)
ALWAYS = datetime(1, 1, 1, tzinfo=timezone.utc)


def times_of(zone: str) -> pa.DataType:
    time = pa.timestamp("us", zone)
    fields = [
        pa.field("at", time, nullable=False),
        pa.field("list", pa.list_(pa.field("element", time, nullable=False))),
        pa.field("map", pa.map_(pa.string(), time)),
    ]
    return pa.struct(fields)


TIMES = pa.array(
    [
        {"at": NEVER, "list": [ALWAYS, NEVER], "map": [("a", ALWAYS)]},
        None,
        {"at": ALWAYS, "list": None, "map": None},
    ],
    times_of("UTC"),
)


def avro(kind: Any) -> Encode:
    time = {"type": "long", "logicalType": "timestamp-micros"}
    record = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "at", "type": time},
            {"name": "list", "type": ["null", {"type": "array", "items": time}]},
            {"name": "map", "type": ["null", {"type": "map", "values": ["null", time]}]},
        ],
    }
    return pieces.encoder(json.dumps(record), kind, None)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
@pytest.mark.parametrize("encoder", [avro, texts.encoder], ids=["avro", "json"])
def test_the_zone_of_the_session_changes_no_byte(
    encoder: Any, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = TIMES.view(times_of(zone))
    with pytest.raises(OverflowError):
        there.to_pylist()
    at_once = encoder(TIMES.type)(TIMES)
    assert encoder(there.type)(there) == at_once
    monkeypatch.setattr(pieces, "_writer", lambda *_: None)  # value by value
    assert encoder(there.type)(there) == at_once
