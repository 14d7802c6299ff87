"""What one test has done so far: its topics, its jobs, the time line of its faults."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import CheckRefused
from .history import History
from .topics import Topic, create

if TYPE_CHECKING:
    from .brokers import Broker
    from .job import Job

EVENTS_SHOWN = 40


class Trial:
    """One test. `servers` is where the test itself reaches Kafka, `job_servers` where its jobs do:
    behind a proxy, if there is one. `unique` tells its names from those of other tests."""

    def __init__(
        self, test: str, folder: Path, servers: str, job_servers: str, unique: str
    ) -> None:
        self.test, self.folder = test, folder
        self.servers, self.job_servers, self.unique = servers, job_servers, unique
        folder.mkdir(parents=True, exist_ok=True)
        self.history = History(folder / "timeline.jsonl")
        self.topics: dict[str, Topic] = {}
        self.jobs: list[Job] = []
        self.broker: Broker | None = None
        self.seed: int | None = None

    def new_topic(
        self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic, or give the one that has this name already."""
        if name not in self.topics:
            real_name = f"{name}-{self.unique}"
            create(self.servers, real_name, partitions, settings, -1)
            self.topics[name] = Topic(name, real_name, self.servers, self.history)
        return self.topics[name]

    def find(self, topic: str | Topic) -> Topic:
        """A topic by its name in the test. Raises CheckRefused."""
        if isinstance(topic, Topic):
            return topic
        if topic not in self.topics:
            known = ", ".join(f"'{name}'" for name in self.topics) or "none"
            raise CheckRefused(f"This test has no topic '{topic}'. It has: {known}.")
        return self.topics[topic]

    def report(self) -> str:
        """The end of a message: what happened before, and how to have it again."""
        events = self.history.events()
        left_out = len(events) - EVENTS_SHOWN
        lines = ["Time line (seconds, who, what):"]
        if left_out > 0:
            lines.append(f"  ({left_out} earlier events: {self.folder / 'timeline.jsonl'})")
        lines += [f"  {event}" for event in events[-EVENTS_SHOWN:]]
        seed = "" if self.seed is None else f"  (nemesis: seed={self.seed})"
        lines.append(f"Run it again: pytest {shlex.quote(self.test)}{seed}")
        lines += [f"Logs of job '{job.name}': {job.folder}" for job in self.jobs]
        return "\n".join(lines)


_current: list[Trial] = []


def begin(trial: Trial) -> None:
    """The checkers are this test's from now on."""
    _current.append(trial)


def end() -> None:
    """The newest test that began is over."""
    _current.pop()


def current() -> Trial:
    """The test that runs. Raises CheckRefused outside of one."""
    if not _current:
        raise CheckRefused("Only a test that uses the fixture 'eo_broker' can be checked.")
    return _current[-1]
