"""A checkpoint in a real object store, reached as S3: file by file, and of a job that loses it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

import pytest

# What holds for every kind of file system: here `checkpoint` is in S3.
from test_checkpoint import (  # noqa: F401 - tests
    content,
    test_a_file_is_read_in_pieces,
    test_a_file_of_this_machine_is_taken_in,
    test_a_file_that_is_replaced_by_one_of_its_size_has_another_stamp,
    test_a_file_written_again_is_the_new_one,
    test_a_folder_that_is_not_there_is_empty,
    test_an_empty_file,
    test_finished_is_without_its_marker,
    test_hidden_and_temporary_files_are_left_out,
    test_the_marker_is_the_last_to_go,
    test_what_is_cleared_is_gone,
    test_what_is_not_there_is_not_found,
    test_what_is_written_is_listed_and_read,
)

import eo_kafka
from eo_kafka.state.snapshots.checkpoint import Checkpoint, open_checkpoint
from eo_kafka.tools.cli import main
from hand_made_job import HandMadeJob, all_rows
from object_store import ADMIN, BUCKET, GUARDED, REGION, SECRET, USER, ObjectStore, object_store


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as found:
        yield found


@pytest.fixture(autouse=True)
def logged_in(store, monkeypatch) -> None:
    log_in(monkeypatch, store)


def log_in(monkeypatch, store: ObjectStore, user: str = ADMIN, secret: str = SECRET) -> None:
    for name, value in store.environment(user, secret).items():
        monkeypatch.setenv(name, value)


def new_url() -> str:
    return f"s3a://{BUCKET}/some where/{uuid.uuid4()}"


@pytest.fixture
def checkpoint(store) -> Checkpoint:
    return open_checkpoint(new_url())


@dataclass
class JobInS3(HandMadeJob):
    """Its checkpoint is made by hand, at `url`."""

    url: str = ""

    @property
    def location(self) -> str:
        return self.url

    def put(self, path: str, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        open_checkpoint(self.url).write(path, [data])

    def has(self, path: str) -> bool:
        return path in open_checkpoint(self.url).paths()


def files(url: str) -> dict[str, bytes]:
    there = open_checkpoint(url)
    return {path: content(there, path) for path in there.paths()}


def new_job(broker, make_topic, folder, **more) -> JobInS3:
    topic = make_topic("out")
    return JobInS3(broker.bootstrap_servers, topic, f"job-{topic}", folder, url=new_url(), **more)


@pytest.fixture(scope="module")
def written(store, broker, make_topic, tmp_path_factory) -> JobInS3:
    """A job that has written two batches, for tests that leave it as it is."""
    made = new_job(broker, make_topic, tmp_path_factory.mktemp("written"))
    with pytest.MonkeyPatch.context() as patch:
        log_in(patch, store)
        made.run(0, 1)
    return made


def test_a_file_of_several_parts_is_written_and_read(checkpoint, tmp_path):
    """pyarrow uploads 10 MB at once."""
    whole = os.urandom(1 << 20) * 25
    (tmp_path / "file").write_bytes(whole)
    checkpoint.take("state/0/0/1.zip", tmp_path / "file")
    assert checkpoint.paths() == ["state/0/0/1.zip"]
    assert checkpoint.stat("state/0/0/1.zip").size == len(whole)
    assert content(checkpoint, "state/0/0/1.zip") == whole


def test_a_checkpoint_in_s3_is_lost_and_comes_back_elsewhere(broker, make_topic, tmp_path):
    # A file of this size is sent ahead of the decision.
    job = new_job(broker, make_topic, tmp_path, state_size=9_000_000)
    job.run(0, 1, 2)
    before = files(job.url)
    open_checkpoint(job.url).clear("metadata")
    assert files(job.url) == {}
    job.url = new_url()
    assert eo_kafka.restore(job.url, job.name, job.given, progress=False).batch == 2
    after = files(job.url)
    assert after == {path: before[path] for path in after}
    assert {"metadata", "offsets/2", "commits/1", "state/0/0/2.delta"} <= after.keys()
    job.run(2, 3)
    assert job.visible == all_rows(0, 1, 2, 3)
    again = new_url()
    assert eo_kafka.restore(again, job.name, job.given, progress=False).batch == 3
    now = files(job.url)
    assert files(again) == {path: now[path] for path in now if path in needed_at(3, now)}


def needed_at(batch: int, paths: dict[str, bytes]) -> set[str]:
    logs = {f"offsets/{batch}", f"offsets/{batch - 1}", f"commits/{batch - 1}"}
    return {path for path in paths if path in logs or path.startswith(("metadata", "state/"))}


def test_all_that_s3_needs_may_stand_in_the_url(written, store, monkeypatch):
    whole = files(written.url)
    for name in store.environment():
        monkeypatch.delenv(name)
    place = f"{BUCKET}/{uuid.uuid4()}"
    address = store.endpoint.removeprefix("http://")
    settings = f"region={REGION}&scheme=http&endpoint_override={address}"
    url = f"s3a://{ADMIN}:{quote(SECRET, safe='')}@{place}?{settings}"
    eo_kafka.restore(url, written.name, written.given, progress=False)
    assert open_checkpoint(url).location == f"s3a://{place}"
    log_in(monkeypatch, store)
    found = files(f"s3a://{place}")
    assert found == {path: whole[path] for path in found}
    assert "metadata" in found


def test_credentials_that_reach_no_further_than_the_checkpoint_are_enough(
    broker, make_topic, tmp_path, store, monkeypatch
):
    job = new_job(broker, make_topic, tmp_path)
    log_in(monkeypatch, store, USER)
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        open_checkpoint(new_url()).write("metadata", [b""])
    job.url = f"s3a://{BUCKET}/{GUARDED}"
    job.run(0, 1)
    there = files(job.url)
    open_checkpoint(job.url).clear("metadata")
    eo_kafka.restore(job.url, job.name, job.given, progress=False)
    assert files(job.url) == there


@pytest.mark.parametrize("wrong", ["secret", "bucket"])
def test_a_store_that_does_not_let_us_in_is_a_sentence(written, store, monkeypatch, capsys, wrong):
    there = new_url()
    if wrong == "secret":
        log_in(monkeypatch, store, secret="no-such-hunter2")
    else:
        there = there.replace(BUCKET, "no-such-bucket")
    words = ("snapshots", "restore", written.name, there, "--bootstrap-servers", written.servers)
    assert main(words) == 1
    said = capsys.readouterr().err
    assert f"The checkpoint '{there}' could not be filled: " in said
    assert "run the same again" in said
    assert "hunter2" not in said
    assert SECRET not in said
