"""What can be done to the brokers, and by a foreign program that writes and aborts."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from eo_kafka.broker.embedded import KafkaBroker, KafkaCluster
from eo_kafka.clients.kafka.transactional_id import TransactionalIds, log_partition
from harness import wait_until
from soak.supervisor import Job
from soak.workload import ABORTED, PARTITIONS

Details = dict[str, Any]
TRANSACTION_LOG = "__transaction_state"
HEAL_S = 120.0


class Brokers:
    """The cluster as the nemesis sees it: one broker at most is down at a time."""

    def __init__(self, kafka: KafkaCluster, jobs: Sequence[Job]) -> None:
        self.kafka, self.jobs = kafka, jobs
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        self._admin = AdminClient({**settings, "allow.auto.create.topics": False})

    def heal(self) -> None:
        """Start what is down, and wait until every replica is in sync."""
        for broker in self.kafka.brokers:
            broker.start()
        wait_until(self._in_sync, "all replicas are in sync", HEAL_S)

    def _in_sync(self) -> bool:
        try:
            metadata = self._admin.list_topics(timeout=5)
        except KafkaException:
            return False
        return len(metadata.brokers) == len(self.kafka.brokers) and all(
            len(partition.isrs) == len(partition.replicas)
            for topic in metadata.topics.values()
            for partition in topic.partitions.values()
        )

    def coordinator_of(self, job: Job) -> KafkaBroker | None:
        """The broker that coordinates the transactions of a job's driver."""
        name = TransactionalIds("eo-kafka", job.kafka.job_name).coordinator
        try:
            log = self._admin.list_topics(TRANSACTION_LOG, timeout=5).topics[TRANSACTION_LOG]
            leader = log.partitions[log_partition(name, len(log.partitions))].leader
        except (KafkaException, KeyError, ZeroDivisionError):  # it is made with the first use
            return None
        return next((one for one in self.kafka.brokers if one.node_id == leader), None)


def kill_broker(brokers: Brokers, chance: random.Random) -> Details:
    """SIGKILL a broker, and start it again a little later."""
    return _kill(chance.choice(brokers.kafka.brokers), chance)


def kill_coordinator(brokers: Brokers, chance: random.Random) -> Details | None:
    """SIGKILL the broker that coordinates a job's transactions."""
    job = chance.choice(brokers.jobs)
    broker = brokers.coordinator_of(job)
    return None if broker is None else {"of": job.name, **_kill(broker, chance)}


def _kill(broker: KafkaBroker, chance: random.Random) -> Details:
    seconds = chance.uniform(0, 8)
    broker.kill()
    time.sleep(seconds)
    broker.start()
    return {"broker": broker.node_id, "seconds": round(seconds, 1)}


def bounce_broker(brokers: Brokers, chance: random.Random) -> Details:
    """Stop a broker in order, and start it again."""
    broker = chance.choice(brokers.kafka.brokers)
    broker.restart()
    return {"broker": broker.node_id}


def pause_broker(brokers: Brokers, chance: random.Random) -> Details:
    """SIGSTOP a broker for a while: its leaderships go to others, and it does not know."""
    broker = chance.choice(brokers.kafka.brokers)
    seconds = chance.uniform(1, 10)
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    return {"broker": broker.node_id, "seconds": round(seconds, 1)}


def abort_writes(brokers: Brokers, chance: random.Random) -> Details | None:
    """A foreign transaction writes tagged records into a job's input and output, and aborts."""
    job = chance.choice(brokers.jobs)
    writer = Producer(
        {
            "bootstrap.servers": brokers.kafka.bootstrap_servers,
            "transactional.id": "soak-foreign",
            "allow.auto.create.topics": False,
            "transaction.timeout.ms": 15_000,
            "log_level": 0,
        }
    )
    seconds = chance.uniform(0, 4)
    try:
        writer.init_transactions(20)
        writer.begin_transaction()
        for topic in (job.kafka.source_topic, job.kafka.sink_topic):
            for partition in range(PARTITIONS):
                writer.produce(topic, f"{ABORTED}foreign", partition=partition)
        writer.flush(10)
        time.sleep(seconds)
        writer.abort_transaction(20)
    except KafkaException:
        return None
    return {"of": job.name, "seconds": round(seconds, 1)}


class BrokerFault(NamedTuple):
    """`weight` is how often it is picked, beside the others'."""

    name: str
    weight: int
    strike: Callable[[Brokers, random.Random], Details | None]


BROKER_FAULTS = (
    BrokerFault("kill a broker", 2, kill_broker),
    BrokerFault("kill a coordinator", 2, kill_coordinator),
    BrokerFault("bounce a broker", 2, bounce_broker),
    BrokerFault("pause a broker", 2, pause_broker),
    BrokerFault("aborted writes", 4, abort_writes),
)
