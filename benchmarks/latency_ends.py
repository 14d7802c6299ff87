"""The two ends of `benchmarks.latency`, each in a process of its own, on one machine's clock.

One writes records at a rate; the other is a `read_committed` consumer that notes when it was handed
each of them. A record's value begins with its number and the time of its `produce()`.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from benchmarks.queries import WrongResult

STAMP = struct.Struct(">Qd")  # number, seconds
TICK_S = 0.005  # how often some are written
_SPAWN = get_context("spawn")  # nothing of librdkafka's may be forked
_LATE_S = 60.0


@dataclass(frozen=True)
class Load:
    """`rate` records a second with values of `size` bytes, evenly over time and partitions: for
    `warm_s` seconds, and then for `counted_s`."""

    servers: str
    topic: str
    partitions: int
    rate: int
    size: int
    warm_s: int
    counted_s: int

    @property
    def counted(self) -> int:
        """The last ones: how many are measured."""
        return self.rate * self.counted_s

    @property
    def records(self) -> int:
        """All."""
        return self.rate * self.warm_s + self.counted


def producing(load: Load) -> BaseProcess:
    """Starts at once. Its exit code is not 0 if it could not keep up, or a record was refused."""
    process = _SPAWN.Process(target=_produce, args=(load,), daemon=True)
    process.start()
    return process


def _produce(load: Load) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": load.servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "delivery.report.only.error": True,
        }
    )
    padding = b"x" * (load.size - STAMP.size)
    began, number = time.monotonic(), 0
    while number < load.records:
        due = min(load.records, int((time.monotonic() - began) * load.rate))
        while number < due:
            value = STAMP.pack(number, time.time()) + padding
            producer.produce(load.topic, value, partition=number % load.partitions)
            number += 1
        producer.poll(0)
        time.sleep(TICK_S)
    took = time.monotonic() - began
    if producer.flush(_LATE_S):
        raise WrongResult(f"{load.topic}: not all records were acknowledged.")
    if took > 1.02 * load.records / load.rate + 1:
        raise WrongResult(f"{load.topic}: {load.records} records took {took:.1f} s.")


class Watcher:
    """The consumer. It reads from where the topic ends now until it has seen all, or `quiet_s`
    seconds bring no record."""

    def __init__(self, load: Load, topic: str, quiet_s: float = _LATE_S) -> None:
        self._load = load
        self._answers: Any = _SPAWN.Queue()
        given = (load, topic, quiet_s, self._answers)
        self._process = _SPAWN.Process(target=_watch, args=given, daemon=True)
        self._process.start()
        assert self._answers.get(timeout=_LATE_S) == "ready"

    def seconds(self, *, repeats: bool) -> np.ndarray[Any, Any]:
        """By the records' numbers: from `produce()` to the first time the consumer had it. Raises
        WrongResult if one is missing, or came twice without `repeats`."""
        sent, seen, times = self._answers.get(timeout=600)
        self._process.join()
        if missing := int((times == 0).sum()):
            raise WrongResult(f"{missing} of {self._load.records} records did not become visible.")
        if not repeats and int(times.max()) > 1:
            raise WrongResult(f"{int((times > 1).sum())} records became visible more than once.")
        found: np.ndarray[Any, Any] = seen - sent
        return found

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.join()


def _watch(load: Load, topic: str, quiet_s: float, answers: Any) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": load.servers,
            "group.id": "latency",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,  # how late an end of a transaction is looked for at most
        }
    )
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
        for number in range(load.partitions)
    ]
    consumer.assign([TopicPartition(topic, number, end) for number, end in enumerate(ends)])
    sent, seen = np.zeros(load.records), np.zeros(load.records)
    times = np.zeros(load.records, dtype=np.int32)
    answers.put("ready")
    last, left = time.monotonic(), load.records
    while left > 0 and time.monotonic() - last < quiet_s:
        messages = consumer.consume(2000, timeout=0.05)
        now = time.time()
        for message in messages:
            if message.error():
                raise WrongResult(str(message.error()))
            number, stamp = STAMP.unpack_from(message.value())
            if times[number] == 0:
                sent[number], seen[number] = stamp, now
                left -= 1
            times[number] += 1
        if messages:
            last = time.monotonic()
    consumer.close()
    answers.put((sent, seen, times))
