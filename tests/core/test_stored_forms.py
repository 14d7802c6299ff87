"""What is stored outside of the ledger, byte by byte as this version writes it and as the first one
that wrote it so did: a later version reads it, or says that it does not.

Spark's checkpoints and snapshots have golden copies of their own (integration_tests/state), the
ledger's records theirs (test_records.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from eo_kafka.connectors.maps.side_input import Pin
from eo_kafka.core.offsets import Position, TopicPartition, decode_position, encode_position
from eo_kafka.sinks import marker as targets
from eo_kafka.sinks.maps import applied, marker
from eo_kafka.sinks.maps.staging import ChunkKey, RecordKey
from eo_kafka.sinks.maps.write_ahead import Change, WriteAhead
from eo_kafka.sinks.targets.target import encoded
from eo_kafka.sources.maps.position import MapPosition
from eo_kafka.sources.maps.topic_position import TopicPosition
from eo_kafka.sources.queues.kept_offsets import KeptOffsets
from eo_kafka.sources.queues.message import Message
from eo_kafka.targets.files.manifest import DataFile, Manifest
from eo_kafka.tools.control import words

FORMS = Path(__file__).parents[1] / "golden" / "forms"
LANE = applied.Marker(34, 33, 5, "0123abcd")
BATCH = marker.Marker(12, 7, "0123abcd")
CHUNK = ChunkKey("main", 34, 12, 1, 0, 7, 3)
AHEAD_KEY = RecordKey("main", 34, 2)
AHEAD = WriteAhead(
    decision=33,
    number=5,
    merged=True,
    changes=(Change.of(b"k1", None, b"v1"), Change.of("é".encode(), b"v", None)),
    digest="0123abcd",
)
TARGET = targets.Marker("id-1", 34, 12, 1, 33, "0123abcd", (0, 2))
FILES = Manifest(
    sequence=3,
    id="0f" * 16,
    markers={"j/main": encoded(TARGET).decode("latin-1")},
    schema='{"type": "struct", "fields": []}',
    files=(DataFile("a-0-7.parquet", 1234),),
)
JOURNAL = MapPosition(
    "orders", "7b1d5b2e-0000-4000-8000-000000000001", (5, 0), ("0123456789ab", "")
)
SOURCE = Position(
    {TopicPartition("a", 0): 5, TopicPartition("a", 1): 0, TopicPartition("b", 0): 7},
    continues="j/3",
    most_tasks=2,
    ids={"a": "id-1", "b": "id-2"},
    anew=frozenset({"b"}),
    epochs={TopicPartition("a", 1): 4},
    begins={TopicPartition("a", 0): 3},
)
TOPIC = TopicPosition("orders", Position({TopicPartition("orders", 0): 5}), 1795260342977)
TOPIC_KEPT = replace(TOPIC, kept_ms=86_400_000)
KEPT = KeptOffsets().with_more([3, 4, 9])
SAID = {
    "exchange": "",
    "routingKey": "q",
    "redelivered": False,
    "deliveries": 1,
    "sent": None,
    "properties": {"type": "é"},
}
MESSAGE = Message(b"1", None, b"body", SAID, [("h", b"1")])
OF_RABBITMQ = Message(b"1", None, b"body", {**SAID, "idOf": "message-id of orders"}, [])
PIN = Pin("a1", "v-1", 1795260342977, "k BINARY", "0123abcd")
WISH = words.Wish("suspend", "eve on host", "before", "0f" * 16, 1795260342977)
TOLD = words.Told("running", wish="0f" * 16, host="host", pid=1, at_ms=1795260342977)

# file -> (as it is stored now, how what is stored is read, what it says)
WRITTEN: dict[str, tuple[bytes, Callable[[bytes], object], object]] = {
    "lane_marker.json": (LANE.encode().encode(), applied.Marker.decode, LANE),
    "map_marker.json": (BATCH.encode().encode(), marker.Marker.decode, BATCH),
    "chunk_key.txt": (CHUNK.encode().encode(), lambda raw: ChunkKey.decode(raw.decode()), CHUNK),
    "record_key.txt": (
        AHEAD_KEY.encode().encode(),
        lambda raw: RecordKey.decode(raw.decode()),
        AHEAD_KEY,
    ),
    "write_ahead.arrow": (AHEAD.encode(), WriteAhead.decode, AHEAD),
    "target_marker.json": (
        encoded(TARGET),
        lambda raw: targets.Marker(**{**json.loads(raw), "passed": (0, 2)}),
        TARGET,
    ),
    "files_manifest.json": (FILES.encoded(), lambda raw: Manifest.decoded(raw, "here"), FILES),
    "source_position.json": (
        json.dumps(encode_position(SOURCE)).encode(),
        lambda raw: decode_position(json.loads(raw)),
        SOURCE,
    ),
    "journal_position.json": (
        json.dumps(JOURNAL.encode()).encode(),
        lambda raw: MapPosition.decode(json.loads(raw)),
        JOURNAL,
    ),
    "map_topic_position.json": (
        json.dumps(TOPIC.encode()).encode(),
        lambda raw: TopicPosition.decode(json.loads(raw)),
        TOPIC,
    ),
    "map_topic_position_kept.json": (
        json.dumps(TOPIC_KEPT.encode()).encode(),
        lambda raw: TopicPosition.decode(json.loads(raw)),
        TOPIC_KEPT,
    ),
    "kept_offsets.json": (
        json.dumps(KEPT.packed()).encode(),
        lambda raw: KeptOffsets.unpacked(json.loads(raw)),
        KEPT,
    ),
    "inbox_header.json": (
        MESSAGE.record().headers[0][1] or b"",
        json.loads,
        {"v": 1, **SAID},
    ),
    "inbox_header_of_id.json": (
        OF_RABBITMQ.record().headers[0][1] or b"",
        json.loads,
        {"v": 1, **SAID, "idOf": "message-id of orders"},
    ),
    "side_input_pin.json": (
        json.dumps(asdict(PIN)).encode(),
        lambda raw: Pin.decode(raw.decode()),
        PIN,
    ),
    "control_wish.json": (words.encode(WISH), words.decode_wish, WISH),
    "control_told.json": (words.encode(TOLD), words.decode_told, TOLD),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_was_stored_is_read(name: str) -> None:
    now, read, meaning = WRITTEN[name]
    stored = (FORMS / name).read_bytes()

    assert read(stored) == meaning
    if not name.endswith(".arrow"):  # whose bytes are pyarrow's
        assert now == stored
    assert read(now) == meaning


def test_every_form_is_tested() -> None:
    assert {path.name for path in FORMS.iterdir()} == set(WRITTEN)
