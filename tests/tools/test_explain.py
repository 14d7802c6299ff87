"""What a query guarantees, from what was found in it: the table of `eo-kafka explain`."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from pyspark.sql.connect.proto import WriteStreamOperationStart

from eo_kafka.core.errors import OptionsError
from eo_kafka.tools.cli import main
from eo_kafka.tools.explain import connect_plan
from eo_kafka.tools.explain.facts import FILES, OURS, Guarantee
from eo_kafka.tools.explain.picture import MARKS, picture
from eo_kafka.tools.explain.pipeline import AGGREGATE, SHUFFLE, STATE, End, Pipeline, Step
from eo_kafka.tools.explain.query import read
from eo_kafka.tools.explain.rate import Rate, too_slow
from eo_kafka.tools.explain.step_facts import STEPS
from eo_kafka.tools.explain.verdict import judge

SOURCE = End.of("eo-kafka", {"subscribe": "orders"})
SINK = End.of("eo-kafka", {"topic": "billed"})
IMAP = End.of("eo-map", {"backend": "hazelcast", "map": "totals"})
MAYBE, NO, LEAST, EXACT = "not-known", "none", "at-least-once", "exactly-once"


def pipeline(sink: End | None = SINK, source: End = SOURCE, *steps: Step, **more) -> Pipeline:
    return Pipeline((source,), steps, sink, **more)


def sink(name: str = "eo-kafka", within: str | None = None, by: bool = False, **options: str):
    return End.of(name, {"topic": "billed", **options}, within, by)


@pytest.mark.parametrize(
    ("source", "guarantee"),
    [
        (End.of("eo-kafka", {}), EXACT),
        (End.of("kafka", {}), EXACT),
        (End.of("eo-kafka", {"failOnDataLoss": "FALSE"}), NO),
        (End.of("kafka", {"failondataloss": "false"}), NO),
        (End.of("eo-map", {"backend": "kafka"}), EXACT),
        (End.of("eo-queue", {"queue": "orders", "url": "amqp://me:hunter2@nowhere"}), EXACT),
        (End.of("eo-queue", {"queue": "orders", "failOnDataLoss": "false"}), NO),
        (End.of("rate", {}), EXACT),
        *((End.of(name, {}), EXACT) for name in FILES),
        (End.of("json", {"ignoreMissingFiles": "False", "mode": "permissive"}), EXACT),
        (End.of("parquet", {"ignoreMissingFiles": "True"}), NO),
        (End.of("json", {"ignoreCorruptFiles": "true"}), NO),
        *((End.of(name, {"mode": "dropMalformed"}), NO) for name in ("csv", "json", "xml")),
        (End.of("socket", {}), NO),
        (End.of("delta", {}), MAYBE),
        (End.of("my-own", {}), MAYBE),
    ],
)
def test_sources(source, guarantee):
    assert judge(pipeline(source=source)).guarantee == guarantee


@pytest.mark.parametrize(
    ("to", "guarantee"),
    [
        (sink(), EXACT),
        (sink(commit="idempotent"), EXACT),
        (sink(guarantee="At-Least-Once"), LEAST),
        (sink(guarantee="none"), NO),
        (sink("kafka"), LEAST),
        (sink("kafka", guarantee="exactly-once"), LEAST),
        (sink("parquet"), EXACT),
        (End.of("eo-postgres", {"table": "orders", "url": "postgresql://nowhere/x"}), EXACT),
        (End.of("eo-target", {"target": "my_app:Target"}), EXACT),
        (sink("eo-map", backend="kafka"), EXACT),
        (sink("eo-map", backend="hazelcast"), EXACT),
        (sink("eo-map", backend="hazelcast", commit="two-phase"), EXACT),
        *(
            (sink(name, commit="two-phase", backend="hazelcast", failOnDataLoss="False"), NO)
            for name in OURS
        ),
        (sink("eo-map", backend="kafka", failOnDataLoss="false"), NO),
        (sink("eo-map", backend="hazelcast", failOnDataLoss="false"), EXACT),
        (sink(guarantee="at-least-once", failOnDataLoss="false"), LEAST),
        (sink("console"), NO),
        (sink("memory"), NO),
        (sink("noop"), NO),
        (sink("delta"), MAYBE),
        (sink("foreach"), MAYBE),
        (sink("foreachBatch", "both", True), MAYBE),
        (sink(within="enrich", by=True), MAYBE),
        (None, MAYBE),
    ],
)
def test_sinks(to, guarantee):
    assert judge(pipeline(to)).guarantee == guarantee


def step(kind: str, *reaches: str, shuffled: bool = False) -> Step:
    return Step(kind, "it", reaches, shuffled)


# By sink: what a step allows that is surely not the same in a replay, and one that may not be.
@pytest.mark.parametrize(
    ("to", "reaches", "surely", "perhaps"),
    [
        (SINK, (), EXACT, EXACT),
        (SINK, (STATE,), NO, MAYBE),
        (SINK, (AGGREGATE,), MAYBE, MAYBE),
        (sink(commit="idempotent"), (), EXACT, EXACT),
        (sink(commit="idempotent"), (STATE, SHUFFLE), NO, MAYBE),
        (sink("parquet"), (STATE,), NO, MAYBE),
        (IMAP, (), LEAST, MAYBE),
        (sink("kafka"), (STATE,), LEAST, LEAST),
        (sink(guarantee="at-least-once"), (STATE,), LEAST, LEAST),
        (sink("console"), (STATE,), NO, NO),
    ],
)
def test_steps_that_are_not_the_same_in_a_replay(to, reaches, surely, perhaps):
    for kind, guarantee in (("clock", surely), ("changing side", surely), ("seeded", surely)):
        assert judge(pipeline(to, SOURCE, step(kind, *reaches))).guarantee == guarantee, kind
    assert judge(pipeline(to, SOURCE, step("placement", *reaches))).guarantee == perhaps


@pytest.mark.parametrize("to", [SINK, sink("kafka"), sink("parquet")])
def test_a_shuffle_of_what_differs_within_a_run_is_not_known(to):
    for one in (step("nondeterministic", SHUFFLE), step("function", SHUFFLE)):
        assert judge(pipeline(to, SOURCE, one)).guarantee == MAYBE
    for kind in ("seeded", "placement"):  # a task that runs again gives the same
        assert judge(pipeline(to, SOURCE, step(kind, SHUFFLE))).guarantee != MAYBE
        after = step(kind, SHUFFLE, shuffled=True)  # unless its input may come in another order
        assert judge(pipeline(to, SOURCE, after)).guarantee == MAYBE


@pytest.mark.parametrize("kind", ["changing side", "compacted", "function", "nondeterministic"])
def test_a_stage_that_runs_again_with_other_rows_is_harmless_only_where_spark_notices(kind):
    """Two stages of one map task may have been read by the tasks of one batch."""
    one = step(kind, SHUFFLE)
    found = judge(pipeline(SINK, SOURCE, one))
    assert found.guarantee == MAYBE
    assert any("rows are lost and repeated" in why for why in found.why)
    assert any("orderIndependentChecksum.enabled" in remedy for remedy in found.remedies)
    found = judge(pipeline(SINK, SOURCE, one, compares_stages=True))
    assert found.guarantee == EXACT
    assert any("The shuffle is Spark's own" in need for need in found.needs)


def test_of_a_topic_that_is_compacted_is_said_what_it_takes():
    found = judge(pipeline(SINK, SOURCE, Step("shuffle", "repartition")))
    assert any("min.compaction.lag.ms" in need for need in found.needs)


@pytest.mark.parametrize("kind", ["plain", "batch time", "state", "watermark", "fixed side"])
def test_deterministic_steps_go_anywhere(kind):
    for to in (SINK, IMAP, sink(commit="idempotent"), sink("parquet")):
        assert judge(pipeline(to, SOURCE, step(kind, STATE, SHUFFLE))).guarantee == EXACT


def test_what_is_not_known_to_explain_is_never_exactly_once():
    assert judge(pipeline(SINK, SOURCE, step("unknown"))).guarantee == MAYBE
    assert judge(Pipeline((), (), SINK)).guarantee == MAYBE, "no source"
    assert judge(pipeline(unread=("the plan was not read",))).guarantee == MAYBE
    assert judge(pipeline(None, streaming=False)).guarantee == MAYBE


def test_the_weakest_link_decides_and_what_is_at_best_is_told():
    weak = judge(pipeline(sink("kafka"), End.of("delta", {})))
    assert (weak.guarantee, weak.at_best) == (MAYBE, LEAST)
    worse = judge(pipeline(sink("kafka"), End.of("socket", {})))
    assert (worse.guarantee, len(worse.why)) == (NO, 1)
    assert worse.why[0].startswith("source socket: ")
    assert len(worse.remedies) == 2, "those of the sink, too: the next weakest link"


@pytest.mark.parametrize("kind", ["function", "state function", "given side"])
def test_a_user_may_answer_for_code_of_his_own(kind):
    found = pipeline(SINK, SOURCE, step(kind, STATE, SHUFFLE))
    assert judge(found).guarantee == MAYBE
    assert "--trust it" in judge(found).remedies[0]
    assert judge(found, ["it"]).guarantee == EXACT
    assert judge(found, ["another"]).guarantee == MAYBE
    assert judge(pipeline(sink(within="it", by=True)), ["it"]).guarantee == EXACT


@pytest.mark.parametrize("kind", ["seeded", "clock", "nondeterministic", "unknown"])
def test_nobody_can_answer_for_what_is_known_to_differ(kind):
    found = pipeline(SINK, SOURCE, step(kind, STATE, SHUFFLE))
    assert judge(found, ["it"]).guarantee != EXACT
    assert judge(pipeline(sink("foreachBatch", "it", True)), ["it"]).guarantee == MAYBE


def test_a_query_that_does_not_go_on_or_does_not_start_guarantees_nothing():
    assert judge(pipeline(checkpoint=False)).guarantee == NO
    assert judge(pipeline(trigger="RealTimeTrigger(300000)")).guarantee == NO
    assert judge(pipeline(trigger="ContinuousTrigger(1000)")).guarantee == NO
    assert judge(pipeline(trigger="ProcessingTimeTrigger(0)")).guarantee == EXACT
    assert judge(pipeline(output_mode="update")).guarantee == NO
    assert judge(pipeline(sink(by=True), output_mode="update")).guarantee == EXACT
    foreign = pipeline(sink("delta"), End.of("kafka", {}), trigger="RealTimeTrigger(1)")
    assert judge(foreign).guarantee == MAYBE


def test_a_sink_that_compares_a_replay_says_that_it_may_stop():
    dice = step("seeded")
    torn = judge(pipeline(sink(commit="idempotent"), SOURCE, dice)).needs
    assert any("RepairNeeded" in sentence for sentence in torn)
    other = judge(pipeline(SINK, End.of("text", {}), dice)).needs
    assert any("BatchMismatch" in sentence for sentence in other)
    kafka = judge(pipeline(SINK, SOURCE, dice)).needs
    assert not any("stops" in sentence for sentence in kafka)


def test_an_uncommitted_source_is_told():
    for source, told in (
        (End.of("kafka", {}), True),
        (End.of("kafka", {"kafka.isolation.level": "read_committed"}), False),
        (SOURCE, False),
        (End.of("eo-kafka", {"kafka.isolation.level": "read_uncommitted"}), True),
    ):
        needs = judge(pipeline(source=source)).needs
        assert any("aborted" in sentence for sentence in needs) is told


def test_weak_replication_is_taken_for_granted():
    kept = {"commit": "two-phase", "backend": "hazelcast", "allowWeakReplication": "True"}
    ours = [sink(name, **kept) for name in OURS]
    queue = End.of("eo-queue", {"queue": "orders", "allowWeakReplication": "true"})
    for found in (*map(pipeline, ours), pipeline(source=queue)):
        judged = judge(found)
        assert judged.guarantee == EXACT
        assert any("allowWeakReplication=true" in sentence for sentence in judged.needs)
    for found in (pipeline(sink(allowWeakReplication="false")), pipeline()):
        assert "allowWeakReplication" not in str(judge(found))


def test_every_kind_has_a_sentence_and_every_guarantee_a_mark():
    assert {one.word for one in Guarantee} == set(MARKS)
    for kind, fact in STEPS.items():
        text = picture(judge(pipeline(SINK, SOURCE, step(kind, STATE))))
        assert fact.sentence[:30] in " ".join(text.split())


def test_the_picture():
    found = judge(pipeline(SINK, SOURCE, Step("seeded", "rand()", (STATE,))))
    lines = str(found).splitlines()
    assert lines[0] == "NO GUARANTEE: rows may be lost, written twice or differ."
    assert lines[2].startswith("source  eo-kafka orders  ok  replayable: ")
    assert lines[3].startswith("step    rand()           NO  not deterministic: ")
    assert all(len(line) <= 100 for line in lines)
    assert "- step rand(): its outcome goes into the state." in str(found)


def test_a_guarantee_is_compared():
    found = judge(pipeline(sink("kafka")))
    assert found.is_at_least("at-least-once") and not found.is_at_least("exactly-once")
    assert not judge(pipeline(sink("delta"))).is_at_least("at-least-once")
    with pytest.raises(ValueError, match="'exact' is none of"):
        found.is_at_least("exact")


def test_secrets_are_not_kept():
    options = {
        "kafka.sasl.password": "hunter2",
        "kafka.ssl.key.password": "hunter2",
        "hazelcast.password": "hunter2",
        "path": "s3://me:hunter2/+x@bucket/rows?sig=hunter2",
    }
    made = pipeline(End.of("parquet", options), End.of("eo-kafka", options))
    text = json.dumps(made.encode()) + str(judge(made)) + repr(judge(made))
    assert "hunter2" not in text
    assert "s3://me:***@bucket/rows?sig=***" in text


def test_a_table_in_two_phases_says_what_readers_must_bear():
    for commit, told in (("two-phase", True), ("staged", False)):
        options = {"table": "orders", "url": "postgresql://nowhere/x", "commit": commit}
        needs = " ".join(judge(pipeline(End.of("eo-postgres", options))).needs)
        assert ("one task after the other" in needs) is told


def test_a_queue_says_its_window():
    end = End.of("eo-queue", {"queue": "orders", "dedupWindow": "5", "url": "amqp://me:hunter2@x"})
    text = " ".join(picture(judge(pipeline(source=end))).split())
    assert "eo-queue orders" in text
    assert "after 5 others (option 'dedupWindow')" in text
    assert "hunter2" not in json.dumps(pipeline(source=end).encode()) + text


def test_a_share_group_has_no_window():
    end = End.of("eo-queue", {"queue": "orders", "shareGroup": "billing"})
    text = " ".join(picture(judge(pipeline(source=end))).split())
    assert "an offset that was kept is dropped" in text
    assert "share.isolation.level=read_committed" in text
    assert "dedupWindow" not in text


def test_a_pipeline_comes_back_from_its_record():
    made = pipeline(
        sink(within="enrich", by=True), SOURCE, step("seeded", STATE), unread=("something",)
    )
    assert Pipeline.decode(json.loads(json.dumps(made.encode()))) == made
    assert Pipeline.decode(json.loads(json.dumps(pipeline(None).encode()))) == pipeline(None)


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (Rate(7, 1_000, 100, 0, False), []),
        (Rate(7, 31_000, 100, 0, False), ["Batch 7 took 31.0 s, and a transaction may be open"]),
        (Rate(7, 61_000, 100, 0, False), ["Batch 7 took 61.0 s, longer than"]),
        (Rate(7, 1_000, 100, 5_900, False), []),
        (Rate(7, 1_000, 100, 18_000, False), ["18,000 records wait, and at the present rate"]),
        (Rate(7, 1_000, 100, 18_000, True), []),
        (Rate(7, 1_000, 0, 18_000, False), []),
    ],
)
def test_a_batch_that_may_outlast_its_transaction_is_told(rate, said):
    found = list(too_slow(rate, timeout_ms=60_000))
    assert len(found) == len(said)
    for sentence, begin in zip(found, said, strict=True):
        assert sentence.startswith(begin)


@pytest.mark.parametrize(
    ("options", "name", "kept"),
    [({}, "", False), ({}, "copies", True), ({"checkpointLocation": "/data/copies"}, "", True)],
)
def test_a_root_of_the_session_is_a_checkpoint_of_a_named_query_only(
    monkeypatch, options, name, kept
):
    """Without a name Spark puts a new UUID below it, at each start."""
    monkeypatch.setattr(connect_plan, "_sources", lambda *_: (SOURCE,))
    message = WriteStreamOperationStart(
        options={"topic": "out", **options}, query_name=name, format="eo-kafka"
    )
    session = SimpleNamespace(conf=SimpleNamespace(get=lambda *_: "/data"))
    stream = SimpleNamespace(_child=None)
    writer = SimpleNamespace(_write_proto=message, _session=session, _write_stream=stream)
    writer.foreachBatch = None
    assert read(writer).pipeline.checkpoint is kept


def test_what_is_no_query_is_refused():
    with pytest.raises(OptionsError, match="was given int"):
        read(3)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Give MODULE:FUNCTION, or --job NAME"),
        (["a:b", "--job", "x"], "Give MODULE:FUNCTION, or --job NAME"),
        (["--job", "x", "--config", "a=b"], "--config is for a function"),
        (["a:b", "--client-config", "x"], "--client-config is for --job"),
        (["a:b", "--config", "novalue"], "'novalue' is neither"),
        (["--job", "x"], "Which Kafka is the job's?"),
        (["--job", "x", "--client-config", "no-file"], "--client-config no-file cannot be read"),
    ],
)
def test_wrong_words_are_refused(words, sentence, capsys):
    assert main(["explain", *words]) == 1
    assert sentence in capsys.readouterr().err
