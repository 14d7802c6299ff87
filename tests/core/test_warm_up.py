"""Loops are compiled in the background of a worker that stays, and before anything else in one
that does not; meanwhile values are decoded one by one, with the same result."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from eo_kafka.core import warm_up
from eo_kafka.formats.avro import columns
from eo_kafka.formats.avro.reader import AvroReader
from eo_kafka.formats.shared.decoding import typed

SCHEMA = (
    '{"type":"record","name":"R",'
    '"fields":[{"name":"n","type":"long"},{"name":"s","type":"string"}]}'
)
FIRST_USE = f"""
import time
import pyarrow as pa
from eo_kafka.formats.avro import columns
from eo_kafka.formats.avro.reader import AvroReader
from eo_kafka.formats.shared.decoding import typed

schema = {SCHEMA!r}
values = pa.array([b"\\2\\2a", b"\\2", None])
kind = pa.struct([("n", pa.int64()), ("s", pa.string())])
bad, times = [], 0
deadline = time.monotonic() + 120
while time.monotonic() < deadline:
    column = typed(values, AvroReader(schema, None), kind, lambda row, _: bad.append(row))
    times += 1
    assert column.to_pylist() == [{{"n": 1, "s": "a"}}, None, None] and bad.pop() == 1
    if columns.decoded(values, schema, schema, kind) is not None:
        break
    time.sleep(0.01)
print(times > 1, columns.decoded(values, schema, schema, kind) is not None)
"""


def first_use(cache: Path, **env: str) -> str:
    settings = {**os.environ, "XDG_CACHE_HOME": str(cache), **env}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE], env=settings, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_worker_that_stays_decodes_one_by_one_until_loops_are_compiled(tmp_path: Path) -> None:
    assert first_use(tmp_path, SPARK_REUSE_WORKER="1") == "True True"
    assert list(tmp_path.rglob("kernels.decode.*.loop"))


def test_where_loops_cannot_be_used_values_are_decoded_one_by_one_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(warm_up.librdkafka, "available", lambda: "it is a Tuesday")
    values = pa.array([b"\2\2a", None])
    kind = pa.struct([("n", pa.int64()), ("s", pa.string())])
    assert columns.decoded(values, SCHEMA, SCHEMA, kind) is None
    found = typed(values, AvroReader(SCHEMA, None), kind, lambda *_: None)
    assert found.to_pylist() == [{"n": 1, "s": "a"}, None]
    assert caplog.text.count("slower than possible: it is a Tuesday") == 1


def waiting(monkeypatch: pytest.MonkeyPatch, stays: bool) -> None:
    monkeypatch.setattr(warm_up, "WAIT_S", 0.01)
    if stays:
        monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    else:
        monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)


def until_threads_end() -> None:
    for thread in threading.enumerate():
        if thread.name == "eo-kafka-warm-up":
            thread.join(10)


def test_the_first_call_does_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting(monkeypatch, stays=True)
    may_end, runs = threading.Event(), []

    def work() -> None:
        runs.append(may_end.wait(10))

    assert not warm_up.is_ready(work)
    assert not warm_up.is_ready(work)
    may_end.set()
    until_threads_end()
    assert warm_up.is_ready(work)
    assert runs == [True]


def test_where_the_process_may_end_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting(monkeypatch, stays=False)
    ended = threading.Event()

    def work() -> None:
        threading.Event().wait(0.05)
        ended.set()

    assert warm_up.is_ready(work)
    assert ended.is_set()


def test_loops_that_cannot_be_compiled_are_said_and_never_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waiting(monkeypatch, stays=False)

    def work() -> None:
        raise RuntimeError("no LLVM")

    assert not warm_up.is_ready(work)
    assert not warm_up.is_ready(work)
    assert "one by one, several times slower than possible: loops cannot be compiled" in caplog.text
