"""Builds and parses transactional ids; nothing else does.

    <prefix>.<job>.c                                   the coordinator of a job
    <prefix>.<job>.<sink>.p<partition>.g<g>.a<a>       a task of one of its sinks

Job and sink are fixed-width hashes, so that no job's id can be a prefix of another's. Generation
and attempt are slots that are used again, so that the broker's memory stays bounded: a batch takes
a generation, and only after all transactions of the one before have ended does a task open one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

GENERATION_SLOTS = 4
ATTEMPT_SLOTS = 8
_ID = re.compile(
    r"(?P<prefix>.+)\.(?P<job>[0-9a-f]{12})\."
    r"(?:c|(?P<sink>[0-9a-f]{12})\.p(?P<partition>\d+)\.g(?P<generation>\d+)\.a(?P<attempt>\d+))"
)


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def log_partition(transactional_id: str, partitions: int) -> int:
    """Where in `__transaction_state` Kafka keeps the id: by Java's hash of the text."""
    value = 0
    for character in transactional_id:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return min(value, (1 << 32) - value) % partitions


@dataclass(frozen=True)
class TransactionalIds:
    """The ids of one job under one prefix."""

    prefix: str
    job: str

    @property
    def stem(self) -> str:
        """How all of them begin."""
        return f"{self.prefix}.{_hash(self.job)}."

    @property
    def coordinator(self) -> str:
        """The id whose holder may write decisions."""
        return f"{self.stem}c"

    def task(self, sink: str, partition: int, generation: int, task_attempt_id: int) -> str:
        """The id of one attempt of one partition. `task_attempt_id` is Spark's, unique per driver;
        attempts that live at the same time must not fence each other."""
        return (
            f"{self.stem}{_hash(sink)}.p{partition}"
            f".g{generation % GENERATION_SLOTS}.a{task_attempt_id % ATTEMPT_SLOTS}"
        )

    def attempt_slots(
        self, sink: str, partition: int, generation: int, task_attempt_id: int
    ) -> tuple[str, ...]:
        """All ids of one partition, the attempt's own first: the next, while one is in use."""
        attempts = range(task_attempt_id, task_attempt_id + ATTEMPT_SLOTS)
        return tuple(self.task(sink, partition, generation, attempt) for attempt in attempts)

    def task_pattern(self, sink: str | None = None) -> str:
        """A regular expression (RE2 and Python) that matches all task ids of the job, or of one of
        its sinks, and no other."""
        stem = re.escape(self.stem)
        sinks = "[0-9a-f]{12}" if sink is None else _hash(sink)
        return rf"^{stem}{sinks}\.p[0-9]+\.g[0-9]+\.a[0-9]+$"

    def is_task(self, transactional_id: str, sink: str | None = None) -> bool:
        """Whether the id belongs to a task of this job, or of one of its sinks."""
        return re.fullmatch(self.task_pattern(sink), transactional_id) is not None


@dataclass(frozen=True)
class TaskParts:
    """What the id of a task says of it. Generation and attempt are slots, used again."""

    sink_hash: str
    partition: int
    generation_slot: int
    attempt_slot: int

    def is_of(self, sink: str) -> bool:
        """Whether the sink has this name."""
        return self.sink_hash == _hash(sink)


@dataclass(frozen=True)
class IdParts:
    """What a transactional id of ours says. `task` is None in the coordinator's."""

    prefix: str
    job_hash: str
    task: TaskParts | None

    def is_of(self, job: str) -> bool:
        """Whether the job has this name; the id itself keeps only a hash of it."""
        return self.job_hash == _hash(job)


def parse_id(transactional_id: str) -> IdParts | None:
    """The parts of an id of ours; None for one that no connector of ours made."""
    found = _ID.fullmatch(transactional_id)
    if found is None:
        return None
    task = None
    if found["sink"] is not None:
        numbers = (int(found[name]) for name in ("partition", "generation", "attempt"))
        task = TaskParts(found["sink"], *numbers)
    return IdParts(found["prefix"], found["job"], task)
