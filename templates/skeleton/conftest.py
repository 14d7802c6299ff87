"""The fixture `tested`: this project's job, with topics of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import pytest

import job
from eo_kafka.testing import Broker, Job
from generate import TOPICS
from pipeline import Settings
from rows import Made, Row
from streams import typed


class Tested:
    """The job as config.toml describes it. `job` may be killed at any step."""

    __test__ = False  # pytest takes it for tests by its name

    def __init__(self, broker: Broker, make: Callable[..., Job]) -> None:
        self.topics = {
            role: broker.topic(role, config={"cleanup.policy": policy})
            for role, policy in TOPICS.items()
        }
        config = {**job.config("job"), **{r: one.real_name for r, one in self.topics.items()}}
        del config["job_name"]  # the test has one of its own
        spark = job.config("spark")
        source = "source" if "source" in self.topics else None  # a queue is none of Kafka's
        self.job = make("pipeline:build", source=source, sink="sink", config=config, spark=spark)
        self.settings = typed(Settings, self.job.config)

    def write(self, rows: Iterable[Made]) -> None:
        """Write what generate.py has made into the topics that it is for."""
        listed = [*rows]
        for role, topic in self.topics.items():
            topic.write([(key, value) for of, key, value in listed if of == role])

    def rows(self, role: str) -> list[Row]:
        """What is in a topic of JSON, in its order."""
        found = self.topics[role].read()
        return [((one.key or b"").decode(), json.loads(one.value or b"null")) for one in found]


@pytest.fixture
def tested(eo_broker: Broker, eo_job: Callable[..., Job]) -> Tested:
    """One for each test."""
    return Tested(eo_broker, eo_job)
