"""Creates a compacted topic with the settings it needs, or checks an existing one. Runs on the
driver."""

from __future__ import annotations

import logging
from typing import Any

from ...clients.kafka import topics
from ...clients.kafka.topics import exists
from ...core.errors import EnvironmentRefused
from . import unused_topic
from .job import Job
from .job_topics import OURS
from .topic_settings import GIVE_MORE, REPLICAS, faults, wanted_settings

log = logging.getLogger(__name__)


def ensure(admin: Any, name: str, partitions: int, brokers: int) -> list[str]:
    """Create it, or check it; what could lose an acknowledged record, a sentence each. One of ours
    that never held a record is set right: where brokers create what they are asked about, any
    tool's look-up may have made it. Raises EnvironmentRefused where it cannot be used at all."""
    if not exists(admin, name):
        create(admin, name, partitions, brokers)
    refusals, weak = faults(admin, name, partitions, brokers)
    if (refusals or weak) and name.startswith(OURS) and unused_topic.is_unused(admin, name):
        try:
            return unused_topic.set_right(admin, name, partitions, brokers)
        except EnvironmentRefused as error:
            if refusals:
                raise
            return [*weak, str(error)]
    if refusals:
        raise EnvironmentRefused(" ".join(refusals))
    return weak


def ensure_one(job: Job, admin: Any, name: str, brokers: int) -> None:
    """Create or check a topic of one partition that the job's own records go to: an export, a
    view. Raises EnvironmentRefused."""
    judge(job, ensure(admin, name, 1, brokers), "losing records of it")


def check_keeps(admin: Any, name: str, brokers: int) -> None:
    """Look at a topic that is only read here. What could lose a record is logged. Raises
    EnvironmentRefused if Kafka deletes records by age."""
    refusals, weak = faults(admin, name, 1, brokers)
    if refusals:
        raise EnvironmentRefused(" ".join(refusals))
    if weak:
        log.warning("%s", " ".join(weak))


def judge(job: Job, problems: list[str], loss: str) -> None:
    """Tell what could lose an acknowledged record. Raises EnvironmentRefused, unless the job has
    option `allowWeakReplication`; `loss` is what that accepts."""
    if problems and job.allow_weak_replication:
        log.warning("allowWeakReplication: %s", " ".join(problems))
    elif problems:
        raise EnvironmentRefused(
            " ".join(problems) + " Correct this, or set option 'allowWeakReplication' to true "
            f"if {loss} is acceptable."
        )


def create(admin: Any, name: str, partitions: int, brokers: int) -> None:
    """Create it, unless somebody has. With three replicas: of `brokers`, those that live, one may
    be away for a moment, and its replica is made when it is back. Raises EnvironmentRefused."""
    from confluent_kafka.admin import NewTopic

    asked = []

    def with_replicas(number: int) -> Any:
        asked.append(number)
        wanted = wanted_settings(number)
        return NewTopic(name, num_partitions=partitions, replication_factor=number, config=wanted)

    by_hand = f"{partitions} partition(s), cleanup.policy=compact"
    is_new = topics.create(
        admin,
        with_replicas(REPLICAS),
        f"Create it by hand ({by_hand}), or grant Create on it.",
        dispensable=wanted_settings(REPLICAS).keys() - {"cleanup.policy"},  # `faults` judges
        with_replicas=with_replicas,
        named="If it is its name: the names of a job's topics come from 'jobName', so take another "
        "one; or set option 'ledgerTopic' (of the state topic: 'stateTopic'; for exports, views, "
        "plans and control topics there is none). Else let who runs the brokers create it "
        f"({by_hand}).",
    )
    if is_new and 0 < asked[-1] < REPLICAS and brokers > 1:
        log.warning(
            "Topic '%s' has %d replicas: so many brokers are all that Kafka knows of now. %s",
            name,
            asked[-1],
            GIVE_MORE,
        )
