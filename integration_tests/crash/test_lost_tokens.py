"""Records of the ledger's token partition that are gone: deleted by hand or by age, or lost with an
unclean leader election. That no token is there does not say then that nothing was committed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from eo_kafka.broker.embedded import KafkaCluster
from eo_kafka.errors import LedgerError
from eo_kafka.sinks.batches.committable import TaskReport
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol.finisher import Finisher
from eo_kafka.state.ledger import settled_tokens
from eo_kafka.state.ledger.topics import TOKEN_PARTITION
from eo_kafka.testing.processes import wait_until
from eo_kafka.tools import cli
from hand_made_job import cut_log
from hand_made_tasks import HandMadeTasks
from harness import control_plane
from leaderless import brought, died, expected, make, run, visible

AT_THE_COMMIT = {"before the EndTxn": "_end_all", "after it": "end_others"}


def die_in_batch_1(job: HandMadeTasks, monkeypatch: pytest.MonkeyPatch, where: str) -> TaskReport:
    """The batch is decided. Returns what its task reported."""
    report = job.write(job.plan(), brought(1), batch=1)
    with monkeypatch.context() as dying:
        dying.setattr(Finisher, where, died)
        with pytest.raises(KeyboardInterrupt):
            job.commit(report)
    return report


def delete_tokens(job: HandMadeTasks) -> None:
    cut_log(job.servers, job.options.job_and_ledger[1], -1, TOKEN_PARTITION)


def listed(job: HandMadeTasks, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    cli.main(["txn", "list", "--job", job.name, "--json", "--bootstrap-servers", job.servers])
    told = capsys.readouterr().out
    assert json.loads(told)
    return told


def command(job: HandMadeTasks, *words: str) -> int:
    return cli.main(["job", words[0], job.name, *words[1:], "--bootstrap-servers", job.servers])


@pytest.mark.parametrize("answered", [True, False])
def test_tokens_that_were_deleted_do_not_make_a_committed_batch_void(
    broker, make_topic, monkeypatch, capsys, answered
):
    """Kafka says of the transactions that they are committed: then no person is asked. Or it has
    forgotten them."""
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out", partitions=2))
    run(job, 0)
    die_in_batch_1(job, monkeypatch, AT_THE_COMMIT["after it"])
    delete_tokens(job)
    assert "Kafka aborted it" not in listed(job, capsys)
    if not answered:
        with monkeypatch.context() as forgotten:
            forgotten.setattr(Finisher, "_end_all", lambda *_: set())
            for _ in range(2):
                with pytest.raises(LedgerError, match=r"begins at offset \d+.*repair .*--batch 1"):
                    run(job, 1)
            assert visible(job) == expected(0, 1)
            assert command(job, "repair", "--batch", "1", "--accept-loss") == 0
    run(job, 1, 2)
    assert visible(job) == expected(0, 1, 2)


def test_what_kafka_says_is_aborted_is_written_again(broker, make_topic, monkeypatch, capsys):
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out", partitions=2))
    run(job, 0)
    report = die_in_batch_1(job, monkeypatch, AT_THE_COMMIT["before the EndTxn"])
    assert report.participant is not None
    with control_plane(job.servers) as control:
        control.end([report.participant.identity], commit=False, version=report.end_txn_version)
    delete_tokens(job)
    told = listed(job, capsys)
    assert "Kafka aborted it" in told
    run(job, 1, 2)
    assert visible(job) == expected(0, 1, 2)


def test_tokens_that_were_deleted_are_told_where_tasks_commit_by_themselves(
    broker, make_topic, caplog
):
    """Their rows come again, and not in silence; later batches are exact."""
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out", partitions=2), "idempotent")
    run(job, 0)
    job.write(job.plan(), brought(1), batch=1)
    delete_tokens(job)
    run(job, 1)
    assert "begins at offset" in caplog.text and "writes their rows again" in caplog.text
    assert visible(job) == expected(0, 1, 1)
    run(job, 2)
    assert visible(job) == expected(0, 1, 1, 2)


def unclean_job(three: KafkaCluster, commit: str = "two-phase") -> HandMadeTasks:
    """Of each partition of its ledger there are two replicas."""
    a, b, c = (one.node_id for one in three.brokers)
    name = f"tasks-{uuid.uuid4().hex[:8]}"
    ledger = f"__eo_kafka.{name}.ledger"
    compacted = {"cleanup.policy": "compact"}
    topic = NewTopic(ledger, 2, replica_assignment=[[c, b], [a, b]], config=compacted)
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers})
    admin.create_topics([topic])[ledger].result(30)
    job = HandMadeTasks(three.bootstrap_servers, make(three, "out", [2], [2]), commit, name=name)
    given = {"kafka.bootstrap.servers": job.servers, "jobName": name, "topic": job.topic or ""}
    job.options = SinkOptions.parse(
        {**given, "commit": commit, "allowWeakReplication": "true"}, streaming=True
    )
    return job


def set_weak(admin: AdminClient, ledger: str, *, weak: bool) -> None:
    """The topic's settings; weak, no command runs, and the job only because it is told to."""
    settings = {
        "min.insync.replicas": "1" if weak else "2",
        "unclean.leader.election.enable": str(weak).lower(),
    }
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, ledger, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


@contextmanager
def losing_tokens(three: KafkaCluster, job: HandMadeTasks) -> Iterator[None]:
    """What is written to the token partition meanwhile: its leader goes, and a replica leads that
    has none of it."""
    a, b, _ = three.brokers
    _, ledger = job.options.job_and_ledger
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers, "log_level": 0})

    def led_by(leader: int, *in_sync: int) -> bool:
        try:
            found = admin.list_topics(ledger, timeout=30).topics[ledger].partitions
        except KafkaException:
            return False
        tokens = found[TOKEN_PARTITION]
        return tokens.leader == leader and (not in_sync or {*tokens.isrs} == {*in_sync})

    wait_until(lambda: led_by(a.node_id, a.node_id, b.node_id), "a leads")
    set_weak(admin, ledger, weak=True)
    b.kill()
    wait_until(lambda: led_by(a.node_id, a.node_id), "b is out", 60)
    yield
    a.kill()
    b.start()
    wait_until(lambda: led_by(b.node_id), "b leads", 60)
    a.start()
    set_weak(admin, ledger, weak=False)
    wait_until(lambda: led_by(b.node_id, a.node_id, b.node_id), "a follows", 60)
    with control_plane(job.servers) as control:  # whose broker may have gone meanwhile
        name = job.options.ids.coordinator
        wait_until(lambda: not control.describe_one(name).state.is_completing, "it has ended", 60)


@pytest.mark.parametrize("when", AT_THE_COMMIT)
@pytest.mark.parametrize("reset", [False, True])
def test_tokens_that_an_unclean_election_lost(three, monkeypatch, when, reset):
    """A marker that comes later lands where the token was: then nothing seems to lack. Kafka says
    that its transaction is committed."""
    monkeypatch.setattr(settled_tokens, "STABLE_TIMEOUT_S", 10.0)
    job = unclean_job(three)
    run(job, 0)
    with losing_tokens(three, job):
        die_in_batch_1(job, monkeypatch, AT_THE_COMMIT[when])
    if reset:
        assert command(job, "reset") == 0
        assert visible(job) == expected(0, 1)
        return
    run(job, 1, 2)
    assert visible(job) == expected(0, 1, 2)


def test_of_tokens_that_an_unclean_election_lost_kafka_may_say_no_more(three, monkeypatch):
    monkeypatch.setattr(settled_tokens, "STABLE_TIMEOUT_S", 10.0)
    job = unclean_job(three)
    run(job, 0)
    with losing_tokens(three, job):
        die_in_batch_1(job, monkeypatch, AT_THE_COMMIT["after it"])
    monkeypatch.setattr(Finisher, "_end_all", lambda *_: set())
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"Batch 1 .*lost.*repair .*--batch 1"):
            run(job, 1)
        assert visible(job) == expected(0, 1)
    assert command(job, "reset") == 1
    assert command(job, "repair", "--batch", "1", "--accept-loss") == 0
    monkeypatch.undo()
    run(job, 1, 2)
    assert visible(job) == expected(0, 1, 2)
