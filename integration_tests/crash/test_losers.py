"""Who is about to be refused looks first: the coordinator's id is not taken from the driver that
works, whose batches commit at the first try. Without Spark: the sink's own functions, on a real
Kafka."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from eo_kafka.clients.kafka import control_plane
from eo_kafka.connectors.foreach_batch import of_job
from eo_kafka.errors import Fenced, ForeignLedger
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.state.ledger import appender, records
from eo_kafka.state.ledger.appender import AppendFailed
from eo_kafka.state.ledger.coordinator import Coordinator
from eo_kafka.state.snapshots.restoring import restore
from eo_kafka.tools import cli
from hand_made_job import HandMadeJob, all_rows
from harness import committed

MINE, OTHER = "query-1", "query-2"


@pytest.fixture
def options(broker, make_topic) -> SinkOptions:
    topic = make_topic("losers")
    servers = broker.bootstrap_servers
    given = {"kafka.bootstrap.servers": servers, "topic": topic, "jobName": topic}
    return replace(SinkOptions.parse(given, streaming=True), query_id=MINE)


@pytest.fixture
def fences(monkeypatch) -> list[str]:
    """The ids that were taken for the ledger, in order."""
    taken: list[str] = []
    fence = Coordinator.fence

    def noted(self) -> None:
        taken.append(self.ids.coordinator)
        fence(self)

    monkeypatch.setattr(Coordinator, "fence", noted)
    return taken


def holder(options: SinkOptions):
    """Who has the coordinator's id, as Kafka says."""
    return control_plane.shared(options.kafka).describe_one(options.ids.coordinator).identity


def prepare(options: SinkOptions, batch: int, attempt: int = 0):
    plan = make_plan(options)
    rows = iter([pa.RecordBatch.from_pydict({"value": [b"row %d" % batch]})])
    task = two_phase.TaskIdentity(MINE, batch, 0, attempt)
    return plan, [two_phase.write(options, plan, task, rows)]


def visible(options: SinkOptions) -> Counter[bytes]:
    return committed(options.kafka["bootstrap.servers"], options.topic or "")


def test_a_misconfigured_driver_that_starts_again_and_again_does_not_slow_the_healthy_one(
    options, fences
):
    stranger = replace(options, query_id=OTHER)
    for batch in range(3):
        plan, reports = prepare(options, batch)
        for _ in range(2):
            if batch:  # the first decision names the owner
                with pytest.raises(ForeignLedger):
                    make_plan(stranger)
        assert holder(options) == plan.coordinator, "the loser took the id"
        fences.clear()
        committer.commit(options, reports, batch)
        assert len(fences) == 1, "the healthy one did not commit at the first try"
    assert visible(options) == Counter(b"row %d" % batch for batch in range(3))


def test_c18_an_old_driver_that_wakes_in_the_middle_of_the_new_ones_batch_fences_nobody(
    options, fences
):
    _, old = prepare(options, 0)
    plan, new = prepare(options, 0, attempt=1)
    with pytest.raises(Fenced):
        committer.commit(options, old, 0)
    committer.abort(options, old)
    assert holder(options) == plan.coordinator, "the old one took the id"
    fences.clear()
    committer.commit(options, new, 0)
    assert len(fences) == 1
    assert visible(options) == Counter([b"row 0"])


def test_restore_fences_nobody(broker, make_topic, tmp_path):
    servers = broker.bootstrap_servers
    job = HandMadeJob(servers, make_topic("out"), make_topic("job"), tmp_path / "a")
    job.run(0, 1)
    job.begin(2)
    reports = job.prepare(2)
    before = holder(job.options)
    head = restore(str(tmp_path / "b"), job.name, job.given, progress=False)
    assert head is not None
    assert head.batch == 1
    assert holder(job.options) == before
    committer.commit(job.options, reports, 2)
    assert job.visible == all_rows(0, 1, 2)


def test_repairing_a_batch_that_is_not_there_fences_nobody(options, capsys):
    _, reports = prepare(options, 0)
    committer.commit(options, reports, 0)
    plan, reports = prepare(options, 1)
    servers = options.kafka["bootstrap.servers"]
    words = ["job", "repair", options.job, "--accept-loss", "--bootstrap-servers", servers]
    assert cli.main([*words, "--batch", "1"]) == 1
    assert "needs no repair" in capsys.readouterr().err
    assert holder(options) == plan.coordinator
    committer.commit(options, reports, 1)
    assert visible(options) == Counter([b"row 0", b"row 1"])


@pytest.fixture
def overtake(options, monkeypatch):
    """Call it, and another driver takes the id right after the next one has, before that one learns
    its identity. Answers who it was, once it was."""
    take, others = appender.transactional_producer.take, []

    def overtaken(*arguments, **named):
        mine = take(*arguments, **named)
        monkeypatch.setattr(appender.transactional_producer, "take", take)
        theirs = take(*arguments, **named)
        others.append((theirs, holder(options)))
        return mine

    def arm():
        monkeypatch.setattr(appender.transactional_producer, "take", overtaken)
        return others

    return arm


def test_an_identity_that_may_be_anothers_is_not_taken_for_ones_own(options, overtake):
    make_plan(options)
    mine = Coordinator(options, control_plane.shared(options.kafka))
    overtake()
    mine.fence()
    assert mine.identity is None, "what was learnt is the other's"
    record = (records.GENERATION_KEY, records.encode_generation(2))
    assert not mine.try_append([record])
    assert mine.identity is None
    mine.fence()
    assert mine.try_append([record])
    assert mine.identity == holder(options)


def test_a_decision_that_had_landed_is_finished_under_a_fence_that_is_ones_own(
    options, overtake, monkeypatch
):
    """The answer to the decision was lost, and the fence that finds the decision there is overtaken
    before its identity is learnt: stragglers are ended in the name of that identity."""
    _, reports = prepare(options, 0)
    append, finish, seen = Coordinator.append, committer.Finisher.finish, []

    def lost(self, written, state=(), **more):
        append(self, written, state, **more)
        monkeypatch.setattr(Coordinator, "append", append)
        overtake()
        raise AppendFailed("the answer was lost")

    def noted(self, decision):
        seen.append(self._coordinator.identity)
        return finish(self, decision)

    monkeypatch.setattr(Coordinator, "append", lost)
    monkeypatch.setattr(committer.Finisher, "finish", noted)
    committer.commit(options, reports, 0)
    ((_, other),) = overtake()
    assert seen[0] is not None
    assert seen[0] != other, "it was the other's identity"
    assert visible(options) == Counter([b"row 0"])


def test_abort_ends_what_was_not_reported_under_a_fence_that_is_ones_own(options):
    _, (report,) = prepare(options, 0)
    control = control_plane.shared(options.kafka)
    name = report.participant.identity.transactional_id
    assert control.describe_one(name).is_open(report.participant.identity)
    committer.abort(options, [None], report.generation)
    assert not control.describe_one(name).is_open(report.participant.identity)
    _, reports = prepare(options, 0, attempt=1)
    committer.commit(options, reports, 0)
    assert visible(options) == Counter([b"row 0"])


def test_a_numbered_save_under_the_name_of_a_query_fences_nobody(options):
    _, reports = prepare(options, 0)
    committer.commit(options, reports, 0)
    plan, reports = prepare(options, 1)
    servers = options.kafka["bootstrap.servers"]
    given = {"kafka.bootstrap.servers": servers, "topic": options.topic, "jobname": options.job}
    schema = StructType([StructField("value", BinaryType())])
    writer = of_job({**given, "batchid": "1"}, schema, overwrite=False)
    with pytest.raises(ForeignLedger):
        pickle.dumps(writer)  # S1
    assert holder(options) == plan.coordinator
    committer.commit(options, reports, 1)
    assert visible(options) == Counter([b"row 0", b"row 1"])
