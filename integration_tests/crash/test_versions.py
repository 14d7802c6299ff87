"""The same job on the Kafka versions that are about, with KIP-890's epoch bump and without it, and
across upgrades in the middle of a commit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import pytest
from kafka.admin import KafkaAdminClient
from kafka.protocol.producer.transaction import InitProducerIdRequest

from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.broker.settings import free_port
from eo_kafka.clients.kafka.control_plane import ControlPlane
from harness import (
    Copy,
    assert_exactly_once,
    committed_messages,
    kill_driver_at,
    make_copy,
    open_transactions,
    wait_until,
    wait_until_timed_out,
)

VALUES = [b"%d" % number for number in range(600)]


class Release(NamedTuple):
    """A Kafka, and the level at which it is told to finalize `transaction.version`."""

    version: str
    transactions: int

    def broker(self, **settings) -> KafkaBroker:
        level = self.transactions
        return KafkaBroker(
            version=self.version,
            features={"transaction.version": level} if level else {},
            **settings,
        )

    @property
    def end_txn(self) -> int:
        return 5 if self.transactions == 2 else 3


RELEASES = [
    Release("3.9.1", 0),  # it does not have the feature
    pytest.param(Release("4.0.1", 1), marks=pytest.mark.full),
    pytest.param(Release("4.0.1", 2), marks=pytest.mark.full),
    pytest.param(Release("4.3.1", 1), marks=pytest.mark.full),
    pytest.param(Release("4.4.0", 2), marks=pytest.mark.full),
]  # 4.3.1 at level 2 is what all other tests run on


def name_of(release: Release) -> str:
    return f"{release.version}-tv{release.transactions}"


def full(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.full)


@pytest.fixture(scope="module", params=RELEASES, ids=name_of)
def release(request) -> Iterator[tuple[Release, KafkaBroker]]:
    """Each version's broker once: pytest orders the tests by it."""
    with request.param.broker() as broker:
        yield request.param, broker


def copy_job(servers: str, tmp_path) -> Copy:
    return make_copy(servers, topic_maker(servers), tmp_path, VALUES)


@pytest.fixture
def job(release, tmp_path) -> Copy:
    return copy_job(release[1].bootstrap_servers, tmp_path)


def versions_of_decisions(job: Copy) -> list[int]:
    """The EndTxn version of each record of a decision, in the ledger's order."""
    return [
        json.loads(message.value())["endTxnVersion"]
        for message in committed_messages(job.servers, job.ledger)
        if message.key().startswith(b"decision/")
    ]


def run_until_killed(job: Copy, crash_points, point: str, log, outage: bool) -> None:
    """Run in a driver of its own that dies at `point`; after an outage, what it left is aborted."""
    job.timeout_ms = 10_000 if outage else job.timeout_ms
    kill_driver_at(job, crash_points, point, log)
    if outage:
        wait_until_timed_out(job)


@pytest.mark.parametrize(
    ("point", "outage"),
    [
        full("S7.after_first_end_txn", False),
        ("S7.after_first_end_txn", True),
        full("S6.before_decision", False),
        full("S6.before_decision", True),
        full("S6.after_decision", False),
        full("S6.after_decision", True),
        full("S7.after_last_end_txn", False),
        full("S8.after_done", False),
    ],
)
def test_a_driver_that_is_killed_loses_and_repeats_nothing(
    release, job, spark, crash_points, tmp_path, point, outage
):
    run_until_killed(job, crash_points, point, tmp_path / "log", outage)
    job.run(spark)
    assert set(versions_of_decisions(job)) == {release[0].end_txn}
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize(
    "point",
    [
        "S5.prepared",
        full("S2.after_init"),
        full("S3.while_writing"),
        full("S4.after_token"),
        full("S5.after_flush"),
    ],
)
def test_a_task_that_is_killed_is_retried_and_repeats_nothing(job, spark, crash_points, point):
    crash_points.arm(point, "kill")
    job.run(spark)
    assert crash_points.reached(point)
    assert_exactly_once(job, VALUES)


@pytest.mark.full
@pytest.mark.parametrize("outage", [False, True])
@pytest.mark.parametrize("version", ["4.0.1", "4.3.1"])
def test_a_decision_outlives_an_upgrade_of_transaction_version(
    spark, crash_points, tmp_path, version, outage
):
    with Release(version, 1).broker() as broker:
        job = copy_job(broker.bootstrap_servers, tmp_path)
        job.timeout_ms = 15_000 if outage else job.timeout_ms
        run_until_killed(job, crash_points, "S7.after_first_end_txn", tmp_path / "log", False)
        with closing(KafkaAdminClient(bootstrap_servers=job.servers)) as admin:
            answer = admin.update_features({"transaction.version": 2})
        assert set(answer.values()) == {"OK"}
        await_end_txn_version(job, 5)
        if outage:
            wait_until_timed_out(job)
        job.run(spark)
        # What was decided before is ended in its own version, what came after in the new one.
        assert {3, 5} == set(versions_of_decisions(job))
        assert_exactly_once(job, VALUES)


def await_end_txn_version(job: Copy, version: int) -> None:
    with closing(ControlPlane({"bootstrap.servers": job.servers})) as control:
        wait_until(lambda: control.end_txn_version() == version, "the feature is finalized")


def test_a_decision_outlives_an_upgrade_of_the_broker(spark, crash_points, tmp_path):
    port, folder = free_port(), tmp_path / "kafka"
    with Release("3.9.1", 0).broker(port=port, directory=folder) as old:
        job = copy_job(old.bootstrap_servers, tmp_path)
        run_until_killed(job, crash_points, "S7.after_first_end_txn", tmp_path / "log", False)
    with KafkaBroker(port, folder):
        assert open_transactions(job), "the prepared transaction did not survive"
        job.run(spark)
        assert_exactly_once(job, VALUES)


INIT_PRODUCER_ID, LOADING = 22, (14, 15, 16, 51)
UNSTABLE = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}


def init_producer_id(control: ControlPlane, keep_prepared: bool) -> int:
    """Ask in version 6 for a transaction that never times out; Kafka's error number."""

    async def ask() -> int:
        (node,) = await control._requests.coordinators(["probe"])
        request = InitProducerIdRequest(
            transactional_id="probe",
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
            enable2_pc=True,
            keep_prepared_txn=keep_prepared,
            min_version=6,
            max_version=6,
        )
        return (await control.admin._manager.send(request, node_id=node)).error_code

    control.describe_one("probe")
    return control._requests.run(ask)


def test_kafkas_own_two_phase_commit_is_not_usable_yet(broker):
    """KIP-939: when this fails, a prepared transaction could outlive its writer without a timeout
    (docs: `transactionTimeout`). Today version 6 is offered to nobody; where unstable versions are
    switched on, a transaction may be told not to time out, and not be kept by who takes its id."""
    with closing(ControlPlane({"bootstrap.servers": broker.bootstrap_servers})) as control:
        offered = control.admin.get_broker_version_data(1).api_versions[INIT_PRODUCER_ID]
    assert offered[1] == 5, "InitProducerId v6 is stable now"
    with (
        KafkaBroker(properties=UNSTABLE) as own,
        closing(ControlPlane({"bootstrap.servers": own.bootstrap_servers})) as control,
    ):
        answers = []
        wait_until(
            lambda: answers.append(init_producer_id(control, False)) or answers[-1] not in LOADING,
            "the coordinator is there",
        )
        assert answers[-1] == 0
        assert init_producer_id(control, True) == 35, "KeepPreparedTxn is usable now"
