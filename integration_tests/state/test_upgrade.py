"""What earlier versions left in Kafka and on disk is gone on from, exactly: golden/ has their
ledgers, state topics and checkpoints. A file that cannot be read any more is a break of the
promise, and not to be made anew."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

import eo_kafka
from eo_kafka.core.transaction import DecisionState
from golden.load import Golden
from hand_made_job import HandMadeJob, all_rows
from harness import (
    Copy,
    Stateful,
    assert_exactly_once,
    assert_settled,
    committed,
    committed_messages,
    delete_topic,
    read_ledger,
)
from map_backends import IntoMap

DONE = DecisionState.DONE


@pytest.fixture
def load(broker, tmp_path):
    """Puts a job into this Kafka, with its checkpoint; its topics go after the test."""
    read: list[Golden] = []

    def loaded(name: str, still_open: bool = True) -> Golden:
        golden = Golden.read(name)
        read.append(golden)
        golden.load(broker.bootstrap_servers, still_open)
        golden.write_checkpoint(tmp_path / "checkpoint")
        return golden

    yield loaded
    for golden in read:
        for topic in golden.found["topics"]:
            delete_topic(broker.bootstrap_servers, topic)


def as_it_was(kind: type[Copy], golden: Golden, broker, tmp_path: Path, **changed) -> Copy:
    """The job as it ran then, but where it is now."""
    here = {"servers": broker.bootstrap_servers, "checkpoint": tmp_path / "checkpoint"}
    return kind(**{**golden.job, **here, **changed})


@pytest.mark.parametrize(
    ("name", "still_open", "states"),
    [
        # Batch 1 was decided, and no EndTxn sent: it is rolled forward, and batch 2 follows
        pytest.param("decided", True, {0: (0, DONE), 1: (0, DONE), 2: (0, DONE)}, id="decided"),
        # the same after an outage: its rows are written again, in the next round
        pytest.param(
            *("decided", False, {0: (0, DONE), 1: (1, DONE), 2: (0, DONE)}),
            id="aborted",
            marks=pytest.mark.full,
        ),
        # Batch 1's rows are there, and nothing is decided: they are aborted and written again
        pytest.param("prepared", True, {0: (0, DONE), 1: (0, DONE), 2: (0, DONE)}, id="prepared"),
        # commit=idempotent: some of the tasks of batch 1 are committed; the others follow, if the
        # replay's digests are those of the old version
        pytest.param("torn", True, {0: (0, DONE), 1: (1, DONE), 2: (0, DONE)}, id="torn"),
    ],
)
def test_an_interrupted_copy_goes_on(broker, spark, load, tmp_path, name, still_open, states):
    golden = load(name, still_open)
    job = as_it_was(Copy, golden, broker, tmp_path)
    values = golden.values(job.source_topic)
    before = committed(job.servers, job.sink_topic)
    assert before < Counter(values), "there is something left to do"
    job.run(spark)
    assert_exactly_once(job, values)
    decisions = read_ledger(job).of_sink("main")
    assert {batch: (one.round, one.state) for batch, one in decisions.items()} == states


def test_an_interrupted_copy_of_a_map_into_a_topic_goes_on(broker, spark, load, tmp_path):
    """Batch 1 was decided, and no EndTxn sent; then there are more changes to the map."""
    golden = load("map_topic")
    job = as_it_was(IntoMap, golden, broker, tmp_path)
    for options in (job.map_options, job.target):
        options["kafka.bootstrap.servers"] = job.servers
    changes = Counter(golden.records(job.source_topic))
    before = changes_in(job)
    assert before < changes, "there is something left to do"
    assert before
    job.run(spark)
    assert changes_in(job) == changes
    assert_settled(job)


def changes_in(job: IntoMap) -> Counter[tuple[bytes, bytes | None]]:
    """What was written into the target."""
    found = committed_messages(job.servers, job.sink_topic)
    return Counter((message.key(), message.value()) for message in found)


@pytest.mark.parametrize(
    ("name", "disk"),
    [
        # its newest snapshot is in a decision that is not finished
        ("stateful", "kept"),
        pytest.param("stateful", "lost", marks=pytest.mark.full),
        # batches since the snapshot are repeated from the ends that were recorded
        ("interval", "lost"),
        pytest.param("interval", "kept", marks=pytest.mark.full),
    ],
)
def test_a_stateful_job_goes_on_from_its_checkpoint_or_snapshot(
    broker, spark, load, tmp_path, name, disk
):
    golden = load(name)
    if disk == "lost":
        shutil.rmtree(tmp_path / "checkpoint")
    job = as_it_was(Stateful, golden, broker, tmp_path, conf={})
    events = [json.loads(value) for value in golden.values(job.source_topic)]
    job.run(spark)
    assert Counter(map(window, committed(job.servers, job.sink_topic).elements())) == closed(events)
    assert_settled(job)


def window(value: bytes) -> tuple[str, str, int, int]:
    found = json.loads(value)
    return found["window"]["start"], found["k"], found["c"], found["s"]


def closed(events: list[dict]) -> Counter[tuple[str, str, int, int]]:
    """What must be in the output: see `window` and `events` in jobs/stateful_job.py."""
    newest = max(event["t"] for event in events)
    found: dict[tuple[int, str], list[int]] = {}
    for event in events:
        found.setdefault((event["t"] // 10 * 10, event["k"]), []).append(event["n"])
    return Counter(
        (
            f"{datetime.fromtimestamp(start, timezone.utc):%Y-%m-%dT%H:%M:%S}.000Z",
            key,
            len(n),
            sum(n),
        )
        for (start, key), n in found.items()
        if start + 10 <= newest - 10
    )


def test_a_new_job_starts_from_an_export(broker, load, tmp_path):
    golden = load("exported")
    here = {"servers": broker.bootstrap_servers, "folder": tmp_path / "checkpoint"}
    old = HandMadeJob(**{**golden.job, **here})
    folder = tmp_path / "new"
    eo_kafka.start_from(old.name, "before", f"{old.name}-2", str(folder), old.given)
    query = json.loads((folder / "metadata").read_text())["id"]
    new = replace(old, name=f"{old.name}-2", folder=folder, query=query)
    new.run(2, 3)  # Spark runs the snapshot's batch once more
    assert new.visible == all_rows(0, 1, 2, 3)
    old.run(3, 4)  # and the old one may go on too
    assert old.visible == all_rows(0, 1, 2, 3, 3, 4)
