"""Option `onReset`: what a new checkpoint means to a job that has a ledger. The old query's rows
and the new one's are compared as multisets: all of both with `new-job`, each row once with
`continue`."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

import eo_kafka
from eo_kafka.clients.kafka import control_plane
from eo_kafka.errors import Fenced, ForeignLedger
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.state.ledger.coordinator import Coordinator
from eo_kafka.state.ledger.ledger import Ledger
from eo_kafka.state.ledger.succession import Succession
from eo_kafka.state.snapshots.query_id import read_query_id
from eo_kafka.tools import cli
from hand_made_job import HandMadeJob, all_rows
from harness import (
    Copy,
    Stateful,
    assert_settled,
    committed,
    fail_at,
    kill_driver_at,
    make_copy,
    produce,
    read_ledger,
    recreate_topic,
    wait_until_timed_out,
)
from jobs.copy_job import start_copy

VALUES = [b"%d" % number for number in range(200)]
MORE = [b"more %d" % number for number in range(60)]
NEWS = [b"new %d" % number for number in range(500)]
ONCE = Counter(VALUES)


@pytest.fixture
def job(broker, make_topic, tmp_path) -> Copy:
    """A copy of 200 records in two batches."""
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, per_batch=100)
    job.source_extra["jobName"] = job.job_name
    return job


def refreshed(job: Copy, mode: str, name: str = "refreshed") -> Copy:
    """The same query with a new checkpoint."""
    return replace(
        job,
        checkpoint=job.checkpoint.with_name(name),
        source_extra={**job.source_extra, "onReset": mode},
        sink_extra={**job.sink_extra, "onReset": mode},
    )


def query(job: Copy) -> str:
    found = read_query_id(str(job.checkpoint))
    assert found is not None
    return found


def assert_rows(job: Copy, expected: Counter[bytes]) -> None:
    assert committed(job.servers, job.sink_topic) == expected
    assert_settled(job)


def test_new_job_reads_and_writes_all_of_it_again_once(job, spark):
    job.run(spark)
    second = refreshed(job, "new-job")
    second.run(spark)
    assert_rows(job, ONCE + ONCE)
    ledger = read_ledger(job)
    assert (ledger.owner, ledger.succession.replaced) == (query(second), (query(job),))
    produce(job.servers, job.source_topic, MORE)
    with pytest.raises(Exception, match=r"ForeignLedger.*wrote ledger .* once"):
        refreshed(job, "new-job", job.checkpoint.name).run(spark)  # the old checkpoint
    assert_rows(job, ONCE + ONCE)


@pytest.mark.full
def test_two_refreshes(job, spark):
    job.run(spark)
    second, third = refreshed(job, "new-job"), refreshed(job, "new-job", "again")
    second.run(spark)
    third.run(spark)
    assert_rows(job, ONCE + ONCE + ONCE)
    assert read_ledger(job).succession.replaced == (query(job), query(second))
    produce(job.servers, job.source_topic, MORE)
    with pytest.raises(Exception, match=r"ForeignLedger.*wrote ledger .* once"):
        second.run(spark)
    third.run(spark)
    assert_rows(job, ONCE + ONCE + ONCE + Counter(MORE))


def test_continue_repeats_nothing_and_loses_nothing(job, spark):
    job.source_extra["onReset"] = job.sink_extra["onReset"] = "continue"
    job.run(spark)  # the first query has nothing to continue
    assert_rows(job, ONCE)
    produce(job.servers, job.source_topic, MORE)
    second = refreshed(job, "continue")
    second.run(spark)
    assert_rows(job, ONCE + Counter(MORE))
    third = refreshed(job, "continue", "third")
    third.run(spark)
    produce(job.servers, job.source_topic, MORE)
    third.run(spark)
    assert_rows(job, ONCE + Counter(MORE) + Counter(MORE))


@pytest.mark.parametrize(
    ("point", "mode"),
    [
        ("reset.before_write", "new-job"),
        pytest.param("reset.before_write", "continue", marks=pytest.mark.full),
        pytest.param("reset.after_write", "new-job", marks=pytest.mark.full),
        pytest.param("reset.after_write", "continue", marks=pytest.mark.full),
    ],
)
def test_a_new_query_that_is_killed_around_its_reset_resets_once(
    job, spark, crash_points, tmp_path, point, mode
):
    job.run(spark)
    produce(job.servers, job.source_topic, MORE)
    second = refreshed(job, mode)
    kill_driver_at(second, crash_points, point, tmp_path / "log")
    owner = query(job) if point == "reset.before_write" else query(second)
    assert read_ledger(job).owner == owner
    second.run(spark)
    assert read_ledger(job).succession.replaced == (query(job),)
    again = ONCE if mode == "new-job" else Counter()
    assert_rows(job, ONCE + again + Counter(MORE))


@pytest.mark.full
@pytest.mark.parametrize("mode", ["new-job", "continue"])
@pytest.mark.parametrize(
    "point",
    [
        "source.after_initial_resolution",
        "source.before_partitions",
        "S1.after_fence",
        "S1.after_generation",
        "S6.before_fence",
        "S6.before_decision",
        "S6.after_decision",
        "S8.after_done",
    ],
)
def test_a_new_query_that_is_killed_in_its_first_batch(
    job, spark, crash_points, tmp_path, point, mode
):
    job.run(spark)
    produce(job.servers, job.source_topic, MORE)
    second = refreshed(job, mode)
    kill_driver_at(second, crash_points, point, tmp_path / "log")
    second.run(spark)
    assert read_ledger(job).succession.replaced == (query(job),)
    again = ONCE if mode == "new-job" else Counter()
    assert_rows(job, ONCE + again + Counter(MORE))


@pytest.mark.full
@pytest.mark.parametrize(
    ("lane", "commit", "mode"),
    [
        ("direct", "two-phase", "new-job"),
        ("direct", "two-phase", "continue"),
        ("eo-kafka", "idempotent", "new-job"),
    ],
)
def test_other_ways_to_read_and_to_commit(job, spark, crash_points, lane, commit, mode):
    job.source, job.sink_extra["commit"] = lane, commit
    job.run(spark)
    produce(job.servers, job.source_topic, MORE)
    second = refreshed(job, mode)
    fail_at(second, spark, crash_points, "reset.after_write")
    second.run(spark)
    again = ONCE if mode == "new-job" else Counter()
    assert_rows(job, ONCE + again + Counter(MORE))
    produce(job.servers, job.source_topic, MORE)
    second.run(spark)
    assert_rows(job, ONCE + again + Counter(MORE) + Counter(MORE))


@pytest.mark.full
@pytest.mark.parametrize("commit", ["two-phase", "idempotent"])
def test_the_way_to_commit_may_change_with_the_refresh(job, spark, commit):
    ways = {"two-phase": "idempotent", "idempotent": "two-phase"}
    job.sink_extra["commit"] = ways[commit]
    job.run(spark)
    second = refreshed(job, "new-job")
    second.sink_extra["commit"] = commit
    second.run(spark)
    assert_rows(job, ONCE + ONCE)
    assert (read_ledger(job).one_phase_from is not None) == (commit == "idempotent")


@pytest.mark.full
@pytest.mark.parametrize("named", [False, True])
def test_a_query_of_several_sources_continues_each(broker, make_topic, tmp_path, spark, named):
    if named and not hasattr(spark.readStream, "name"):
        pytest.skip("Spark 4.2 and newer have sources with names")
    servers, sink, topics = broker.bootstrap_servers, make_topic("out"), [make_topic("a")]
    topics.append(make_topic("b"))
    kafka = {"kafka.bootstrap.servers": servers, "jobName": sink, "onReset": "continue"}
    evolves = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
    spark.conf.set(evolves, str(named).lower())
    try:
        for folder in ("a", "b", "c"):
            both = None
            for number, topic in enumerate(topics):
                produce(servers, topic, MORE)
                reader = spark.readStream.format("eo-kafka").options(**kafka, subscribe=topic)
                reader = reader.option("startingOffsets", "earliest")
                rows = (reader.name(f"s{number}") if named else reader).load()
                both = rows if both is None else both.union(rows)
            writer = both.select("value").writeStream.format("eo-kafka").options(**kafka)
            place = {"topic": sink, "checkpointLocation": str(tmp_path / folder)}
            query = writer.options(**place).trigger(availableNow=True).start()
            assert query.awaitTermination(180)
    finally:
        spark.conf.unset(evolves)
    assert committed(servers, sink) == Counter(dict.fromkeys(MORE, 6))
    assert ("\ns1:" in (tmp_path / "c" / "offsets" / "0").read_text()) == named


@pytest.mark.full
@pytest.mark.parametrize("mode", ["new-job", "continue"])
def test_what_the_old_query_had_decided_is_committed_first(
    job, spark, crash_points, tmp_path, mode
):
    kill_driver_at(job, crash_points, "S6.after_decision", tmp_path / "log")
    assert not committed(job.servers, job.sink_topic)
    second = refreshed(job, mode)
    second.run(spark)
    if mode == "continue":
        assert_rows(job, ONCE)
        return
    found = committed(job.servers, job.sink_topic)
    assert found - ONCE <= ONCE
    assert sum(found.values()) == 300, "the decided batch, of 100, and all of it again"
    assert found >= ONCE
    assert_settled(job)


@pytest.mark.full
def test_what_the_old_query_had_only_prepared_is_aborted(job, spark, crash_points, tmp_path):
    kill_driver_at(job, crash_points, "S6.before_decision", tmp_path / "log")
    refreshed(job, "new-job").run(spark)
    assert_rows(job, ONCE)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["new-job", "continue"])
def test_an_older_copy_of_the_querys_own_checkpoint_is_no_reset(job, spark, mode):
    same = refreshed(job, mode, job.checkpoint.name)
    same.run(spark)
    copy = job.checkpoint.with_name("copy")
    shutil.copytree(job.checkpoint, copy)
    for folder in ("offsets", "commits"):
        for path in (copy / folder).glob("*1*"):
            path.unlink()
    produce(job.servers, job.source_topic, MORE)
    with pytest.raises(Exception, match="BatchMismatch: Batch 1"):
        replace(same, checkpoint=copy, per_batch=None).run(spark)
    assert_rows(job, ONCE)
    assert read_ledger(job).succession == Succession()
    same.run(spark)
    assert_rows(job, ONCE + Counter(MORE))


@pytest.mark.full
def test_continue_is_refused_where_the_reader_does_not_know_of_it(job, spark):
    job.run(spark)
    second = refreshed(job, "continue")
    del second.source_extra["onReset"]
    for _ in range(2):  # also where the batch is planned already
        with pytest.raises(Exception, match=r"cannot continue.*its sources start at"):
            second.run(spark)
    assert read_ledger(job).owner == query(job)
    second.per_batch = None  # a batch 0 that ends where the job did, and holds everything
    second.checkpoint = job.checkpoint.with_name("third")
    with pytest.raises(Exception, match=r"is to continue at.*batch 0 has 200 rows"):
        second.run(spark)
    assert_rows(job, ONCE)
    refreshed(job, "continue", "fourth").run(spark)
    assert_rows(job, ONCE)


def test_readers_that_continue_for_a_sink_that_begins_anew_are_told_of(job, spark):
    job.run(spark)
    produce(job.servers, job.source_topic, MORE)
    second = refreshed(job, "continue")
    second.sink_extra["onReset"] = "new-job"
    for _ in range(2):  # also where the batch is planned already
        with pytest.raises(Exception, match=r"ForeignLedger.*sink's option 'onReset' is 'new-job'"):
            second.run(spark)
    assert read_ledger(job).owner == query(job)
    assert_rows(job, ONCE)
    second.sink_extra["onReset"] = "continue"  # the checkpoint is no worse for it
    second.run(spark)
    assert_rows(job, ONCE + Counter(MORE))


@pytest.mark.full
def test_readers_that_continue_by_another_ledger_are_told_of(job, spark, make_topic):
    job.run(spark)
    second = refreshed(job, "continue")
    second.sink_topic = second.job_name = make_topic("other")
    for mode in ("stop", "new-job", "continue"):
        second.sink_extra["onReset"] = mode
        with pytest.raises(Exception, match=r"ForeignLedger.*but the sink's ledger is"):
            second.run(spark)
    assert not committed(job.servers, second.sink_topic)


@pytest.mark.full
def test_a_ledger_that_is_reset_under_a_query_that_continues_is_told_of(job, spark, crash_points):
    job.run(spark)
    second = refreshed(job, "continue")
    fail_at(second, spark, crash_points, "reset.before_write")
    assert cli.main(["job", "reset", job.job_name, "--bootstrap-servers", job.servers]) == 0
    with pytest.raises(Exception, match=r"ForeignLedger.*it was reset or deleted since"):
        second.run(spark)
    assert committed(job.servers, job.sink_topic) == ONCE
    refreshed(job, "continue", "again").run(spark)
    assert_rows(job, ONCE + ONCE)


@pytest.mark.full
def test_a_reader_that_starts_at_the_end_all_the_same_continues(job, spark):
    """`latest`, where nothing has come since, is where the job ended."""
    job.run(spark)
    second = refreshed(job, "continue")
    second.source_extra.update(onReset="stop", startingOffsets="latest")
    second.run(spark)
    produce(job.servers, job.source_topic, MORE)
    second.run(spark)
    assert_rows(job, ONCE + Counter(MORE))
    third = refreshed(job, "continue", "third")
    third.source_extra.update(onReset="stop", startingOffsets="latest")
    produce(job.servers, job.source_topic, VALUES)
    with pytest.raises(Exception, match=r"cannot continue.*its sources start at"):
        third.run(spark)  # `latest` would have left these out
    assert_rows(job, ONCE + Counter(MORE))


@pytest.mark.full
def test_sparks_own_connector_goes_on_where_a_query_continued(job, spark):
    job.run(spark)
    second = refreshed(job, "continue")
    second.run(spark)
    assert "@continues" in (second.checkpoint / "offsets" / "0").read_text()
    produce(job.servers, job.source_topic, MORE)
    second.source, second.source_extra = "kafka", {}
    second.run(spark)
    assert_rows(job, ONCE + Counter(MORE))


@pytest.mark.full
def test_a_query_that_was_ended_in_its_first_batch_continues_a_job_of_one_batch(
    job, spark, crash_points
):
    """Where batch 0 ends is where the job's own batch 0 ended."""
    job.per_batch = None
    job.run(spark)
    produce(job.servers, job.source_topic, MORE)
    second = refreshed(job, "continue")
    fail_at(second, spark, crash_points, "S1.after_generation")
    second.run(spark)
    assert_rows(job, ONCE + Counter(MORE))


@pytest.mark.full
def test_continue_is_refused_where_a_topic_was_made_again(job, spark):
    """Also with failOnDataLoss=false: there is no way to read the new one from its beginning."""
    job.run(spark)
    recreate_topic(job.servers, job.source_topic, NEWS, 2)
    second = refreshed(job, "continue")
    second.source_extra["failOnDataLoss"] = second.sink_extra["failOnDataLoss"] = "false"
    with pytest.raises(Exception, match=r"DataLossError.*have other ids.*Nothing was read"):
        second.run(spark)
    assert_rows(job, ONCE)
    refreshed(job, "new-job", "again").run(spark)
    assert_rows(job, ONCE + Counter(NEWS))


@pytest.mark.full
def test_a_first_batch_that_was_planned_before_a_topic_was_made_again(job, spark, crash_points):
    """It knows which topic it was of. So what the errors say leads to the new topic's beginning."""
    job.run(spark)
    late = refreshed(job, "continue", "late")
    fail_at(late, spark, crash_points, "reset.after_write")
    recreate_topic(job.servers, job.source_topic, NEWS, 2)
    with pytest.raises(Exception, match=r"DataLossError.*set 'failOnDataLoss' to false until"):
        late.run(spark)
    late.source_extra["failOnDataLoss"] = "false"
    with pytest.raises(Exception, match=r"DataLossError.*to false at the sink, too, until"):
        late.run(spark)
    late.sink_extra["failOnDataLoss"] = "false"
    late.run(spark)
    assert_rows(job, ONCE + Counter(NEWS))


def test_continue_is_refused_to_a_query_with_state(broker, make_topic, tmp_path, spark):
    values = [b"a 1", b"b 2"]
    source, sink = make_topic("in"), make_topic("out")
    produce(broker.bootstrap_servers, source, values)
    job = Stateful(broker.bootstrap_servers, source, sink, tmp_path / "first", sink)
    job.source_extra["jobName"] = sink
    job.sink_extra["snapshots"] = "false"
    job.run(spark)
    with pytest.raises(Exception, match="ForeignLedger.*keeps state"):
        refreshed(job, "continue").run(spark)
    assert read_ledger(job).owner == query(job)


@pytest.mark.full
def test_a_batch_that_is_partly_lost_keeps_the_ledger_with_its_query(
    job, spark, crash_points, tmp_path
):
    job.timeout_ms = 10_000
    kill_driver_at(job, crash_points, "S7.after_first_end_txn", tmp_path / "log")
    wait_until_timed_out(job)
    before = committed(job.servers, job.sink_topic)
    assert 0 < before.total() < 100
    for mode in ("new-job", "continue"):
        with pytest.raises(Exception, match="LedgerError: Batch 0 of the query before is partly"):
            refreshed(job, mode, mode).run(spark)
    assert committed(job.servers, job.sink_topic) == before
    job.run(spark)
    assert_rows(job, ONCE)
    refreshed(job, "new-job", "again").run(spark)
    assert_rows(job, ONCE + ONCE)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["new-job", "continue"])
def test_foreach_batch(job, spark, mode):
    def run(place: str) -> None:
        options = job.as_job()["source_options"] | {"onReset": mode}
        rows = spark.readStream.format("eo-kafka").options(**options).load()
        sink = {**job.sink_options, "onReset": mode}
        del sink["checkpointLocation"]
        writer = rows.select("key", "value").writeStream.foreachBatch(eo_kafka.foreach_batch(sink))
        writer = writer.option("checkpointLocation", str(job.checkpoint.with_name(place)))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(180)

    run("a")
    assert_rows(job, ONCE)
    produce(job.servers, job.source_topic, MORE)
    run("b")
    again = ONCE if mode == "new-job" else Counter()
    assert_rows(job, ONCE + again + Counter(MORE))
    with pytest.raises(Exception, match=r"ForeignLedger.*wrote ledger .* once"):
        run("a")
    run("b")
    assert_rows(job, ONCE + again + Counter(MORE))


# Without Spark: the sink's own functions, on a real Kafka.


@pytest.fixture
def options(broker, make_topic) -> SinkOptions:
    topic = make_topic("reset")
    servers = broker.bootstrap_servers
    given = {"kafka.bootstrap.servers": servers, "topic": topic, "jobName": topic}
    given["onReset"] = "new-job"
    return replace(SinkOptions.parse(given, streaming=True), query_id="old")


def prepare(options: SinkOptions, batch: int):
    plan = make_plan(options)
    value = f"{options.query_id} {batch}".encode()
    rows = iter([pa.RecordBatch.from_pydict({"value": [value]})])
    task = two_phase.TaskIdentity(options.query_id or "", batch, 0, 0)
    return plan, [two_phase.write(options, plan, task, rows)]


def ledger_of(options: SinkOptions) -> Ledger:
    return Coordinator(options, control_plane.shared(options.kafka)).read(fenced=False)


def visible(options: SinkOptions) -> Counter[bytes]:
    return committed(options.kafka["bootstrap.servers"], options.topic or "")


def test_a_driver_of_the_old_query_that_lives_is_fenced_and_takes_nothing_back(
    options, monkeypatch
):
    _, first = prepare(options, 0)
    committer.commit(options, first, 0)
    _, open_batch = prepare(options, 1)
    new = replace(options, query_id="new")
    _, reports = prepare(new, 0)
    with pytest.raises(Fenced):
        committer.commit(options, open_batch, 1)
    committer.abort(options, open_batch)
    fences: list[object] = []
    monkeypatch.setattr(Coordinator, "fence", fences.append)
    for mode in ("stop", "new-job", "continue"):
        with pytest.raises(ForeignLedger, match="once, and query new has taken it over"):
            make_plan(replace(options, on_reset=mode))
    assert not fences, "the old query disturbed the new one"
    monkeypatch.undo()
    committer.commit(new, reports, 0)
    assert visible(options) == Counter([b"old 0", b"new 0"])


def test_the_old_query_that_comes_between_the_generation_and_the_reset_stops_it(
    options, monkeypatch
):
    _, first = prepare(options, 0)
    committer.commit(options, first, 0)
    new, write = replace(options, query_id="new"), Coordinator.write

    def after_the_old_one(self, *arguments) -> None:
        monkeypatch.setattr(Coordinator, "write", write)
        _, late[:] = prepare(options, 1)
        write(self, *arguments)

    late: list[object] = []
    monkeypatch.setattr(Coordinator, "write", after_the_old_one)
    with pytest.raises(Fenced):
        make_plan(new)
    committer.commit(options, late, 1)
    _, reports = prepare(new, 0)
    committer.commit(new, reports, 0)
    assert visible(options) == Counter([b"old 0", b"old 1", b"new 0"])


@pytest.mark.parametrize("mode", ["stop", "new-job"])
def test_that_everything_is_written_again_is_told(options, mode, caplog):
    """The option may stand there for years when a checkpoint is lost."""
    _, first = prepare(options, 0)
    committer.commit(options, first, 0)
    again = replace(options, query_id="new" if mode == "new-job" else "old", on_reset=mode)
    for _ in range(2):
        make_plan(again)
    told = [one.getMessage() for one in caplog.records if "everything again" in one.getMessage()]
    assert len(told) == (mode == "new-job")
    assert all("Query new has taken job" in one and "from query old" in one for one in told)


def test_another_target_is_another_job(options, make_topic):
    _, first = prepare(options, 0)
    committer.commit(options, first, 0)
    other = replace(options, query_id="new", topic=make_topic("other"))
    with pytest.raises(ForeignLedger, match=re.escape(f"went to topic '{options.topic}'")):
        make_plan(other)


def test_another_query_of_the_same_job_name_is_no_refresh(options):
    named = replace(options, query_name="a flow")
    _, first = prepare(named, 0)
    committer.commit(named, first, 0)
    with pytest.raises(ForeignLedger, match="its query is named 'a flow', and this one 'another'"):
        make_plan(replace(options, query_id="new", query_name="another"))
    assert make_plan(replace(named, query_id="new")).owner == "new"


def test_a_snapshot_of_the_old_query_is_not_the_new_ones(broker, make_topic, tmp_path):
    servers, topic, name = broker.bootstrap_servers, make_topic("out"), make_topic("job")
    old = HandMadeJob(servers, topic, name, tmp_path / "a")
    old.run(0, 1)
    new = HandMadeJob(servers, topic, name, tmp_path / "b")
    new.extra = {"onReset": "new-job", "checkpointlocation": new.location}  # as Spark gives it
    new.begin(0)
    make_plan(new.options)
    ledger = ledger_of(new.options)
    assert (ledger.owner, ledger.snapshot, ledger.loading_from) == (new.query, None, 0)
    new.run(0, 1)
    assert new.visible == all_rows(0, 1) + all_rows(0, 1)
    ledger = ledger_of(new.options)
    assert ledger.snapshot is not None
    assert (ledger.snapshot.query, ledger.loading_from) == (new.query, None)


def test_a_new_job_whose_reader_would_start_at_latest_is_refused(job, spark):
    """What came since the query before ended would be read by neither."""
    job.run(spark)
    produce(job.servers, job.source_topic, MORE)
    second = refreshed(job, "new-job")
    without = second.as_job()
    del without["source_options"]["startingOffsets"]
    # Also where the batch is planned already, and is not what is asked for now
    for asked in (without, without, second.as_job()):
        with pytest.raises(Exception, match=r"ForeignLedger.*delete this new checkpoint"):
            assert start_copy(spark, asked).awaitTermination(180)
    assert read_ledger(job).owner == query(job)
    refreshed(job, "new-job", "third").run(spark)  # from 'earliest', with another new checkpoint
    assert_rows(job, ONCE + ONCE + Counter(MORE))
