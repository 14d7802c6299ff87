"""Two jobs with one state topic, by option `stateTopic`: each would remove files that the other's
snapshot names, and only a restore would tell."""

from __future__ import annotations

from pathlib import Path

import pytest

import eo_kafka
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.sinks.protocol import preflight, snapshots
from eo_kafka.tools import cli
from hand_made_job import HandMadeJob, all_rows
from harness import delete_topic

REFUSED = "(?s)State topic '{}'.*Nothing was written or decided.*a topic of its own"


@pytest.fixture
def new_job(broker, make_topic, tmp_path):
    def new(name: str, state: str | None) -> HandMadeJob:
        topic = make_topic(name)
        extra = {"stateTopic": state} if state else {}
        return HandMadeJob(
            broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / name, extra=extra
        )

    return new


@pytest.fixture
def shared(make_topic) -> str:
    return make_topic("shared", config={"cleanup.policy": "compact"})


def restored(job: HandMadeJob, folder: Path) -> dict[str, bytes]:
    assert eo_kafka.restore(str(folder), job.name, job.given, progress=False)
    return job.files(folder)


def test_a_new_job_is_refused_in_the_topic_of_another(new_job, shared, tmp_path):
    first, second = new_job("first", shared), new_job("second", shared)
    first.run(0, 1)
    before = restored(first, tmp_path / "before")
    with pytest.raises(EnvironmentRefused, match=REFUSED.format(shared)):
        second.run(0)
    assert not second.visible
    assert restored(first, tmp_path / "after") == before
    first.run(2)
    del second.extra["stateTopic"]
    second.run(0, 1)
    assert second.visible == all_rows(0, 1)


@pytest.mark.parametrize("process", ["the same", "another"])
def test_a_job_that_is_given_the_topic_of_another_is_refused(new_job, shared, tmp_path, process):
    """The process that remembers what it sent last takes no other topic for that one."""
    first, second = new_job("first", shared), new_job("second", None)
    second.run(0)
    first.run(0, 1)
    before = restored(first, tmp_path / "before")
    second.run(1)
    if process == "another":
        preflight._checked.clear()
        snapshots._last.clear()
    second.extra["stateTopic"] = shared
    with pytest.raises(EnvironmentRefused, match=REFUSED.format(shared)):
        second.run(2)
    assert second.visible == all_rows(0, 1)
    assert restored(first, tmp_path / "after") == before
    del second.extra["stateTopic"]
    second.run(2)
    assert restored(second, tmp_path / "again").keys() >= {"state/0/0/1.delta", "state/0/0/2.delta"}


def test_a_job_that_was_reset_is_refused_in_the_topic_of_another(new_job, shared, tmp_path):
    """What it may have left unnamed is in its own topic, and not here."""
    first, second = new_job("first", shared), new_job("second", None)
    first.run(0)
    before = restored(first, tmp_path / "before")
    second.run(0)
    assert cli.main(["job", "reset", second.name, "--bootstrap-servers", second.servers]) == 0
    again = new_job("again", shared)
    again.name = second.name
    with pytest.raises(EnvironmentRefused, match=REFUSED.format(shared)):
        again.run(0)
    assert restored(first, tmp_path / "after") == before


def test_a_second_ledger_of_a_job_is_refused_in_its_own_state_topic(new_job, tmp_path):
    first, second = new_job("first", None), new_job("second", None)
    first.run(0)
    before = restored(first, tmp_path / "before")
    second.name = first.name
    second.extra |= {"ledgerTopic": f"{first.topic}-ledger", "transactionalIdPrefix": first.topic}
    with pytest.raises(EnvironmentRefused, match=REFUSED.format(first.state_topic)):
        second.run(0)
    assert restored(first, tmp_path / "after") == before


def test_a_job_may_be_given_an_empty_topic_and_its_own_made_again(new_job, shared, tmp_path):
    job = new_job("job", None)
    job.run(0, 1)
    job.extra["stateTopic"] = shared
    job.run(2)
    assert restored(job, tmp_path / "moved").keys() >= {"state/0/0/1.delta", "state/0/0/2.delta"}
    delete_topic(job.servers, shared)
    preflight._checked.clear()
    job.run(3, 4)
    assert "state/0/0/1.delta" in restored(job, tmp_path / "again")
    assert job.visible == all_rows(0, 1, 2, 3, 4)
