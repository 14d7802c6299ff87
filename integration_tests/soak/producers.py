"""Writes a job's input, at a bounded rate, and remembers what Kafka acknowledged."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from soak.workload import PARTITIONS, WATERMARK_DELAY_S, WINDOW_S, Entry, Workload

CHUNK = 30


class InputWriter(threading.Thread):
    """An idempotent producer. It waits for the acknowledgements of each chunk of records before
    it writes the next, so that the partitions' event times stay close together."""

    def __init__(
        self, servers: str, topic: str, workload: Workload, rate: float, seed: int
    ) -> None:
        super().__init__(name=f"producer of {topic}", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "allow.auto.create.topics": False,
                "linger.ms": 5,
                "delivery.timeout.ms": 600_000,
                "log_level": 0,
            }
        )
        self._topic, self._workload, self._rate = topic, workload, rate
        self._chance = random.Random(f"{seed} {workload.name}")
        self._stopped = threading.Event()
        self._number = 0
        self.acknowledged: list[Entry] = []
        self.failed: list[Entry] = []

    def run(self) -> None:
        while not self._stopped.is_set():
            begin = time.monotonic()
            for _ in range(CHUNK):
                self._write(*self._workload.make(self._number, self._chance), self._number)
                self._number += 1
            self._await_answers()
            self._stopped.wait(max(0.0, CHUNK / self._rate - (time.monotonic() - begin)))

    def stop(self) -> None:
        """Write what closes the last windows, into every partition; return when all is there."""
        self._stopped.set()
        self.join()
        late = self._number + 2 * (WATERMARK_DELAY_S + WINDOW_S)
        for number in range(late, late + PARTITIONS):
            self._write(*self._workload.make(number, self._chance), number)
        self._await_answers()

    def _write(self, key: str, value: str, number: int) -> None:
        self._producer.produce(
            self._topic, value, key, number % PARTITIONS, on_delivery=self._answered
        )

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        key: Any = message.key()
        value: Any = message.value()
        (self.failed if error else self.acknowledged).append((key.decode(), value.decode()))

    def _await_answers(self) -> None:
        while self._producer.flush(1.0):
            pass
