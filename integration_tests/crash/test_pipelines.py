"""Spark's declarative pipelines with an eo-kafka sink: killed, run again, and fully refreshed."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient

from eo_kafka.state.snapshots.query_id import read_query_id
from harness import Copy, assert_settled, committed, produce, read_ledger
from newcomer import blocks
from pipeline_project import Pipeline

pytest.importorskip("pyspark.pipelines", reason="Spark 4.1 and newer have declarative pipelines")
pytest.importorskip("grpc", reason="declarative pipelines need pyspark[pipelines]")
VALUES = [b"%d" % number for number in range(300)]
MORE = [b"more %d" % number for number in range(60)]
ONCE = Counter(VALUES)


@pytest.fixture
def pipeline(broker, make_topic, tmp_path) -> Pipeline:
    """One flow, `copy`, in batches of 100 records."""
    source, servers = make_topic("in", partitions=2), broker.bootstrap_servers
    produce(servers, source, VALUES)
    made = Pipeline(tmp_path / "project", servers, make_topic("out"), {"copy": source})
    made.sink_extra = {"jobName": made.topic}
    made.source_extra = {"jobName": made.topic, "maxOffsetsPerTrigger": "100"}
    return made


def as_job(pipeline: Pipeline, job: str | None = None) -> Copy:
    name, checkpoint = job or pipeline.topic, pipeline.checkpoint("copy")
    return Copy(pipeline.servers, pipeline.flows["copy"], pipeline.topic, checkpoint, name)


def rows(pipeline: Pipeline) -> Counter[bytes]:
    return committed(pipeline.servers, pipeline.topic)


def kill_at(pipeline: Pipeline, crash_points, point: str, *arguments: str) -> None:
    crash_points.arm(point, "wait")
    with pipeline.running(*arguments):
        crash_points.wait_reached(point)


def refresh_under(pipeline: Pipeline, mode: str) -> str:
    for options in (pipeline.sink_extra, pipeline.source_extra):
        options["onReset"] = mode
    return pipeline.run("--full-refresh-all")


def test_one_that_is_killed_with_a_decided_batch_and_refreshed_has_that_batch_and_all_again(
    pipeline, crash_points
):
    kill_at(pipeline, crash_points, "S6.after_decision")
    job = as_job(pipeline)
    decided = sum(part.rows for part in read_ledger(job).decisions["main", 0].participants)
    assert 0 < decided < len(VALUES)
    assert not rows(pipeline)
    refresh_under(pipeline, "new-job")
    found = rows(pipeline)
    assert found >= ONCE
    assert (found - ONCE) <= ONCE
    assert sum(found.values()) == decided + len(VALUES)
    assert_settled(job)
    old, new = (read_query_id(str(pipeline.checkpoint("copy", at))) for at in (0, 1))
    ledger = read_ledger(job)
    assert (ledger.owner, ledger.succession.replaced) == (new, (old,))


@pytest.mark.full
@pytest.mark.parametrize(
    "point", ["S3.while_writing", "S6.before_decision", "S6.after_decision", "S8.after_done"]
)
def test_one_that_is_killed_and_run_again_loses_and_repeats_nothing(pipeline, crash_points, point):
    kill_at(pipeline, crash_points, point)
    pipeline.run()
    assert rows(pipeline) == ONCE
    produce(pipeline.servers, pipeline.flows["copy"], MORE)
    pipeline.run()
    assert rows(pipeline) == ONCE + Counter(MORE)
    assert_settled(as_job(pipeline))


@pytest.mark.full
@pytest.mark.parametrize("point", ["reset.before_write", "reset.after_write", "S6.after_decision"])
@pytest.mark.parametrize("mode", ["new-job", "continue"])
def test_a_full_refresh_that_is_killed_and_run_again(pipeline, crash_points, mode, point):
    pipeline.run()
    produce(pipeline.servers, pipeline.flows["copy"], MORE)
    for options in (pipeline.sink_extra, pipeline.source_extra):
        options["onReset"] = mode
    kill_at(pipeline, crash_points, point, "--full-refresh-all")
    pipeline.run()
    again = ONCE if mode == "new-job" else Counter()
    assert rows(pipeline) == ONCE + again + Counter(MORE)
    assert_settled(as_job(pipeline))


@pytest.mark.full
def test_what_a_full_refresh_means(pipeline):
    pipeline.run()
    produce(pipeline.servers, pipeline.flows["copy"], MORE)
    for by_name in ("--refresh", "--full-refresh"):
        assert "Flow 'copy' is EXCLUDED" in pipeline.run(by_name, "out")
    said = refresh_under(pipeline, "stop")
    assert "ForeignLedger" in said
    assert all(f"'{mode}'" in said for mode in ("stop", "new-job", "continue"))
    assert rows(pipeline) == ONCE
    refresh_under(pipeline, "continue")
    assert rows(pipeline) == ONCE + Counter(MORE)
    refresh_under(pipeline, "new-job")
    assert rows(pipeline) == ONCE + ONCE + Counter(MORE) + Counter(MORE)
    assert_settled(as_job(pipeline))


@pytest.mark.full
def test_flows_without_a_job_name_have_a_ledger_each(pipeline, make_topic, tmp_path):
    pipeline.sink_extra, pipeline.source_extra = {}, {}
    pipeline.flows["other"] = make_topic("in")
    produce(pipeline.servers, pipeline.flows["other"], MORE)
    twin = Pipeline(tmp_path / "twin", pipeline.servers, pipeline.topic, pipeline.flows)
    for one in (pipeline, twin):
        one.run()
        one.run()  # each goes on by the ledger that it has
    assert rows(pipeline) == ONCE + ONCE + Counter(MORE) + Counter(MORE)
    topics = AdminClient({"bootstrap.servers": pipeline.servers}).list_topics(timeout=30).topics
    ledgers = sorted(name for name in topics if name.startswith("__eo_kafka.storage-"))
    ends = [name.split(".", 2)[2] for name in ledgers]
    assert sorted(ends) == ["copy.ledger", "copy.ledger", "other.ledger", "other.ledger"]


@pytest.mark.full
def test_a_second_flow_does_not_take_the_ledger_of_the_first(pipeline, make_topic):
    pipeline.run()
    pipeline.sink_extra["onReset"] = "new-job"
    pipeline.flows["other"] = make_topic("in")
    produce(pipeline.servers, pipeline.flows["other"], MORE)
    said = pipeline.run()
    assert "its query is named 'copy', and this one 'other'" in said
    assert rows(pipeline) == ONCE
    del pipeline.flows["other"]
    produce(pipeline.servers, pipeline.flows["copy"], MORE)
    pipeline.run()
    assert rows(pipeline) == ONCE + Counter(MORE)


@pytest.mark.full
def test_the_page_of_pipelines_works(broker, make_topic, tmp_path):
    """As it stands, but for its topics and where things are."""
    orders, paid = make_topic("orders"), make_topic("paid")
    produce(broker.bootstrap_servers, orders, [b"paid 1", b"open 2", b"paid 3"])
    _, spec, flow, *_ = [block.content for block in blocks("docs/pipelines.md")]
    for shown, here in (
        ("localhost:9092", broker.bootstrap_servers),
        ('"orders")', f'"{orders}")'),
        ('"topic": "paid"', f'"topic": "{paid}"'),
        ("orders.paid", f"{paid}.job"),
    ):
        assert shown in flow
        flow = flow.replace(shown, here)
    assert "file:///data/pipelines/orders" in spec
    folder = tmp_path / "project"
    made = Pipeline(folder, broker.bootstrap_servers, paid, {})
    (folder / "transformations").mkdir(parents=True)
    (folder / "transformations" / "paid.py").write_text(flow)
    storage = f"file://{folder}/storage"
    made.spec = spec.replace("file:///data/pipelines/orders", storage)
    expected = Counter([b"paid 1", b"paid 3"])
    for arguments, times in (((), 1), ((), 1), (("--full-refresh-all",), 2)):
        made.run(*arguments)
        found = committed(broker.bootstrap_servers, paid)
        assert found == Counter({value: times * count for value, count in expected.items()})
