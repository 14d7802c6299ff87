"""A record with a field that this version does not know is refused, not read without it: what the
field says might be why a newer version wrote it. Forms of earlier versions are read."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from eo_kafka.core.offsets import Position, TopicPartition
from eo_kafka.errors import EoKafkaError
from eo_kafka.sinks.maps.applied import Marker as LaneMarker
from eo_kafka.sinks.maps.marker import Marker as BatchMarker
from eo_kafka.sources.maps.position import MapPosition
from eo_kafka.sources.maps.topic_position import TopicPosition
from eo_kafka.sources.queues import message
from eo_kafka.sources.queues.offset_memory import KEPT, OffsetMemory
from eo_kafka.sources.queues.rows import _meta
from eo_kafka.state.view import Marker as ViewMarker

CLUSTER = str(uuid.uuid4())
AT = TopicPartition("m", 0)
AS_KAFKA_SAYS = {
    **dict.fromkeys(("exchange", "routingKey", "deliveries", "sent")),
    "redelivered": False,
    "properties": {},
}


def remembered(fields: dict[str, Any]) -> int:
    memory = OffsetMemory("t", "inbox")
    kept = [(0, json.dumps(["id", 0]).encode(), json.dumps(fields).encode(), [])]
    memory.recall({"t": 1, "inbox": 1}, lambda topic, *_: kept if topic == "t" else [])
    return memory.end("id", 0)


def said(fields: dict[str, Any]) -> dict[str, Any]:
    found = _meta(json.dumps(fields).encode())
    if found is None:
        raise EoKafkaError("refused by who calls it")
    return found


def text(decode: Callable[[str], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda fields: decode(json.dumps(fields))


def encoded(record: Any) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(record.encode())
    return fields


# Those after the first of a kind are forms of earlier versions.
RECORDS: list[tuple[Callable[[dict[str, Any]], Any], dict[str, Any]]] = [
    (MapPosition.decode, MapPosition("m", CLUSTER, (1, 2), ("", "0" * 12)).encode()),
    (TopicPosition.decode, TopicPosition("m", Position({AT: 3}, ids={"m": "i"}), 5, 7).encode()),
    (TopicPosition.decode, {"map": "m", "offsets": {"m": {"0": 3}}, "caughtUp": 5}),
    (text(LaneMarker.decode), encoded(LaneMarker(3, 2, 1, "d"))),
    (text(LaneMarker.decode), {"v": 1, "holder": 3, "decision": 2, "done": 1}),
    (text(BatchMarker.decode), encoded(BatchMarker(3, 2, "x"))),
    (lambda one: ViewMarker.decode(json.dumps(one).encode()), encoded(ViewMarker("q", 3, "s"))),
    (
        lambda one: ViewMarker.decode(json.dumps(one).encode()),
        {"v": 1, "query": "q", "batch": 3},
    ),
    (remembered, {KEPT: [0, 0, 5]}),
    (said, {"v": message.VERSION, **AS_KAFKA_SAYS}),
    (said, {"v": message.VERSION, **AS_KAFKA_SAYS, "id": "t-0-1", "reason": "too large"}),
]


@pytest.mark.parametrize(("decode", "fields"), RECORDS)
def test_one_more_field_is_refused(decode: Any, fields: dict[str, Any]) -> None:
    assert decode(fields) is not None
    with pytest.raises(EoKafkaError):
        decode({**fields, "something": 1})


@pytest.mark.parametrize(("decode", "fields"), RECORDS)
def test_another_version_is_refused(decode: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(EoKafkaError):
        decode({**fields, "v": 9})
