"""One job's name, or a copy of one checkpoint, and two queries: told, and no rows are lost."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace

import pytest

import eo_kafka
from eo_kafka.errors import BatchMismatch
from eo_kafka.sinks.protocol import committer
from hand_made_job import HandMadeJob, all_rows
from harness import Copy, assert_exactly_once, committed, make_copy, produce, read_ledger
from test_losers import holder

VALUES = [b"%d" % number for number in range(60)]
MORE = [b"more %d" % number for number in range(40)]


@pytest.fixture
def job(broker, make_topic, tmp_path) -> Copy:
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES)


class Told(HandMadeJob):
    """S1 is told where the checkpoint is, too, as where the query's own options say it."""

    @property
    def given(self) -> dict[str, str]:
        return {**super().given, "checkpointlocation": self.location}


@pytest.fixture(params=[HandMadeJob, Told])
def hand_made(request, broker, make_topic, tmp_path) -> HandMadeJob:
    topic = make_topic("out")
    return request.param(broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / "a")


def test_another_querys_snapshot_is_not_restored_for_it(job, spark, tmp_path):
    """As it was: the second one got the first one's id, and passed over what that had written."""
    job.sink_extra["snapshots"] = "true"
    job.run(spark)
    two = replace(job, checkpoint=tmp_path / "two")
    for _ in range(2):
        with pytest.raises(eo_kafka.errors.ForeignLedger, match=r"give it its own 'jobName'"):
            two.run(spark)
    assert not two.checkpoint.exists()
    assert read_ledger(job).checkpoint == f"file:{job.checkpoint}"
    # The job was moved, and its new place is lost as well.
    assert eo_kafka.restore(str(two.checkpoint), two.job_name, two.sink_options, progress=False)
    two.run(spark)
    assert read_ledger(two).checkpoint == f"file:{two.checkpoint}"
    shutil.rmtree(two.checkpoint)
    produce(job.servers, job.source_topic, MORE)
    two.run(spark)
    assert_exactly_once(job, VALUES + MORE)


def test_a_checkpoint_that_was_moved_is_told_once(hand_made, caplog):
    hand_made.run(0, 1)
    assert not any("goes on with checkpoint" in told for told in caplog.messages)
    hand_made.folder = hand_made.folder.rename(hand_made.folder.with_name("b"))
    hand_made.begin(2)
    reports = hand_made.prepare(2)
    told = [told for told in caplog.messages if "goes on with checkpoint" in told]
    assert len(told) == isinstance(hand_made, Told), "S1 knows it, or S6"
    committer.commit(hand_made.options, reports, 2)
    hand_made.run(3)
    (told,) = [told for told in caplog.messages if "goes on with checkpoint" in told]
    assert f"'file:{hand_made.folder}'; until now it had 'file:{hand_made.folder.parent}/a'" in told
    assert hand_made.visible == all_rows(0, 1, 2, 3)


@pytest.mark.parametrize("hand_made", [Told], indirect=True)
def test_a_copy_of_a_checkpoint_for_another_topic_fences_nobody(hand_made, make_topic):
    hand_made.run(0)
    shutil.copytree(hand_made.folder, copied := hand_made.folder.with_name("b"))
    hand_made.run(1)
    hand_made.begin(2)
    reports, before = hand_made.prepare(2), holder(hand_made.options)
    other = replace(hand_made, topic=make_topic("other"), folder=copied)
    other.begin(1)
    with pytest.raises(BatchMismatch, match=r"Batch 1 of job .* went to topic .*another query"):
        other.prepare(1)
    assert holder(hand_made.options) == before
    committer.commit(hand_made.options, reports, 2)
    assert hand_made.visible == all_rows(0, 1, 2)


def test_what_is_said_of_a_copied_checkpoint_loses_no_rows(job, spark, make_topic, tmp_path):
    job.run(spark)
    copied = replace(job, checkpoint=tmp_path / "b", sink_topic=make_topic("other"))
    shutil.copytree(job.checkpoint, copied.checkpoint)
    produce(job.servers, job.source_topic, MORE)
    copied.run(spark)
    with pytest.raises(Exception, match=r"do not start it with topic .*its own 'jobName'"):
        job.run(spark)
    job.job_name += "-own"
    job.run(spark)
    assert_exactly_once(job, VALUES + MORE)
    assert committed(job.servers, copied.sink_topic) == Counter(MORE)
