"""Clients that a worker process keeps for its next batch.

Keeps only what is harmless when it is stale: a broken connection costs the time to make another.
Everything that a decision depends on is asked of Kafka in every batch.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")
# How long one that was kept may make no progress: the cluster may have changed since.
KEPT_STALL_TIMEOUT_S = 3.0
# How long one is kept that nobody asks for. Spark keeps a worker for a minute after its last task:
# connections shall end with their query. A query with longer pauses connects anew for each batch.
IDLE_S = 10.0
# How long it goes to the leader that it knows of a topic; it remembers them for longer.
LEADERS_KNOWN_S = 60.0
# A client's threads stay in the parent at a fork: a child may neither use nor destroy it.
_of_parents: list[object] = []


@dataclass(frozen=True)
class _Idle(Generic[T]):
    settings: dict[str, object] = field(repr=False)
    client: T
    since: float  # time.monotonic()


class Kept(Generic[T]):
    """At most `limit` clients that nobody uses now, each under the settings it was made of.

    Who uses one takes it out, and puts it back only after it has done all it was asked to do
    without an error. The one that waited longest makes room; one that has waited for `idle_s`
    seconds is closed. Safe for threads and forks; holds secrets, so it has no repr of its contents.
    """

    def __init__(
        self,
        limit: int,
        close: Callable[[T], object] = lambda client: None,
        idle_s: float = IDLE_S,
    ) -> None:
        self._limit = limit
        self._close = close
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._idle: list[_Idle[T]] = []
        self._is_watched = False

    def take(self, settings: Mapping[str, object]) -> T | None:
        """The client put back last under equal `settings`, or None."""
        wanted = dict(settings)
        with self._lock:
            self._leave_to_parent()
            for at in reversed(range(len(self._idle))):
                if self._idle[at].settings == wanted:
                    return self._idle.pop(at).client
        return None

    def put(self, settings: Mapping[str, object], client: T) -> None:
        """Keep `client` for who asks next."""
        with self._lock:
            self._leave_to_parent()
            self._idle.append(_Idle(dict(settings), client, time.monotonic()))
            gone = [self._idle.pop(0) for _ in range(len(self._idle) - self._limit)]
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._close_idle, daemon=True).start()
        for old in gone:
            self._close(old.client)

    def close(self) -> None:
        """Close all that are idle."""
        with self._lock:
            self._leave_to_parent()
            gone, self._idle = self._idle, []
        for old in gone:
            self._close(old.client)

    def __len__(self) -> int:
        return len(self._idle)

    def _close_idle(self) -> None:
        """Runs as long as there are any, in a thread of its own."""
        wait_s = self._idle_s
        while wait_s > 0:
            time.sleep(wait_s)
            with self._lock:
                now, gone = time.monotonic(), []
                while self._idle and now - self._idle[0].since >= self._idle_s:
                    gone.append(self._idle.pop(0))
                wait_s = self._idle[0].since + self._idle_s - now if self._idle else 0.0
                self._is_watched = wait_s > 0
            while gone:
                with suppress(Exception):  # or the others would stay
                    self._close(gone.pop().client)

    def _leave_to_parent(self) -> None:
        if self._process != os.getpid():
            _of_parents.extend(idle.client for idle in self._idle)
            self._process, self._idle = os.getpid(), []
            self._is_watched = False  # threads stay in the parent


class Leaders:
    """What one consumer has asked for lately."""

    def __init__(self) -> None:
        self._asked_at: dict[str, float] = {}  # topic -> time.monotonic()

    def learn(self, consumer: Any, topic: str) -> None:
        """Let the consumer, which was just assigned a partition of `topic`, ask for its leader.

        librdkafka asks when it connects; of a topic that is new to a client with connections, also
        one that was made just before, it asks once a second. What goes wrong here shows in the
        read.
        """
        from confluent_kafka import KafkaException

        now = time.monotonic()
        if now - self._asked_at.get(topic, -LEADERS_KNOWN_S) < LEADERS_KNOWN_S:
            return
        with suppress(KafkaException):
            consumer.list_topics(topic, timeout=KEPT_STALL_TIMEOUT_S)
            self._asked_at[topic] = now
