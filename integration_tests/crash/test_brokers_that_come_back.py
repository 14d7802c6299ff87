"""A broker is restarted under a job, and coordinates transactions again after an election: clients
have learnt meanwhile that it is away, and hear for minutes of nobody that it is back."""

from __future__ import annotations

import threading

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

from eo_kafka.broker.embedded import KafkaCluster
from eo_kafka.clients.kafka import control_plane
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer
from eo_kafka.sinks.protocol.finisher import Finisher
from eo_kafka.testing.processes import wait_until
from hand_made_tasks import HandMadeTasks, StuckTask, batch_of, wait_open
from harness import committed
from leaderless import (
    GOES,
    STAYS,
    WRITTEN,
    brought,
    come_back,
    expected,
    make,
    run,
    take_away,
    told,
    visible,
)
from test_broker_failures import await_in_sync


def coordinated_by_it(three: KafkaCluster, topic: str, ledger: str = "") -> HandMadeTasks:
    """A job whose second batch's first id has the broker that goes for its coordinator."""
    while True:
        job = HandMadeTasks(three.bootstrap_servers, topic)
        if ledger:
            given = {"kafka.bootstrap.servers": job.servers, "topic": topic, "jobName": job.name}
            job.options = SinkOptions.parse({**given, "ledgerTopic": ledger}, streaming=True)
        first, *_ = job.options.ids.attempt_slots("main", 0, 2, 0)
        control = control_plane.shared(job.options.kafka)
        (node,) = control.ask(control._requests.coordinators, [first])
        if int(str(node).removeprefix("coordinator-")) == three.brokers[GOES].node_id:
            return job


def hears_that_it_is_away(job: HandMadeTasks) -> None:
    """As by any request that gets no answer."""
    control = control_plane.shared(job.options.kafka)
    control._requests.refresh()
    cluster = control.admin._manager.cluster
    wait_until(lambda: len(cluster.brokers()) == 2, "the driver knows of two brokers")


def test_what_is_done_can_be_read(three):
    """An attempt is lost, whose coordinator was away before it began."""
    come_back(three)
    topic = make(three, "out", [STAYS, 1, GOES])
    ledger = make(three, "ledger", [0, 1, 2], [1, 0, 2], **{"cleanup.policy": "compact"})
    job = coordinated_by_it(three, topic, ledger)
    job.commit(job.write(job.plan(), iter([batch_of(b"0")])))
    three.brokers[GOES].stop()
    hears_that_it_is_away(job)
    come_back(three)
    plan = job.plan()
    lost = StuckTask(lambda rows: job.write(plan, rows, batch=1), b"lost")
    wait_open(job, 1)
    job.commit(job.write(plan, iter([batch_of(b"1")]), batch=1, attempt=1))
    assert job.open() == []
    assert committed(job.servers, topic) == {b"0": 1, b"1": 1}
    threading.Thread(target=lost.end, daemon=True).start()


def test_a_coordinator_that_is_about_to_load_is_waited_for(three, monkeypatch):
    """An election moves the coordinator of a lost attempt just before S7 lists. The new one leads
    its partition of the log a moment before it begins to load it, and lists nothing of it."""
    come_back(three)
    make(three, "others", *[[GOES, 1, STAYS]] * 100)  # it begins to lead these first
    topic = make(three, "out", [STAYS, 1, GOES])
    ledger = make(three, "ledger", [0, 1, 2], [1, 0, 2], **{"cleanup.policy": "compact"})
    job = coordinated_by_it(three, topic, ledger)
    job.commit(job.write(job.plan(), iter([batch_of(b"0")])))
    three.brokers[GOES].stop()
    three.brokers[GOES].start()
    admin = AdminClient({"bootstrap.servers": job.servers, "log_level": 0})
    plan, finish = job.plan(), Finisher.finish
    lost = StuckTask(lambda rows: job.write(plan, rows, batch=1), b"lost")
    wait_open(job, 1)
    report = job.write(plan, iter([batch_of(b"1")]), batch=1, attempt=1)

    def elected(*given):
        admin.elect_leaders(ElectionType.PREFERRED).result(60)
        return finish(*given)

    await_in_sync(three)  # only then the broker may be elected
    monkeypatch.setattr(Finisher, "finish", elected)
    job.commit(report)
    assert job.open() == []
    assert committed(job.servers, topic) == {b"0": 1, b"1": 1}
    threading.Thread(target=lost.end, daemon=True).start()


def test_what_was_aborted_does_not_come_back(three, caplog):
    """Kafka leaves out that it was (KAFKA-20734), and only its coordinator tells whose it is."""
    come_back(three)
    job = coordinated_by_it(three, make(three, "out", [STAYS], [GOES]))
    run(job, 0)
    lost = job.write(job.plan(), brought(1), batch=1)
    take_away(three, job.topic)
    committer.abort(job.options, [lost])
    hears_that_it_is_away(job)
    come_back(three)
    for batch in range(1, 7):
        run(job, batch)
        assert visible(job) == expected(*range(batch + 1))
    (said,) = told(caplog)
    assert WRITTEN in said
    assert "(0 committed)" in said
