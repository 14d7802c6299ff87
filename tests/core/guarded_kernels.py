"""Compiled loops between pages that nobody may touch; run by tests/core/test_guarded_kernels.py.

    python tests/core/guarded_kernels.py avro|sink|source|control

Every value that comes from outside ends where such a page begins, and so does every array that
numpy makes, which are those that loops write to. A byte too far ends the process with SIGSEGV.
"""

from __future__ import annotations

import ctypes
import io
import json as texts
import math
import mmap
import random
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa

PAGE = mmap.PAGESIZE
FUZZED = 1500
libc = ctypes.CDLL(None, use_errno=True)


def guarded(size: int) -> np.ndarray[Any, Any]:
    """As many bytes, with a page behind them that cannot be read or written."""
    whole = -(-max(size, 1) // PAGE) * PAGE
    memory = mmap.mmap(-1, whole + PAGE)
    found = np.frombuffer(memory, np.uint8)
    behind = ctypes.c_void_p(found.ctypes.data + whole)
    if libc.mprotect(behind, ctypes.c_size_t(PAGE), 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    found[:whole] = 0xA5
    return found[whole - size : whole]


def _empty(shape: Any, dtype: Any = float, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
    count = math.prod(shape) if isinstance(shape, tuple) else int(shape)
    kind = np.dtype(dtype)
    return guarded(count * kind.itemsize).view(kind).reshape(shape)


def _zeros(shape: Any, dtype: Any = float, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
    found = _empty(shape, dtype)
    found.view(np.uint8)[...] = 0
    return found


def guard_numpy() -> None:
    """From now on, numpy makes guarded arrays."""
    np.empty, np.zeros = _empty, _zeros  # type: ignore[assignment]


def column(values: list[bytes | None], kind: Any = None) -> pa.Array:
    """Binary or text, its bytes before a guard."""
    made = pa.array(values, pa.binary())
    data = guarded(sum(len(value or b"") for value in values))
    data[:] = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
    valid, offsets, _ = made.buffers()
    return pa.Array.from_buffers(
        kind or pa.binary(), len(made), [valid, offsets, pa.py_buffer(data)]
    )


def damaged(value: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(value) + 1)
    new = bytes(chance.choice(b'{}[]:,"\\utfn019.eE+- \x00\x80\xc3\xe2\xf0\xff') for _ in range(2))
    what = chance.randrange(4)
    if what == 0:
        return value[:at]
    return value[:at] + new[: what - 1] + value[at + chance.randrange(3) :]


def spoilt(values: list[bytes]) -> Iterator[bytes]:
    """All beginnings of some values, and values with something wrong."""
    for value in values:
        for end in range(len(value) + 1):
            yield value[:end]
    chance = random.Random(7)
    for _ in range(FUZZED):
        value = chance.choice(values)
        for _ in range(chance.randrange(1, 4)):
            value = damaged(value, chance)
        yield value


def run(decoded: Any, values: list[bytes]) -> None:
    """Each alone, and those that are well in one column."""
    count, bad = 0, 0
    for value in spoilt(values):
        found = decoded(column([value]))  # None: left as a whole
        count, bad = count + 1, bad + (len(found[1]) if found else 1)
        if found:
            found[0].validate(full=True)
    array, left = decoded(column([*values, None, *values * 5]))
    array.validate(full=True)
    assert not len(left)
    assert array.null_count == 1
    assert 0.2 < bad / count < 0.999, bad / count


def avro() -> None:
    import fastavro

    from eo_kafka.formats.avro import columns as avro_columns
    from eo_kafka.formats.avro.types import spark_type
    from eo_kafka.formats.shared.arrow_types import arrow_type

    fields = [
        ("n", "long"), ("x", "double"), ("f", "float"), ("b", "boolean"), ("s", "string"),
        ("o", ["null", "string"]), ("u", ["null", "long", "string"]),
        ("fix", {"type": "fixed", "name": "F", "size": 5}),
        ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
        ("sum", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("list", {"type": "array", "items": {"type": "array", "items": "string"}}),
        ("map", {"type": "map", "values": "long"}),
    ]  # fmt: skip
    schema = {"type": "record", "name": "R"}
    schema |= {"fields": [{"name": name, "type": kind} for name, kind in fields]}
    parsed, good = fastavro.parse_schema(schema), []
    for n in range(6):
        stream = io.BytesIO()
        value = {"n": -(2**60) * n, "x": n / 3, "f": 0.5, "b": n % 2 == 0, "s": "é" * n}
        value |= {"o": None if n % 2 else "o" * n, "u": [None, n, "u"][n % 3], "fix": b"12345"}
        value |= {"e": "B", "sum": Decimal(-n), "list": [["x" * n] * n] * n}
        value |= {"map": {f"k{i}": i for i in range(n)}}
        fastavro.schemaless_writer(stream, parsed, value)
        good.append(stream.getvalue())
    text, shape = texts.dumps(schema), arrow_type(spark_type(parsed)[0])
    run(lambda values: avro_columns.decoded(values, text, text, shape), good)


def sink() -> None:
    """Rows out of guarded columns: their digest, and into a producer's queue."""
    from eo_kafka.sinks.rows import columns as rows_columns
    from eo_kafka.sinks.rows import fast, write_loops

    producer = confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
    rows = fast.ArrowProducer(producer, "t")
    chance, sent = random.Random(3), 0
    for size in [*range(40), PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 5]:
        values = [chance.randbytes(size), None, b"", chance.randbytes(size)]
        headers = pa.ListArray.from_arrays(
            pa.array([0, 2, 2, 3, 4], pa.int32()),
            pa.StructArray.from_arrays(
                [column([b"k" * size, b"", b"kk", b"k"], pa.string()), column(values)],
                ["key", "value"],
            ),
        )
        both = {"key": column(values[::-1]), "value": column(values)}
        rows.send(pa.record_batch(both))
        rows.send(pa.record_batch({**both, "headers": headers}))
        sent += 8
        keys, found = rows_columns.pointers(both["key"]), np.zeros(4, np.int32)
        write_loops.choose_partitions(7, np.array([7, 8, 9], np.int32), 4, 2, keys, found)
        assert found[2] == 9  # the null: the second of its turn, which is the fifth
        assert set(np.delete(found, 2).tolist()) <= {*range(7)}
    assert rows.rows == sent
    producer.purge()


def source() -> None:
    """Messages of librdkafka's own mock broker into guarded columns."""
    from eo_kafka.sources.fetch import fast

    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": "0"})
    brokers = producer.list_topics("t", timeout=10).brokers.values()
    chance, sizes = random.Random(3), [*range(40), PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 5]
    sent = []
    for size in sizes:
        value = chance.randbytes(size)
        for key, headers in ((value, []), (None, [("k" * size, value), ("", None)])):
            producer.produce("t", value or None, key, 0, headers=headers)
            sent.append((key, value or None, headers or None))
    producer.flush(20)
    servers = ",".join(f"{one.host}:{one.port}" for one in brokers)
    settings = {"bootstrap.servers": servers, "group.id": "g", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    read: list[Any] = []
    deadline = time.monotonic() + 30
    while len(read) < len(sent) and time.monotonic() < deadline:
        for one in fast.fetch(consumer, "t", 0, len(sent), include_headers=True):
            read += [] if one.batch is None else one.batch.to_pylist()
    assert [(one["key"], one["value"]) for one in read] == [one[:2] for one in sent]
    for one, (_, _, headers) in zip(read, sent, strict=True):
        found = one["headers"]
        assert (found and [(h["key"], h["value"]) for h in found]) == headers
    consumer.close()


def control() -> None:
    """One byte too far."""
    from eo_kafka.formats.avro.slots import _gather as gather

    data, target = guarded(10), np.zeros(16, np.uint8)
    starts, sizes = np.zeros(1, np.int64), np.full(1, 10)
    gather(1, *(one.ctypes.data for one in (data, starts, sizes, target)))
    print("reads what it may", flush=True)
    starts[:] = 1
    gather(1, *(one.ctypes.data for one in (data, starts, sizes, target)))


if __name__ == "__main__":
    from eo_kafka.core import librdkafka

    assert librdkafka.available() is None
    guard_numpy()
    globals()[sys.argv[1]]()
    print("well")
