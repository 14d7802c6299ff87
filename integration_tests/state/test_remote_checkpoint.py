"""A checkpoint that is not on this machine: in a real HDFS, by WebHDFS, for Spark and for us."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import eo_kafka
from eo_kafka.state.snapshots.checkpoint import open_checkpoint
from harness import Stateful, assert_settled, committed, kill_driver_at, produce
from hdfs import hdfs, server_jar
from test_restore_jobs import CHANGELOG, SECOND, new_job, state_of  # noqa: F401 - a fixture


@dataclass
class Remote(Stateful):
    """A query whose checkpoint is a URL."""

    url: str = ""

    @property
    def sink_options(self) -> dict[str, str]:
        return {**super().sink_options, "checkpointLocation": self.url}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    with hdfs(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


def run(job: Stateful, log: Path) -> None:
    assert job.run_in_own_driver(log) == 0, log.read_text()[-4000:]


def copied(url: str, folder: Path) -> Path:
    """The checkpoint on this machine, for Spark's state reader."""
    there, here = open_checkpoint(url), open_checkpoint(str(folder))
    for path in there.paths():
        with there.open(path) as stream:
            here.write(path, [stream.read()])
    return folder


@pytest.mark.full
def test_a_checkpoint_in_hdfs_is_lost_and_comes_back_elsewhere(
    new_job,  # noqa: F811
    spark,
    crash_points,
    tmp_path,
    monkeypatch,
    root,
):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--driver-class-path {server_jar()} pyspark-shell")
    plain, log = new_job("lost", conf=CHANGELOG), tmp_path / "log"
    job = Remote(**vars(plain), url=f"{root}/first place/ck")
    same = new_job("same", conf=CHANGELOG)
    run(job, log)
    same.run(spark)
    produce(job.servers, job.source_topic, SECOND)
    kill_driver_at(job, crash_points, "S6.after_decision", log)
    gone = open_checkpoint(job.url)
    assert "metadata" in gone.paths()
    gone.clear("metadata")
    job.url = f"{root}/elsewhere"
    assert eo_kafka.restore(job.url, job.job_name, job.sink_options, progress=False)
    run(job, log)
    same.run(spark)
    assert committed(job.servers, job.sink_topic) == committed(same.servers, same.sink_topic)
    job.checkpoint = copied(job.url, tmp_path / "copy")
    assert state_of(job, spark) == state_of(same, spark)
    assert_settled(job)


def test_what_has_not_changed_is_told_by_the_listing(root):
    checkpoint = open_checkpoint(f"{root}/stamps")
    checkpoint.write("state/0/0/1.delta", [b"x" * 700_000, b"y"])
    assert checkpoint.paths() == ["state/0/0/1.delta"]
    found = checkpoint.stat("state/0/0/1.delta")
    assert found.size == 700_001
    assert found.stamp
    assert open_checkpoint(f"{root}/stamps").stat("state/0/0/1.delta") == found
    with checkpoint.open("state/0/0/1.delta") as stream:
        assert b"".join(iter(lambda: stream.read(1 << 19), b"")) == b"x" * 700_000 + b"y"
    with pytest.raises(FileNotFoundError):
        checkpoint.open("nothing").read(1)
