"""`eo-kafka run` with real jobs: drivers and JVMs are killed, and the output is exact."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eo_kafka.broker.settings import free_port
from harness import (
    Copy,
    assert_exactly_once,
    assert_settled,
    committed,
    make_copy,
    open_tasks,
    produce,
    wait_until,
)
from supervisors import LONG_S, Supervised, supervised, values


def asked(port: int, path: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def scraped(port: int) -> dict[str, float]:
    """What Prometheus is told, by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
    return {" ".join([one.name, *one.labels.values()]): one.value for one in samples}


def fed(job: Copy, more: list[bytes]) -> list[bytes]:
    """More input; it is returned."""
    produce(job.servers, job.source_topic, more)
    return more


def await_rows(running: Supervised, job: Copy, at_least: int) -> None:
    wait_until(
        lambda: committed(job.servers, job.sink_topic).total() >= at_least,
        f"{at_least} rows: {running.said()[-2000:]}",
        LONG_S,
    )


def killed_at_random(running: Supervised, job: Copy, kills: int, first: int) -> list[bytes]:
    """Kills drivers at any moment of their lives, some before their first batch; each death is
    followed by a hundred more values, from `first` on, which are returned."""
    more: list[bytes] = []
    for number in range(kills):
        wait_until(lambda at=number: running.said().count("Driver started") > at, "it is started")
        if number % 2 == 0:  # the odd ones may die in their start
            before = committed(job.servers, job.sink_topic).total()
            await_rows(running, job, before + random.randint(1, 40))
        time.sleep(random.uniform(0, 6))
        running.kill("driver")
        more += fed(job, values(first + len(more), 100))
    return more


def in_its_batch(job: Copy, crash_points, happens: Callable[[], object]) -> list[bytes]:
    """Fifty more values, which are returned; something `happens` when they are written, before
    they are committed."""
    crash_points.clear()
    crash_points.arm("S5.prepared", "wait")
    more = fed(job, values(committed(job.servers, job.sink_topic).total(), 50))
    crash_points.wait_reached("S5.prepared")
    happens()
    crash_points.release("S5.prepared")
    return more


def lag(port: int) -> list[float]:
    """The sum over all partitions, of each query."""
    found = [of for name, of in scraped(port).items() if name.startswith("eo_kafka_lag_records")]
    return [sum(found)] if found else []


def test_a_job_that_is_killed_again_and_again_is_exact_and_ends_in_order(
    broker, make_topic, tmp_path
):
    servers, port, killed = broker.bootstrap_servers, free_port(), ("java", "driver")
    wanted = values(0, 100)
    job = make_copy(servers, make_topic, tmp_path, wanted, per_batch=40)
    of_metrics = free_port()
    words = ["--restart", "fixed:100ms", "--health", str(port), "--metrics", str(of_metrics)]
    with supervised(job, tmp_path, *words) as running:
        for number, what in enumerate(killed):
            await_rows(running, job, 100 * number + random.randint(1, 100))
            running.kill(what)
            wanted += fed(job, values(len(wanted), 100))
        await_rows(running, job, len(wanted))
        wait_until(lambda: asked(port, "ready")[0] == 200, "it is ready")
        assert asked(port, "live")[1]["restarts"] == len(killed)
        wait_until(lambda: lag(of_metrics) == [0.0], "the last driver has read all")
        seen = scraped(of_metrics)
        assert seen["eo_kafka_run_restarts_total"] == len(killed)
        assert seen["eo_kafka_run_phase running"] == 1
        assert seen["eo_kafka_run_stuck"] == 0
        assert [of for name, of in seen.items() if name.startswith("eo_kafka_query_active")] == [1]
        running.process.terminate()
        assert running.await_ended() == 0, running.said()[-2000:]
        assert running.living() == []
        assert running.said().count("Driver started") == len(killed) + 1
    assert_exactly_once(job, wanted)


@pytest.mark.full
def test_ten_kills_and_a_batch_that_raises_each_time_leave_the_output_exact(
    broker, make_topic, tmp_path
):
    """Five kills, the poison, of which the supervisor gives up; its cause is mended, five more."""
    wanted = values(0, 100)
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, wanted, per_batch=40)
    handled, second = tmp_path / "handled", tmp_path / "second"
    second.mkdir()
    words = ["--restart", "fixed:100ms"]
    of_job = {"function": "jobs.proved_jobs:picky", "handled": str(handled)}
    with supervised(job, tmp_path, *words, "--give-up-after", "8", **of_job) as running:
        wanted += killed_at_random(running, job, 5, len(wanted))
        wanted += fed(job, [*values(len(wanted), 50), b"poison", *values(len(wanted) + 50, 50)])
        assert running.await_ended() == 1, running.said()[-2000:]
        assert running.living() == []
        said = running.said()
        assert "Gave up. It died 8 times without a healthy run between." in said
        assert said.count("Driver started") == 8
        assert "this job does not take poison" in said
    found = committed(job.servers, job.sink_topic)
    assert found <= Counter(wanted) and found.total() >= 500 and b"poison" not in found
    handled.touch()
    with supervised(job, second, *words, **of_job) as running:
        wanted += killed_at_random(running, job, 5, len(wanted) - 1)
        await_rows(running, job, len(wanted))
        running.process.terminate()
        assert running.await_ended() == 0, running.said()[-2000:]
        assert running.said().count("Driver started") == 6
    assert_exactly_once(job, wanted)


@pytest.mark.parametrize(
    ("grace", "signals"),
    [("1s", 1), pytest.param("1h", 2, marks=pytest.mark.full)],
    ids=["its-grace-is-over", "asked-twice"],
)
def test_a_job_that_is_asked_to_end_in_its_batch_leaves_nothing_open(
    broker, make_topic, tmp_path, crash_points, spark, grace, signals
):
    wanted = values(0, 50)
    job = make_copy(
        broker.bootstrap_servers, make_topic, tmp_path, wanted, timeout_ms=600_000, per_batch=50
    )
    crash_points.arm("S5.prepared", "wait")
    with supervised(job, tmp_path, "--grace", grace) as running:
        crash_points.wait_reached("S5.prepared")
        wait_until(lambda: len(open_tasks(job)) == 2, "both tasks have written")
        for _ in range(signals):
            told = running.said().count("Asked to end")
            running.process.send_signal(signal.SIGTERM)
            wait_until(lambda told=told: running.said().count("Asked to end") > told, "it heard")
        assert running.await_ended() == 0, running.said()[-2000:]
        assert running.living() == []
    assert_settled(job)
    crash_points.clear()
    job.run(spark)
    assert_exactly_once(job, wanted)


@pytest.mark.full
def test_a_script_that_is_asked_to_end_in_its_batch_leaves_nothing_open(
    broker, make_topic, tmp_path, crash_points, spark
):
    """It has no handler: Spark is shut down, and the process beside its driver ends the rest."""
    wanted = values(0, 50)
    job = make_copy(
        broker.bootstrap_servers, make_topic, tmp_path, wanted, timeout_ms=600_000, per_batch=50
    )
    crash_points.arm("S5.prepared", "wait")
    with supervised(job, tmp_path, script=True) as running:
        crash_points.wait_reached("S5.prepared")
        wait_until(lambda: len(open_tasks(job)) == 2, "both tasks have written")
        running.process.terminate()
        assert running.await_ended() == 0, running.said()[-2000:]
        assert running.living() == []
    assert_settled(job)
    crash_points.clear()
    job.run(spark)
    assert_exactly_once(job, wanted)


@pytest.mark.full
def test_a_batch_that_is_decided_is_not_left_open(broker, make_topic, tmp_path, crash_points):
    """It is stopped between its decision and the first of its commits: Spark lets those end."""
    wanted = values(0, 50)
    job = make_copy(
        broker.bootstrap_servers, make_topic, tmp_path, wanted, timeout_ms=600_000, per_batch=50
    )
    crash_points.arm("S6.after_decision", "wait")
    with supervised(job, tmp_path, "--grace", "1s") as running:
        crash_points.wait_reached("S6.after_decision")
        running.process.terminate()
        wait_until(lambda: "the query is stopped." in running.said(), "its grace is over")
        crash_points.release("S6.after_decision")
        assert running.await_ended() == 0, running.said()[-2000:]
    assert_exactly_once(job, wanted)


@pytest.mark.full
def test_a_batch_that_runs_may_end(broker, make_topic, tmp_path, crash_points):
    wanted = values(0, 50)
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, wanted, per_batch=50)
    crash_points.arm("S5.prepared", "wait")
    with supervised(job, tmp_path) as running:
        crash_points.wait_reached("S5.prepared")
        running.process.terminate()
        wait_until(lambda: "Asked to end" in running.said(), "it heard")
        crash_points.release("S5.prepared")
        assert running.await_ended() == 0, running.said()[-2000:]
    assert_exactly_once(job, wanted)


@pytest.mark.parametrize(
    "script", [False, pytest.param(True, marks=pytest.mark.full)], ids=["function", "script"]
)
def test_what_needs_a_person_is_told_once_and_not_tried_again(
    broker, make_topic, tmp_path, spark, script
):
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, values(0, 50))
    job.run(spark)
    before = committed(job.servers, job.sink_topic)
    shutil.rmtree(job.checkpoint)
    with supervised(job, tmp_path, "--restart", "fixed:100ms", script=script) as running:
        assert running.await_ended() == 3, running.said()[-2000:]
        said = running.said()
    assert said.count("Driver started") == 1
    assert said.count("ERROR eo_kafka.tools.run.supervisor: ForeignLedger: ") == 1
    assert "Do what the sentence says" in said
    assert "'eo-kafka job reset " in said
    assert committed(job.servers, job.sink_topic) == before


@pytest.mark.full
def test_a_query_that_stands_still_is_stuck_and_one_without_input_is_not(
    broker, make_topic, tmp_path, crash_points
):
    port = free_port()
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, values(0, 50), per_batch=50)
    crash_points.arm("S5.prepared", "wait")
    with supervised(job, tmp_path, "--health", str(port), "--stuck-after", "4s") as running:
        crash_points.wait_reached("S5.prepared")
        wait_until(lambda: asked(port, "live")[0] == 503, "it is stuck")
        assert asked(port, "ready")[0] == 503 and asked(port, "live")[1]["stuck"] is True
        wait_until(lambda: "Stuck: no batch" in running.said(), "it is told")
        crash_points.release("S5.prepared")
        wait_until(lambda: asked(port, "live")[1]["batch"] == 0, "the batch has ended")
        until = time.monotonic() + 12
        while time.monotonic() < until:
            code, told = asked(port, "ready")
            assert code == 200 and told["stuck"] is False, told
            time.sleep(0.5)
        produce(job.servers, job.source_topic, values(50, 50))
        wait_until(lambda: asked(port, "ready")[1]["batch"] == 1, "the next batch has ended")
        assert running.said().count("Stuck") == 1


@pytest.mark.full
def test_a_driver_whose_supervisor_is_killed_is_gone_and_leaves_nothing_open(
    broker, make_topic, tmp_path, crash_points, spark
):
    wanted = values(0, 50)
    job = make_copy(
        broker.bootstrap_servers, make_topic, tmp_path, wanted, timeout_ms=600_000, per_batch=50
    )
    crash_points.arm("S5.prepared", "wait")
    with supervised(job, tmp_path) as running:
        crash_points.wait_reached("S5.prepared")
        running.process.kill()
        wait_until(lambda: not running.living(), "all of it is gone", 60)
    assert open_tasks(job) == []
    crash_points.clear()
    job.run(spark)
    assert_exactly_once(job, wanted)


def test_a_lost_checkpoint_of_foreach_batch_is_restored(broker, make_topic, tmp_path):
    wanted = values(0, 20)
    job = make_copy(
        broker.bootstrap_servers, make_topic, tmp_path, wanted, sink_extra={"snapshots": "true"}
    )
    named = ["--conf", "spark.sql.shuffle.partitions=1", "--once", "--job", job.job_name]
    named += ["--bootstrap-servers", job.servers]
    counts = "jobs.proved_jobs:count"
    with supervised(job, tmp_path, *named, function=counts) as running:
        assert running.await_ended() == 0, running.said()[-2000:]
    shutil.rmtree(job.checkpoint)
    produce(job.servers, job.source_topic, values(20, 20))
    with supervised(job, tmp_path, *named, function=counts) as running:
        assert running.await_ended() == 0, running.said()[-2000:]
    assert "goes on at batch " in running.said()
    assert committed(job.servers, job.sink_topic) == Counter({b"1": 40})


@pytest.mark.parametrize("scheme", ["", pytest.param("file:", marks=pytest.mark.full)])
def test_a_checkpoint_that_goes_away_in_a_batch_is_told_and_the_job_goes_on(
    broker, make_topic, tmp_path, crash_points, scheme
):
    """Unreadable for a moment (a folder in the place of a file: no test can break a disk), and then
    deleted. The writer cannot be made for `commit`, nor for `abort`."""
    wanted, extra = values(0, 50), {"snapshots": "true"}
    job = make_copy(
        broker.bootstrap_servers, make_topic, tmp_path, wanted, per_batch=50, sink_extra=extra
    )
    metadata, away = job.checkpoint / "metadata", tmp_path / "away"
    at = f"{scheme}{job.checkpoint}"
    words = ("--restart", "fixed:100ms")
    with supervised(job, tmp_path, *words, checkpoint=at) as running:
        await_rows(running, job, 50)
        wanted += in_its_batch(job, crash_points, lambda: (metadata.rename(away), metadata.mkdir()))
        error = f"supervisor: CheckpointUnreadable: 'metadata' of checkpoint '{at}' cannot be read"
        wait_until(lambda: error in running.said(), "it is told", LONG_S)
        metadata.rmdir()
        away.rename(metadata)
        await_rows(running, job, 100)
        wanted += in_its_batch(job, crash_points, lambda: shutil.rmtree(job.checkpoint))
        await_rows(running, job, 150)
        said = running.said()
        assert f"supervisor: CheckpointUnreadable: Checkpoint '{at}' is gone, or a part" in said
        assert "goes on at batch " in said
        running.process.terminate()
        assert running.await_ended() == 0, running.said()[-2000:]
    assert_exactly_once(job, wanted)


@pytest.mark.full
def test_once_and_a_lost_checkpoint_and_spark_submit(broker, make_topic, tmp_path):
    """A checkpoint that is gone is restored, here by a driver that spark-submit starts."""
    wanted = values(0, 50)
    job = make_copy(
        broker.bootstrap_servers, make_topic, tmp_path, wanted, sink_extra={"snapshots": "true"}
    )
    with supervised(job, tmp_path, "--once") as running:
        assert running.await_ended() == 0, running.said()[-2000:]
    assert_exactly_once(job, wanted)
    shutil.rmtree(job.checkpoint)
    more = values(50, 50)
    produce(job.servers, job.source_topic, more)
    with supervised(job, tmp_path, "--once", "--submit=--name submitted") as running:
        assert running.await_ended() == 0, running.said()[-2000:]
        assert "goes on at batch " in running.said()
    assert_exactly_once(job, wanted + more)
