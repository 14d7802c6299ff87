"""What the network does to a job: it is cut off, it waits, and answers to requests that were served
get lost. The job reaches its broker through a proxy, the checks go around it."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer

from conftest import topic_maker
from eo_kafka.clients.kafka import bootstrap
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.clients.kafka.transactional_id import TransactionalIds
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.testing.proxy import Action, Api, Proxy, proxied_broker
from harness import (
    JOB_TIMEOUT_S,
    Copy,
    assert_exactly_once,
    committed,
    committed_messages,
    kill_group,
    open_transactions,
    produce,
    started,
    wait_until,
    wait_until_timed_out,
)
from jobs.copy_job import start_copy

VALUES = [b"%d" % number for number in range(600)]
LOST, HELD, REFUSED = Action.LOSE_RESPONSE, Action.HOLD_RESPONSE, Action.REFUSE


@dataclass
class ProxiedCopy(Copy):
    """A copy that reaches the broker through `proxy`; `servers` is the checks' way."""

    proxy: int = 0

    def as_job(self) -> dict[str, object]:
        job = super().as_job()
        for options in (job["source_options"], job["sink_options"]):
            options["kafka.bootstrap.servers"] = f"127.0.0.1:{self.proxy}"
        return job

    @property
    def ids(self) -> TransactionalIds:
        return TransactionalIds("eo-kafka", self.job_name)

    @property
    def task_id(self) -> str:
        """What the transactional ids of partition 0's tasks begin with."""
        return self.ids.task("main", 0, 0, 0).rpartition(".g")[0]


@pytest.fixture(scope="module")
def broker_and_proxy() -> Iterator[tuple[object, Proxy]]:
    with proxied_broker() as both:
        yield both


@pytest.fixture
def network(broker_and_proxy) -> Iterator[Proxy]:
    proxy = broker_and_proxy[1]
    proxy.heal()
    yield proxy
    proxy.heal()


@pytest.fixture
def job(broker_and_proxy, network, tmp_path) -> ProxiedCopy:
    servers = broker_and_proxy[0].bootstrap_servers
    make_topic = topic_maker(servers)
    source = make_topic("in", partitions=2)
    produce(servers, source, VALUES)
    return ProxiedCopy(
        servers=servers,
        source_topic=source,
        sink_topic=make_topic("out", partitions=2),
        checkpoint=tmp_path / "checkpoint",
        job_name=f"job-{source}",
        proxy=network.port,
    )


@contextmanager
def running(job: Copy, spark) -> Iterator[object]:
    """The query in the tests' own session; it must end well by the end of the block."""
    query = start_copy(spark, job.as_job())
    try:
        yield query
        assert query.awaitTermination(JOB_TIMEOUT_S), "the query hangs"
    finally:
        query.stop()


def decisions(job: Copy) -> list[tuple[int, str, int]]:
    """(batch, state, generation) of each record of a decision, in the ledger's order."""
    found = [
        json.loads(message.value())
        for message in committed_messages(job.servers, job.ledger)
        if message.key().startswith(b"decision/")
    ]
    return [(one["batch"], one["state"], one["generation"]) for one in found]


def decided_once(job: Copy, batch: int = 0) -> int:
    """The generation of the one decision about `batch`. Who finds that it landed writes the same
    once more: that proves that the fence, under which it was found, is his."""
    (found,) = {one for one in decisions(job) if one[:2] == (batch, "DECIDED")}
    return found[2]


def await_reached(crash_points, point: str) -> None:
    """Wait for a job that may have a Spark to start before it gets to `point`."""
    wait_until(lambda: crash_points.reached(point), f"the job is at {point}", JOB_TIMEOUT_S)


def fence_coordinator(job: ProxiedCopy) -> None:
    """Take the coordinator's id, as another driver would: an open transaction of its is aborted,
    and what its holder sends from now on is refused."""
    taking = Producer({"bootstrap.servers": job.servers, "transactional.id": job.ids.coordinator})
    taking.init_transactions(30)


# Each is a request that was served. Which one of its kind: `after` so many others.
@pytest.mark.parametrize(
    ("api", "containing", "after"),
    [
        pytest.param(Api.CREATE_TOPICS, "ledger", 0, id="ledger-created", marks=pytest.mark.full),
        pytest.param(Api.INIT_PRODUCER_ID, "coordinator", 0, id="S1-fence"),
        pytest.param(Api.PRODUCE, "ledger", 0, id="S1-generation-written"),
        pytest.param(Api.END_TXN, "coordinator", 0, id="S1-generation-committed"),
        pytest.param(Api.LIST_TRANSACTIONS, "", 0, id="S1-listing"),
        pytest.param(Api.INIT_PRODUCER_ID, "task_id", 0, id="S2-a-tasks-id"),
        pytest.param(Api.ADD_PARTITIONS_TO_TXN, "task_id", 0, id="S3-first-partition"),
        pytest.param(Api.PRODUCE, "sink_topic", 0, id="S3-rows"),
        pytest.param(Api.PRODUCE, "ledger", 1, id="S4-token"),
        pytest.param(Api.DESCRIBE_TRANSACTIONS, "task_id", 1, id="S5-prepared"),
        pytest.param(Api.INIT_PRODUCER_ID, "coordinator", 1, id="S6-fence"),
        pytest.param(Api.PRODUCE, "ledger", 3, id="C7-decision-written"),
        pytest.param(Api.END_TXN, "coordinator", 1, id="C7-decision-committed"),
        pytest.param(Api.END_TXN, "task_id", 0, id="C10-participant-committed"),
        pytest.param(Api.END_TXN, "coordinator", 2, id="S8-done-committed"),
    ],
)
def test_a_lost_response_loses_and_repeats_nothing(job, network, spark, api, containing, after):
    where = job.ids.coordinator if containing == "coordinator" else getattr(job, containing, "")
    fault = network.add(api, LOST, where, after=after, times=1)
    job.run(spark)
    assert fault.served == 1, "no such response was lost"
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize(
    ("api", "containing"),
    [
        pytest.param(Api.INIT_PRODUCER_ID, "task_id", id="S2-a-tasks-id"),
        pytest.param(Api.PRODUCE, "sink_topic", id="S3-rows"),
        pytest.param(Api.END_TXN, "coordinator", id="S1-generation-committed"),
    ],
)
def test_a_response_that_never_comes_is_given_up(job, network, spark, api, containing):
    job.sink_extra = {"kafka.socket.timeout.ms": "3000"}
    where = job.ids.coordinator if containing == "coordinator" else getattr(job, containing)
    fault = network.add(api, HELD, where, times=1)
    job.run(spark)
    assert fault.served == 1, "no such response was held"
    assert_exactly_once(job, VALUES)


def test_the_ledgers_read_may_hang(job, network, spark, crash_points):
    job.sink_extra = {"kafka.socket.timeout.ms": "3000"}
    crash_points.arm("S1.after_generation", "wait")
    with running(job, spark):
        await_reached(crash_points, "S1.after_generation")
        fault = network.add(Api.FETCH, HELD, times=1)
        crash_points.release("S1.after_generation")
    assert len(fault.requests) == 1, "the ledger was not read"
    assert_exactly_once(job, VALUES)


# The decision's EndTxn is served and its answer lost, again and again, or it never arrives.
UNCERTAIN = pytest.mark.parametrize(
    "landed",
    [pytest.param(True, id="landed", marks=pytest.mark.full), pytest.param(False, id="not-landed")],
)


def make_uncertain(job, network, crash_points, landed: bool) -> None:
    """Let a driver that waits before its decision go on to one whose answer does not come."""
    await_reached(crash_points, "S6.before_decision")
    unknown = network.add(Api.END_TXN, LOST if landed else REFUSED, job.ids.coordinator)
    crash_points.release("S6.before_decision")
    wait_until(lambda: unknown.served if landed else unknown.requests, "EndTxn is sent")
    assert bool(decisions(job)) == landed


@UNCERTAIN
def test_c7_the_same_driver_finds_out_whether_its_decision_landed(
    job, network, spark, crash_points, landed
):
    crash_points.arm("S6.before_decision", "wait")
    with running(job, spark):
        make_uncertain(job, network, crash_points, landed)
        # The client library would ask on its own and be told. Now it is not told any more.
        fence_coordinator(job)
        network.heal()
    decided_once(job)
    assert_exactly_once(job, VALUES)


@UNCERTAIN
def test_c7_the_next_driver_finds_out_whether_a_decision_landed(
    job, network, spark, crash_points, tmp_path, landed
):
    crash_points.arm("S6.before_decision", "wait")
    with started(job, tmp_path / "log") as driver:
        make_uncertain(job, network, crash_points, landed)
        kill_group(driver)
        # Spark's Python workers are in a group of their own; this one would go on asking.
        with suppress(ProcessLookupError):
            os.kill(crash_points.reached("S6.before_decision"), signal.SIGKILL)
    network.heal()
    assert not committed(job.servers, job.sink_topic), "visible before the first EndTxn"
    job.run(spark)
    # One that landed is carried out; otherwise the batch is run again.
    assert decided_once(job) == (1 if landed else 2)
    assert_exactly_once(job, VALUES)


def test_c10_an_endtxn_that_arrives_twice_commits_once(job, network, spark):
    twice = network.add(Api.END_TXN, Action.REPEAT, job.task_id)
    job.run(spark)
    assert twice.served, "nothing was repeated"
    assert_exactly_once(job, VALUES)


def test_an_endtxn_that_arrives_late_hits_no_other_transaction(job, network, spark, crash_points):
    job.per_batch = 100
    ended = network.add(Api.END_TXN, Action.PASS, job.task_id)
    with running(job, spark):
        # Four batches later a partition's transactional id is used again.
        wait_until(lambda: len(ended.requests) >= 4, "four batches commit", JOB_TIMEOUT_S)
        crash_points.arm("S6.before_decision", "wait")
        await_reached(crash_points, "S6.before_decision")
        prepared = open_transactions(job)
        late = [one for one in ended.requests if any(name.encode() in one for name in prepared)]
        assert late, "no id is used for the second time"
        errors = [send(job.servers, request) for request in late]
        assert open_transactions(job) == prepared, f"ended by a late EndTxn: {errors}"
        assert all(errors)
        crash_points.release("S6.before_decision")
    assert_exactly_once(job, VALUES)


def send(servers: str, request: bytes) -> int:
    """Send a recorded EndTxn once more; return the error code it is answered with."""
    host, port = servers.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as broker:
        broker.sendall(request)
        response = broker.makefile("rb")
        body = response.read(int.from_bytes(response.read(4), "big"))
    # correlation id (4), tagged fields (1), throttle time (4), error code (2)
    return int.from_bytes(body[9:11], "big")


@pytest.mark.parametrize(
    ("point", "how"),
    [
        pytest.param("S6.before_decision", "cut", marks=pytest.mark.full),
        pytest.param("S6.before_decision", "hang", marks=pytest.mark.full),
        pytest.param("S6.after_decision", "cut", marks=pytest.mark.full),
        pytest.param("S6.after_decision", "hang", marks=pytest.mark.full),
        pytest.param("S7.after_first_end_txn", "cut", marks=pytest.mark.full),
        ("S7.after_first_end_txn", "hang"),
    ],
)
def test_a_driver_without_its_brokers_for_longer_than_the_transaction_timeout(
    job, network, spark, crash_points, point, how
):
    job.timeout_ms = 10_000
    crash_points.arm(point, "wait")
    query = start_copy(spark, job.as_job())
    try:
        await_reached(crash_points, point)
        network.cut() if how == "cut" else network.hang("requests")
        crash_points.release(point)
        wait_until_timed_out(job)
        network.heal()
        with pytest.raises(Exception, match="ParticipantsLost"):
            query.awaitTermination(JOB_TIMEOUT_S)
    finally:
        query.stop()
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.mark.full
@pytest.mark.parametrize(
    ("point", "error"),
    [("S6.before_decision", "OutcomeUnknown"), ("S7.after_first_end_txn", "OutcomeUnknown")],
)
def test_a_driver_that_never_sees_its_brokers_again_stops(
    job, network, spark, crash_points, point, error
):
    crash_points.arm(point, "wait")
    query = start_copy(spark, job.as_job())
    try:
        await_reached(crash_points, point)
        network.cut()
        crash_points.release(point)
        with pytest.raises(Exception, match=error):
            query.awaitTermination(500)
    finally:
        query.stop()
    network.heal()
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_responses_that_come_late_are_used(job, network, spark, crash_points):
    crash_points.arm("S6.after_decision", "wait")
    with running(job, spark):
        await_reached(crash_points, "S6.after_decision")
        network.hang("responses")
        crash_points.release("S6.after_decision")
        wait_until(lambda: not open_transactions(job), "all EndTxns are served")
        assert decisions(job) == [(0, "DECIDED", 1)]
        network.heal()
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize("attempts", [1, 2], ids=["short", "until-the-task-gives-up"])
def test_a_task_that_is_cut_off_from_the_output_goes_on_or_is_retried(
    job, network, spark, attempts
):
    job.sink_extra = {"kafka.message.timeout.ms": "5000"}
    taken = network.add(Api.INIT_PRODUCER_ID, Action.PASS, job.task_id)
    cut = network.add(Api.PRODUCE, REFUSED, job.sink_topic)
    with running(job, spark):
        wait_until(lambda: len(cut.requests) >= 3, "the task writes", JOB_TIMEOUT_S)
        wait_until(lambda: len(taken.requests) >= attempts, "the task is tried again")
        cut.times = 0
    batches = len({batch for batch, _, _ in decisions(job)})
    retries = len(taken.requests) - batches
    assert (retries > 0) == (attempts > 1), f"{retries} retries"
    assert_exactly_once(job, VALUES)


def test_brokers_that_take_connections_and_answer_nothing_are_passed_over(broker, monkeypatch):
    """As a stopped one does, or one that is cut off behind a load balancer. kafka-python chooses a
    server at random, and gives it all the time there is."""
    monkeypatch.setattr(bootstrap, "PATIENCE_S", 0.3)
    with silent_server() as one, silent_server() as other:
        servers = f"{one}, {other},{broker.bootstrap_servers}"
        before = set(threading.enumerate())  # of which some may be ending
        for _ in range(4):
            with closing(ControlPlane({"bootstrap.servers": servers})) as control:
                assert control.transaction_version() == 2
    assert set(threading.enumerate()) <= before, "those that were tried in vain go on"


def test_brokers_that_refuse_connections_cost_no_time(broker):
    """As those do that are down, in a rolling restart, say."""
    with silent_server() as one, silent_server() as other:
        down = f"{one},{other}"
    began = time.monotonic()
    for _ in range(6):
        with closing(ControlPlane({"bootstrap.servers": f"{down},{broker.bootstrap_servers}"})):
            pass
    assert time.monotonic() - began < bootstrap.PATIENCE_S


def test_where_all_are_silent_that_is_told_after_the_time_there_is(monkeypatch):
    monkeypatch.setattr(bootstrap, "PATIENCE_S", 0.1)
    monkeypatch.setattr(bootstrap, "TIMEOUT_S", 2.0)
    with silent_server() as one, silent_server() as other:
        began = time.monotonic()
        with pytest.raises(EnvironmentRefused, match=rf"No Kafka broker at {one},{other} could be"):
            ControlPlane({"bootstrap.servers": f"{one},{other}"})
    assert 2 <= time.monotonic() - began < 6


@contextmanager
def silent_server() -> Iterator[str]:
    """The kernel takes connections to it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
