"""Uses each of our compiled loops once: numba compiles them, and keeps them for this user."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import TopicPartition

from ...clients.kafka import config

_NOWHERE = {"log_level": "0"}  # no address: it looks for no broker, and misses none
_RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}


def source() -> str:
    """Reads a partition that no broker serves."""
    from ...sources.fetch import fast
    from ...sources.fetch import read_loops as loops

    consumer = config.consumer({**_NOWHERE, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    found = list(fast.fetch(consumer, "t", 0, 1, timeout=0.01))
    none = np.empty(0, np.int64)
    batch = fast._record_batch(none, np.zeros(loops.TOTALS, np.int64), "t", 0, 1, True, None)
    loops.discard(none, 0)
    consumer.close()
    return f"{found} {batch.num_rows}"


def sink() -> str:
    """Puts rows with headers and without into a producer's queue, and takes them out again."""
    from ...sinks.rows import fast, write_loops

    producer = config.producer(_NOWHERE)
    rows = fast.ArrowProducer(producer, "t")
    rows.send(pa.record_batch({"value": [b"x", None, b""]}))
    none = np.zeros(0, np.int64)
    write_loops.choose_partitions(
        1, np.zeros(1, np.int32), 0, 1, (none, none), np.zeros(0, np.int32)
    )
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "k", "value": b"v"}]], kind)
    rows.send(pa.record_batch({"value": pa.array([b"y"]), "headers": headers}))
    text = rows.digest.text()
    producer.purge()
    return f"{rows.rows} {text}"


def avro() -> str:
    """Decodes one value."""
    from ...formats.avro import columns

    schema, kind = json.dumps(_RECORD), pa.struct([("a", pa.int64())])
    found: Any = columns.decoded(pa.array([b"\x02", b"\x80"]), schema, schema, kind)
    return "none" if found is None else f"{found[0].to_pylist()} {found[1].tolist()}"


# Each tells what came out, which tests compare.
USES: dict[str, Callable[[], str]] = {"source": source, "sink": sink, "avro": avro}
