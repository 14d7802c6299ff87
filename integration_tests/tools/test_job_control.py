"""`eo-kafka job suspend | resume | restart | cancel` with real supervisors and real drivers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eo_kafka.tools.cli import main
from harness import (
    Copy,
    assert_exactly_once,
    committed,
    make_copy,
    open_tasks,
    produce,
    wait_until,
)
from supervisors import LONG_S, Supervised, supervised, values


@pytest.fixture
def ask(broker, capsys):
    """Runs a command: (exit code, its JSON or its error)."""

    def run(action: str, *words: str):
        capsys.readouterr()
        code = main(
            ["job", action, *words, "--json", "--bootstrap-servers", broker.bootstrap_servers]
        )
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else said.err

    return run


def controlled(job: Copy, folder: Path, *words: str, **settings):
    """A supervisor of the job that obeys."""
    folder.mkdir(exist_ok=True)
    named = ["--job", job.job_name, "--bootstrap-servers", job.servers]
    return supervised(job, folder, *named, "--restart", "fixed:100ms", *words, **settings)


def await_rows(job: Copy, count: int, running: Supervised) -> None:
    wait_until(
        lambda: committed(job.servers, job.sink_topic).total() >= count,
        f"{count} rows: {running.said()[-3000:]}",
        LONG_S,
    )


def test_a_job_is_suspended_resumed_restarted_and_cancelled_from_elsewhere(
    broker, make_topic, tmp_path, ask
):
    """What holds outlives a supervisor: one that is started later is suspended, or ends at once."""
    wanted = values(0, 50)
    job = make_copy(
        broker.bootstrap_servers, make_topic, tmp_path, wanted, sink_extra={"snapshots": "true"}
    )
    name = job.job_name
    code, said = ask("suspend", name)
    assert code == 1 and "Nothing was recorded" in said
    with controlled(job, tmp_path / "first") as first:
        await_rows(job, 50, first)
        code, told = ask("suspend", name)
        assert (code, told["stands"]) == (0, "suspended"), told
        assert "ended in order" in told["said"]
        assert first.living() == [] and open_tasks(job) == []
        wanted += values(50, 50)
        produce(job.servers, job.source_topic, wanted[50:])
        first.process.kill()  # its machine is started again
    with controlled(job, tmp_path / "second") as second:
        wait_until(lambda: "The job is suspended (" in second.said(), "it says so", LONG_S)
        assert "Driver started" not in second.said()
        assert committed(job.servers, job.sink_topic).total() == 50
        assert ask("resume", name)[0] == 0
        await_rows(job, 100, second)
        assert ask("restart", name)[0] == 0
        wait_until(lambda: second.said().count("Driver started") == 2, "again", LONG_S)
        wanted += values(100, 50)
        produce(job.servers, job.source_topic, wanted[100:])
        await_rows(job, 150, second)
        (row,) = (one for one in ask("list")[1]["jobs"] if one["job"] == name)
        assert row["supervisor"]["phase"] == "running" and len(row["supervisor"]["alive"]) == 1
        code, said = ask("delete", name, "--yes", "--quiet-for", "1ms")
        assert code == 1 and "supervisor" in said
        code, told = ask("cancel", name, "--with-snapshot", "latest")
        assert code == 1 and "cannot be the name" in told
        code, told = ask("cancel", name, "--with-snapshot", "last-one")
        assert (code, told["stands"]) == (0, "cancelled"), told
        assert "is exported as 'last-one'" in told["said"]
        assert second.await_ended() == 6, second.said()[-2000:]
        assert second.living() == []
    with controlled(job, tmp_path / "third") as third:
        assert third.await_ended() == 6, third.said()[-2000:]
        assert "Driver started" not in third.said()
        assert "'eo-kafka job resume' lets it start again" in third.said()
    code, said = ask("suspend", name)
    assert code == 1 and "No supervisor of job" in said and "It is recorded" in said
    assert (
        "last-one" in next(one for one in ask("list")[1]["jobs"] if one["job"] == name)["exports"]
    )
    assert_exactly_once(job, wanted)


@pytest.mark.full  # CI's test_ui.py suspends a job in its batch, by the same command
def test_a_job_is_suspended_in_its_batch_and_what_cannot_be_exported_is_refused(
    broker, make_topic, tmp_path, ask, crash_points
):
    wanted = values(0, 50)
    job = make_copy(
        broker.bootstrap_servers, make_topic, tmp_path, wanted, timeout_ms=600_000, per_batch=50
    )
    crash_points.arm("S5.prepared", "wait")
    with controlled(job, tmp_path / "only", "--grace", "1s") as running:
        crash_points.wait_reached("S5.prepared")
        wait_until(lambda: len(open_tasks(job)) == 2, "both tasks have written")
        code, told = ask("suspend", job.job_name, "--with-snapshot", "mine")
        assert code == 1 and "Refused, and the job goes on" in told["said"], told
        assert told["stands"] == "run" and len(open_tasks(job)) == 2
        code, told = ask("suspend", job.job_name)
        assert (code, told["stands"]) == (0, "suspended"), told
        assert open_tasks(job) == [] and running.living() == []
        crash_points.clear()
        assert ask("resume", job.job_name)[0] == 0
        await_rows(job, 50, running)
        running.process.terminate()
        assert running.await_ended() == 0, running.said()[-2000:]
    assert_exactly_once(job, wanted)


def test_a_driver_that_always_gives_way_is_told_in_the_end(broker, make_topic, tmp_path):
    """An elected supervisor starts it again, but not for ever: somebody else runs the job."""
    (tmp_path / "job.py").write_text("from eo_kafka.errors import Fenced; raise Fenced('newer')")
    named = ["--job", make_topic("fenced"), "--bootstrap-servers", broker.bootstrap_servers]
    command = [sys.executable, "-m", "eo_kafka.tools.cli", "run", *named]
    ended = subprocess.run(
        [*command, "--restart", "fixed:100ms", "job.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert ended.returncode == 4, ended.stderr[-2000:]
    assert ended.stderr.count("Driver started") == 4


def test_a_supervisor_of_another_job_than_it_says_needs_a_person(broker, make_topic, tmp_path):
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, values(0, 10))
    words = ["--job", f"{job.job_name}-b", "--bootstrap-servers", job.servers]
    with supervised(job, tmp_path, *words) as running:
        assert running.await_ended() == 3, running.said()[-2000:]
        assert f"and the function's job (jobName, else queryName) is '{job.job_name}'" in (
            running.said()
        )
