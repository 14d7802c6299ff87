"""What the fast path takes for granted of the client. Fails when an upgrade breaks it."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from collections import Counter

import confluent_kafka
import pytest

from benchmarks import first_use
from eo_kafka.core import librdkafka, loops
from eo_kafka.sinks.rows import fast

EXPECTED = {
    "source": "[] 0",
    "sink": "4 m1:99f0c4149d21524af28b742f1cc13ebd",
    "avro": "[{'a': 1}, None] [1]",
}
SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}


def consumer():
    return confluent_kafka.Consumer({**SETTINGS, "group.id": "g"})


def test_the_fast_path_is_available_with_the_installed_client():
    assert librdkafka.available() is None


def test_the_handle_inside_both_clients_is_found():
    rk = librdkafka.library()
    producer, reader = confluent_kafka.Producer(SETTINGS), consumer()
    try:
        assert rk.rd_kafka_type(librdkafka.raw_handle(producer)) == 0
        assert rk.rd_kafka_type(librdkafka.raw_handle(reader)) == 1
    finally:
        reader.close()


def test_later_producers_of_a_process_load_no_more_code():
    """A worker makes one for each task, and what is loaded stays for the process's life."""
    assert librdkafka.available() is None
    producers = [confluent_kafka.Producer(SETTINGS) for _ in range(3)]
    loaded = []
    for producer in producers:
        fast.ArrowProducer(producer, "t")
        loaded.append(len(loops._loaded))
    assert loaded == [loaded[0]] * 3


def test_a_closed_consumer_is_refused():
    reader = consumer()
    reader.close()
    with pytest.raises(librdkafka.Unavailable, match="closed or laid out differently"):
        librdkafka.raw_handle(reader)


@pytest.fixture
def without_collections():
    """The garbage collector follows whatever stands in an object's slots."""
    gc.disable()
    yield
    gc.enable()


class Impostor:
    """Of the right size, with anything where the handle would be."""

    __slots__ = ("a", "b")


@pytest.mark.parametrize("pointer", ["unmapped", "odd", "foreign"])
def test_an_object_laid_out_differently_is_refused_without_a_crash(pointer, without_collections):
    impostor, memory = Impostor(), ctypes.create_string_buffer(256)
    place = ctypes.c_void_p.from_address(id(impostor) + object.__basicsize__)
    at = {"unmapped": 0x10, "odd": 0x7FFF_FFFF_0001, "foreign": ctypes.addressof(memory)}[pointer]
    place.value = at
    try:
        with pytest.raises(librdkafka.Unavailable, match="laid out differently|does not know"):
            librdkafka.raw_handle(impostor)
    finally:
        place.value = None


def test_problems_with_settings_are_named_without_secrets():
    problems = librdkafka.setting_problems(
        {
            "bootstrap.servers": "localhost:1",
            "compression.type": "zstd",
            "no.such.setting": "1",
            "acks": "5000",
            "sasl.password": "hidden",
            "ssl.ca.pem": "hidden\0",
            "security.protocol": "hidden-too",
        }
    )
    assert len(problems) == 4
    text = " ".join(problems)
    for name in ("no.such.setting", "acks", "ssl.ca.pem", "security.protocol"):
        assert f"kafka.{name}" in text
    assert "hidden " not in text and "hidden\0" not in text
    assert librdkafka.setting_problems({"linger.ms": "5", "client.id": "x"}) == []


@pytest.mark.parametrize(
    ("loops", "cache"),
    [
        ("sink", "writable"),
        ("sink", "unwritable"),
        pytest.param("source", "writable", marks=pytest.mark.full),
        pytest.param("avro", "writable", marks=pytest.mark.full),
    ],
)
def test_many_workers_compile_at_once(loops, cache, tmp_path):
    """Each with nothing in the cache, as the workers of a first job; and with no place for one."""
    env = first_use.environment(str(tmp_path if cache == "writable" else "/proc/nowhere"))
    env |= {"HOME": "/proc/nowhere"}
    program = (
        "import logging, sys\n"
        "from benchmarks import first_use\n"
        "logging.basicConfig(level=logging.INFO, stream=sys.stdout)\n"
        f"first_use.main(['--one', {loops!r}])"
    )
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    said = [worker.communicate(timeout=120)[0].splitlines() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    compiled = [line for lines in said for line in lines if "Compiled eo_kafka" in line]
    warnings = [line for lines in said for line in lines if "cannot be kept" in line]
    assert len(warnings) == (0 if cache == "writable" else len(workers)), warnings
    answers = {line for lines in said for line in lines[:-1] if line[:4] not in ("INFO", "WARN")}
    assert answers == {EXPECTED[loops]}
    kept = [*tmp_path.rglob("*.loop")]
    assert bool(kept) == (cache == "writable")
    times = Counter(compiled)  # each loop by one of them, or by each
    assert set(times.values()) == {1 if kept else len(workers)}
