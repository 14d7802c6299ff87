"""A batch that only has the number of one that is written: it is never skipped in silence."""

from __future__ import annotations

import re
import shutil
from argparse import Namespace
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

import eo_kafka
from eo_kafka.errors import BatchMismatch, CheckpointError, RepairNeeded
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, two_phase
from eo_kafka.sinks.protocol.finisher import Finisher
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.sinks.transactions.stragglers import end_all
from eo_kafka.tools import cli
from eo_kafka.tools.job_command import _redo
from hand_made_job import HandMadeJob, all_rows
from harness import (
    Copy,
    assert_exactly_once,
    assert_settled,
    committed,
    control_plane,
    copy_topic,
    make_copy,
    open_transactions,
    produce,
    read_ledger,
)

OLD, NEW = [b"old-%d" % n for n in range(120)], [b"new-%d" % n for n in range(60)]


@pytest.fixture
def job(broker, make_topic, tmp_path) -> Copy:
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, OLD[:80], per_batch=40)


def command(*words: str, job: Copy | HandMadeJob) -> int:
    return cli.main([*words, "--bootstrap-servers", job.servers])


def remove_newest(checkpoint: Path) -> None:
    for folder in ("offsets", "commits"):
        newest = max(int(path.name) for path in (checkpoint / folder).glob("[0-9]*"))
        for name in (str(newest), f".{newest}.crc"):
            (checkpoint / folder / name).unlink(missing_ok=True)


def test_a_checkpoint_restored_from_an_older_copy_loses_nothing(job, spark, capsys):
    job.run(spark)  # batches 0 and 1
    shutil.copytree(job.checkpoint, older := job.checkpoint.with_name("older"))
    produce(job.servers, job.source_topic, OLD[80:])
    job.run(spark)  # batch 2
    shutil.rmtree(job.checkpoint)
    shutil.copytree(older, job.checkpoint)
    produce(job.servers, job.source_topic, NEW)
    job.per_batch = None
    with pytest.raises(Exception, match=r"Batch 2 of job .* is another one: it held .* job redo"):
        job.run(spark)
    assert committed(job.servers, job.sink_topic) == Counter(OLD)
    with pytest.raises(Exception, match="is another one"):
        job.run(spark)  # again and again, until somebody does what it says
    assert command("job", "redo", job.job_name, str(job.checkpoint), job=job) == 0
    assert "brought to batch 2" in capsys.readouterr().out
    job.run(spark)
    assert_exactly_once(job, OLD + NEW)


def test_a_checkpoint_that_lost_its_newest_batch_loses_nothing(job, spark, capsys):
    job.run(spark)
    remove_newest(job.checkpoint)
    produce(job.servers, job.source_topic, NEW)
    job.per_batch = None
    with pytest.raises(Exception, match=r"Batch 1 of job .* is another one"):
        job.run(spark)
    assert command("job", "redo", job.job_name, str(job.checkpoint), job=job) == 0
    job.run(spark)
    assert_exactly_once(job, OLD[:80] + NEW)
    assert command("job", "redo", job.job_name, str(job.checkpoint), job=job) == 0
    assert "is as new as the ledger" in capsys.readouterr().out


@pytest.mark.parametrize("commit", ["two-phase", "idempotent"])
def test_a_ledger_and_an_output_that_went_back_lose_nothing(job, spark, commit):
    """As when their brokers' disks are restored from a snapshot; the checkpoint is the newest."""
    job.sink_extra["commit"] = commit
    job.run(spark)  # batches 0 and 1
    ledger, output = copy_topic(job.servers, job.ledger), copy_topic(job.servers, job.sink_topic)
    produce(job.servers, job.source_topic, OLD[80:])
    job.run(spark)  # batch 2
    job.sink_extra["ledgerTopic"], job.sink_topic = ledger, output
    produce(job.servers, job.source_topic, NEW)
    job.per_batch = None
    for _ in range(2):  # again and again, until somebody does what it says
        with pytest.raises(Exception, match=r"ends with batch 1, .*of batch 2 the ledger knows no"):
            job.run(spark)
    assert committed(job.servers, output) == Counter(OLD[:80])
    for folder in ("offsets", "commits"):
        for path in (job.checkpoint / folder).iterdir():  # N and .N.crc
            if int(re.sub(r"\D", "", path.name)) > 1:
                path.unlink()
    job.run(spark)
    assert_exactly_once(job, OLD + NEW)


def test_no_batch_follows_one_whose_rows_went(broker, make_topic, tmp_path, monkeypatch, caplog):
    """Decided and not yet DONE, as far as the ledger's brokers went back, and its rows with them;
    the checkpoint is the newest."""
    job = HandMadeJob(broker.bootstrap_servers, make_topic("out"), f"went-{uuid4()}", tmp_path)
    job.extra["snapshots"] = "false"
    job.run(0)
    job.begin(1)
    (report,) = reports = job.prepare(1)
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(Finisher, "finish", lambda *_: 1 / 0)
        committer.commit(job.options, reports, 1)
    with control_plane(job.servers) as control:
        end_all(control, [report.participant.identity], report.end_txn_version)
    for _ in range(2):  # again and again, until somebody does what it says
        with pytest.raises(BatchMismatch, match=r"Batch 1 of .*'commits/1'.* runs batch 1 again"):
            job.run(2)
    assert job.visible == all_rows(0)
    (tmp_path / "offsets/2").unlink()
    (tmp_path / "commits/1").unlink()
    job.run(1, 2)
    assert job.visible == all_rows(0, 1, 2)


def test_two_foreach_batches_of_one_name_are_refused(job, spark, make_topic):
    options = {**job.sink_options}
    del options["checkpointLocation"]  # it is found through the query
    second = make_topic("second")
    first_write = eo_kafka.foreach_batch(options)
    second_write = eo_kafka.foreach_batch({**options, "topic": second})
    # Of another name, and with the ledger of the first: in it, the batch would count as written
    third_write = eo_kafka.foreach_batch({**options, "jobName": "other", "ledgerTopic": job.ledger})

    def both(rows, batch):
        first_write(rows, batch)
        second_write(rows, batch)

    def first_and_third(rows, batch):
        first_write(rows, batch)
        third_write(rows.limit(1), batch)

    source = job.as_job()["source_options"]
    rows = spark.readStream.format("eo-kafka").options(**source).load().select("key", "value")

    def run(write) -> None:
        writer = rows.writeStream.trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(job.checkpoint)).foreachBatch(write).start()
        query.awaitTermination(180)

    with pytest.raises(Exception, match=r"has already written batch .* a 'jobName' of its own"):
        run(both)
    assert committed(job.servers, second) == Counter()
    with pytest.raises(Exception, match=rf"'{job.ledger}'.* and no common 'ledgerTopic'"):
        run(first_and_third)
    with pytest.raises(Exception, match=r"it went to topic .*, and this one goes to topic"):
        run(second_write)  # as if the first had died before Spark's commit log
    run(first_write)
    assert_exactly_once(job, OLD[:80])
    decision = read_ledger(job).decisions["main", 1]
    assert decision.offsets
    assert decision.starts == read_ledger(job).decisions["main", 0].offsets


class Numbered:
    """Writes of a job by hand, as `df.write` with `batchId` has them."""

    def __init__(self, job: HandMadeJob, query: str = "batch writes") -> None:
        self.job, self.query = job, query

    def write(self, batch: int, *parts: list[bytes], topic: str | None = None) -> None:
        given = {**self.job.given, "topic": topic or self.job.topic, "snapshots": "false"}
        del given["checkpointLocation"]
        options = SinkOptions.parse(given, streaming=True)
        plan = make_plan(options)
        reports = [
            two_phase.write(
                options,
                plan,
                TaskIdentity(self.query, batch, number, number),
                iter([pa.RecordBatch.from_pydict({"value": rows})]),
            )
            for number, rows in enumerate(parts)
        ]
        try:
            committer.commit(options, reports, batch)
        except Exception:
            committer.abort(options, reports)
            raise


@pytest.fixture
def numbered(broker, make_topic, tmp_path) -> Numbered:
    topic = make_topic("out", partitions=2)
    return Numbered(HandMadeJob(broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / "cp"))


def test_a_number_by_hand_is_for_one_write(numbered, make_topic, capsys):
    job = numbered.job
    numbered.write(7, [b"a", b"b"], [b"c"])
    numbered.write(7, [b"c"], [b"b", b"a"])  # the same rows, cut otherwise
    with pytest.raises(BatchMismatch, match="it had 3 rows, and this one has 4"):
        numbered.write(7, [b"a", b"b"], [b"c", b"d"])
    other = make_topic("other")
    with pytest.raises(BatchMismatch, match=f"this one goes to topic '{other}'"):
        numbered.write(7, [b"a", b"b"], [b"c"], topic=other)
    assert job.visible == Counter([b"a", b"b", b"c"])
    accept = ("job", "repair", job.name, "--batch", "7", "--accept-loss")
    assert command(*accept, job=job) == 0
    assert "counts as written, whatever" in capsys.readouterr().out
    numbered.write(7, [b"x"])  # skipped now, as somebody said
    numbered.write(8, [b"e"])
    assert job.visible == Counter([b"a", b"b", b"c", b"e"])


def test_of_a_torn_batch_all_partitions_are_compared(numbered, monkeypatch):
    """Partition 1 is lost, and comes back equal; but partition 0, which is committed, brings other
    rows now: they are no replay of the batch."""
    job = numbered.job
    lose(job, numbered, monkeypatch, [[b"a"], [b"b"]], lost=1)
    with pytest.raises(RepairNeeded, match=r"replay's rows of partitions \[0\] are not the same"):
        numbered.write(0, [b"z"], [b"b"])
    with pytest.raises(RepairNeeded, match=r"replay's rows of partitions \[2\] are not the same"):
        numbered.write(0, [b"a"], [b"b"], [b"more"])
    numbered.write(0, [b"a"], [b"b"])
    assert job.visible == Counter([b"a", b"b"])


def lose(job: HandMadeJob, numbered: Numbered, monkeypatch, parts, lost: int) -> None:
    """Decide batch 0, and let Kafka abort one participant before it is committed."""
    finish = Finisher.finish

    def aborted_first(self, decision):
        part = decision.participants[lost]
        self._control.end([part.identity], commit=False, version=decision.end_txn_version)
        return finish(self, decision)

    with monkeypatch.context() as patch:
        patch.setattr(Finisher, "finish", aborted_first)
        with pytest.raises(Exception, match="was decided, but Kafka had aborted"):
            numbered.write(0, *parts)


def test_a_decision_says_of_its_rows_what_they_are(broker, make_topic, tmp_path):
    """A checkpoint that is restored in place while a driver is asleep between its tasks and its
    decision: the next driver plans the batch otherwise. The sleeper's rows are not that batch."""
    topic = make_topic("out")
    given = {"snapshots": "false", "checkpointlocation": str(tmp_path / "cp")}  # as Spark spells it
    job = HandMadeJob(broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / "cp", extra=given)
    job.begin(0)
    committer.commit(job.options, job.prepare(0), 0)
    job.begin(1)
    reports = job.prepare(1)
    job.put("offsets/1", 'v1\n{}\n{"in":{"0":1000}}')
    with pytest.raises(CheckpointError, match="offsets/1 of checkpoint .* has changed since"):
        committer.commit(job.options, reports, 1)
    committer.abort(job.options, reports)
    job.run(1)
    assert job.visible == all_rows(0, 1)


def test_a_query_with_state_goes_on_from_a_snapshot_only(broker, make_topic, tmp_path):
    topic = make_topic("out")
    job = HandMadeJob(broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / "checkpoint")
    job.run(0, 1)
    with pytest.raises(CheckpointError, match=r"keeps state.* goes on from a snapshot"):
        _redo(job.options, Namespace(checkpoint=job.location))
    assert not open_transactions_of(job)


def open_transactions_of(job: HandMadeJob) -> list[str]:
    copy = Copy(job.servers, "", job.topic, job.folder, job.name)
    assert_settled(copy)
    return open_transactions(copy)
