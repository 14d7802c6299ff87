"""What the first use of compiled loops costs a process, with nothing in the cache, and from it.

    python -m benchmarks.first_use [--rounds 5]

CPU seconds of all threads, from the first call to its result: importing numba, compiling or
loading. Decoders are waited for; in a worker that stays they are compiled in the background
(core/warm_up.py).
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pyarrow as pa

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}
RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}


def source() -> str:
    """Reads a partition that no broker serves."""
    from eo_kafka.sources import fast

    consumer = confluent_kafka.Consumer({**NOWHERE, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    found = fast.fetch(consumer, "t", 0, 1, timeout=0.01)
    kernels: Any = importlib.import_module("eo_kafka.sources.read_kernels")
    import numpy as np

    none = np.empty(0, np.int64)
    totals, cells = np.zeros(kernels.TOTALS, np.int64), np.zeros(8, np.int64)
    batch = fast._record_batch(kernels, none, totals, cells, "t", 0, 1, True)
    kernels.discard(none, 0)
    consumer.close()
    return f"{found.batch} {batch.num_rows}"


def sink() -> str:
    """Rows with headers and without into a producer's queue, and out of it again."""
    from eo_kafka.sinks.rows import fast

    producer = confluent_kafka.Producer(NOWHERE)
    rows = fast.ArrowProducer(producer, "t")
    rows.send(pa.record_batch({"value": [b"x", None, b""]}))
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "k", "value": b"v"}]], kind)
    rows.send(pa.record_batch({"value": pa.array([b"y"]), "headers": headers}))
    text = rows.digest.text()
    producer.purge()
    return f"{rows.rows} {text}"


def avro() -> str:
    """One value."""
    import json

    from eo_kafka.formats.avro import columns as avro_columns

    schema, kind = json.dumps(RECORD), pa.struct([("a", pa.int64())])
    return _shown(avro_columns.decoded(pa.array([b"\x02", b"\x80"]), schema, schema, kind))


def _shown(found: Any) -> str:
    return "none" if found is None else f"{found[0].to_pylist()} {found[1].tolist()}"


USES: dict[str, Callable[[], str]] = {"source": source, "sink": sink, "avro": avro}


def command(name: str) -> list[str]:
    """What uses one for the first time, prints what it gave, and how long it took."""
    return [sys.executable, "-m", "benchmarks.first_use", "--one", name]


def environment(cache: str) -> dict[str, str]:
    """This process's, with `cache` as the user's cache folder."""
    env = {**os.environ, "XDG_CACHE_HOME": cache}
    for name in ("NUMBA_CACHE_DIR", "SPARK_REUSE_WORKER"):
        env.pop(name, None)
    return env


def _one(name: str) -> None:
    importlib.import_module("pyspark.sql.types")  # which a worker has, and what Arrow imports
    pa.array([b""])
    from eo_kafka.core import librdkafka

    began = time.process_time()
    reason = librdkafka.available()
    if reason is not None:
        sys.exit(reason)
    print(USES[name]())
    print(f"{time.process_time() - began:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", choices=USES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        _one(arguments.one)
        return
    print("| loops | compiled, CPU s | from the cache, CPU s |\n|---|---|---|")
    for name in USES:
        pairs = []
        for _ in range(arguments.rounds):
            with tempfile.TemporaryDirectory() as cache:
                run = [
                    subprocess.run(
                        command(name), env=environment(cache), text=True, check=True,
                        stdout=subprocess.PIPE,
                    ).stdout.split()[-1]
                    for _ in range(2)
                ]  # fmt: skip
            pairs.append([float(one) for one in run])
        first, cached = (sorted(side) for side in zip(*pairs, strict=True))
        print(
            f"| {name} | {statistics.median(first):.1f} ({first[0]:.1f}-{first[-1]:.1f}) | "
            f"{statistics.median(cached):.1f} ({cached[0]:.1f}-{cached[-1]:.1f}) |"
        )


if __name__ == "__main__":
    main()
