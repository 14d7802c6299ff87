"""`eo-kafka explain` and `eo_kafka.explain` on real plans, a real Kafka and real checkpoints."""

from __future__ import annotations

import functools
import json
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

import eo_kafka
from eo_kafka.broker.settings import free_port
from eo_kafka.core.errors import EoKafkaError
from eo_kafka.tools.cli import main
from eo_kafka.tools.explain.query import read
from eo_kafka.tools.explain.recorded import recorded
from harness import produce

NOWHERE = "localhost:1"
JOBS = "jobs.proved_jobs"


def test_what_spark_keeps_with_a_batch(spark, tmp_path):
    """Which expressions give the same when a batch runs again: the sets of expressions.py."""
    kept = ("current_timestamp()", "localtimestamp()", "current_date()", "unix_timestamp()")
    other = ("now()", "rand(42)", "randn(7)", "uuid()", "randstr(9, 3)", "uniform(0, 1e9, 4)")
    other += ("shuffle(sequence(1, 30))",)
    if "current_time" in {one.name for one in spark.catalog.listFunctions()}:  # since Spark 4.1
        other += ("current_time()",)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").write_text("a\n")
    rows = spark.readStream.text(str(tmp_path / "in"))
    texts = [f"string({one}) AS c{at}" for at, one in enumerate((*kept, *other))]
    runs: list[tuple[str, ...]] = []

    def run():
        query = rows.selectExpr(*texts).writeStream.foreachBatch(
            lambda batch, _number: runs.append(tuple(batch.collect()[0]))
        )
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    run()
    forget(tmp_path / "checkpoint" / "commits")
    run()
    first, second = runs
    assert first[: len(kept)] == second[: len(kept)]
    for one, before, after in zip(other, first[len(kept) :], second[len(kept) :], strict=True):
        assert before != after, one
    steps = {step.name: step.kind for step in read(rows.selectExpr(*texts)).pipeline.steps}
    kinds = {steps[one.partition("(")[0] + "()"] for one in other}
    assert kinds == {"clock", "seeded"}
    assert {steps[one] for one in kept if one in steps} == {"batch time"}


def forget(commits: Path) -> None:
    """As if the driver had died after the sink's commit, before Spark noted it."""
    for path in commits.iterdir():
        path.unlink()


def test_a_folder_has_each_row_once_for_who_reads_it_with_spark(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.txt").write_text("a\nb\n")
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    rows = spark.readStream.text(str(tmp_path / "in"))

    def run():
        writer = rows.writeStream.format("json").option("path", str(out))
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        writer.start().awaitTermination()
        return eo_kafka.explain(writer).guarantee, spark.read.json(str(out)).count()

    assert run() == ("exactly-once", 2)
    forget(checkpoint / "commits")
    assert run() == ("exactly-once", 2)
    forget(checkpoint / "commits")
    for path in (out / "_spark_metadata").iterdir():  # it died before the folder's own commit
        path.unlink()
    assert run() == ("exactly-once", 2)
    assert sum(len(path.read_text().split()) for path in out.glob("*.json")) == 4, "for others"


@pytest.mark.parametrize(("name", "kept"), [(None, 0), ("rooted", 1)])
def test_a_root_of_the_session_is_a_checkpoint_of_a_named_query_only(spark, tmp_path, name, kept):
    """Spark puts a new UUID below it where the query has no name, and reads all again."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.txt").write_text("a\n")
    rows = spark.readStream.text(str(tmp_path / "in"))
    root = tmp_path / "checkpoints"
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(root))
    try:
        guarantee = (NO, EXACT)[kept]
        for starts in (1, 2):
            writer = rows.writeStream.format("json").option("path", str(tmp_path / f"out-{starts}"))
            writer = writer.queryName(name) if name else writer
            assert eo_kafka.explain(writer).guarantee == guarantee
            query = writer.trigger(availableNow=True).start()
            assert eo_kafka.explain(query).guarantee == guarantee
            query.awaitTermination()
            assert len(list(root.iterdir())) == (starts, 1)[kept]
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


@F.udf(StringType())
def price(value):
    return value


def unknown(batches):
    yield from batches


@functools.cache
def source(spark):
    options = {"kafka.bootstrap.servers": NOWHERE, "subscribe": "orders"}
    rows = spark.readStream.format("eo-kafka").options(**options).load()
    return rows.selectExpr("string(value) AS value", "timestamp", "offset")


SINK = {
    "kafka.bootstrap.servers": NOWHERE,
    "topic": "out",
    "jobName": "out",
    "checkpointLocation": "/nowhere",
}


def written(rows, **options):
    return rows.writeStream.format("eo-kafka").options(**{**SINK, **options})


def common_table(spark):
    source(spark).createOrReplaceTempView("explained")
    return spark.sql(
        "WITH a AS (SELECT value, rand() AS r FROM explained) SELECT value FROM a WHERE r < 0.5"
    )


def two_streams(spark, column):
    def side(name):
        rows = (
            source(spark).withColumn("extra", F.expr(column)).withWatermark("timestamp", "1 minute")
        )
        return rows.selectExpr(*(f"{one} AS {name}_{one}" for one in rows.columns))

    on = "a_value = b_value AND a_timestamp = b_timestamp"
    return side("a").join(side("b"), F.expr(on)).selectExpr("concat(a_value, b_extra) AS value")


def enriched(spark):
    write = eo_kafka.foreach_batch(SINK)

    @functools.wraps(write)
    def enrich(rows, batch):
        write(rows, batch)

    writer = source(spark).writeStream.option("checkpointLocation", "/nowhere")
    return writer.foreachBatch(enrich)


def counted(spark):
    counts = source(spark).groupBy("value").count().selectExpr("string(count) AS value")
    writer = counts.writeStream.outputMode("update").option("checkpointLocation", "/nowhere")
    return writer.foreachBatch(eo_kafka.foreach_batch(SINK))


def with_a_side(spark):
    side = spark.createDataFrame([("a",)], "value STRING").cache()
    return source(spark).join(side, "value")


EXACT, MAYBE, NO = "exactly-once", "not-known", "none"
PLANS = {
    "plain": (EXACT, source),
    "direct": (
        EXACT,
        lambda s: eo_kafka.direct(
            s, {"kafka.bootstrap.servers": NOWHERE, "subscribe": "orders"}, SINK
        ),
    ),
    "batch time in a state": (
        EXACT,
        lambda s: source(s).withColumn("t", F.current_timestamp()).distinct(),
    ),
    "clock in a state": (NO, lambda s: source(s).withColumn("t", F.expr("now()")).distinct()),
    "dice": (EXACT, lambda s: source(s).selectExpr("string(rand(3)) AS value")),
    "dice in a state": (NO, lambda s: source(s).where("rand() < 0.5").dropDuplicates(["value"])),
    "dice beside a state": (
        EXACT,
        lambda s: source(s).withColumn("u", F.expr("uuid()")).dropDuplicates(["value"]),
    ),
    "what comes first of duplicates": (EXACT, lambda s: source(s).dropDuplicates(["value"])),
    "what comes first of duplicates in a state": (
        MAYBE,
        lambda s: source(s).dropDuplicates(["value"]).dropDuplicates(["offset"]),
    ),
    "duplicates by a column in a state": (
        EXACT,
        lambda s: source(s).dropDuplicates(["value"]).select("value").distinct(),
    ),
    "duplicates of whole rows in a state": (
        EXACT,
        lambda s: source(s).dropDuplicates().dropDuplicates(["offset"]),
    ),
    "dice in a common table": (NO, lambda s: common_table(s).distinct()),
    "dice in a join": (NO, lambda s: two_streams(s, "uuid()")),
    "a join": (EXACT, lambda s: two_streams(s, "hash(value)")),
    "dice in a limit": (NO, lambda s: source(s).where("rand() < 0.5").limit(3)),
    "a function": (EXACT, lambda s: source(s).select(price("value").alias("value"))),
    "a function in a state": (
        MAYBE,
        lambda s: source(s).select(price("value").alias("value")).distinct(),
    ),
    "a marked function in a state": (
        NO,
        lambda s: (
            source(s)
            .select(
                F.udf(lambda _value: str(uuid.uuid4()), "string")
                .asNondeterministic()("value")
                .alias("value")
            )
            .distinct()
        ),
    ),
    "mapInPandas in a state": (
        MAYBE,
        lambda s: source(s).mapInPandas(unknown, source(s).schema).dropDuplicates(["value"]),
    ),
    "a list in a window": (
        MAYBE,
        lambda s: (
            source(s)
            .withWatermark("timestamp", "1 minute")
            .groupBy(F.window("timestamp", "1 minute"))
            .agg(F.collect_list("value"))
        ),
    ),
    "a union with rate": (
        EXACT,
        lambda s: (
            source(s)
            .select("value")
            .union(s.readStream.format("rate").load().selectExpr("string(value)"))
        ),
    ),
    "a cached side": (EXACT, with_a_side),
    "a cached side in a state": (MAYBE, lambda s: with_a_side(s).distinct()),
    "a file in a state": (
        NO,
        lambda s: source(s).join(s.read.text(__file__).cache(), "value").distinct(),
    ),
    "a function of ours": (EXACT, counted),
    "a function around ours": (MAYBE, enriched),
    "a function of the user's": (
        MAYBE,
        lambda s: (
            source(s)
            .writeStream.foreachBatch(lambda _rows, _batch: None)
            .option("checkpointLocation", "/nowhere")
        ),
    ),
    "a foreach": (
        MAYBE,
        lambda s: (
            source(s)
            .writeStream.foreach(lambda _row: None)
            .option("checkpointLocation", "/nowhere")
        ),
    ),
    "real time": (NO, lambda s: written(source(s)).trigger(continuous="1 second")),
    "no checkpoint": (NO, lambda s: written(source(s), checkpointLocation="")),
    "lossy": (
        NO,
        lambda s: written(
            s.readStream.format("eo-kafka")
            .option("kafka.bootstrap.servers", NOWHERE)
            .option("subscribe", "orders")
            .option("failOnDataLoss", "false")
            .load()
        ),
    ),
    "kafka": ("at-least-once", lambda s: source(s).writeStream.format("kafka").options(**SINK)),
    "socket": (
        NO,
        lambda s: written(
            s.readStream.format("socket").options(host="localhost", port=str(free_port())).load()
        ),
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan(spark, name):
    guarantee, make = PLANS[name]
    made = make(spark)
    writer = made if hasattr(made, "foreachBatch") else written(made)
    found = eo_kafka.explain(writer)
    assert found.guarantee == guarantee, str(found)
    assert not spark.streams.active


@pytest.mark.parametrize(("setting", "guarantee"), [("true", EXACT), ("false", MAYBE)])
def test_a_shuffle_of_what_may_differ_is_exact_where_spark_compares_stages(
    spark, setting, guarantee
):
    name = "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch"
    assert spark.conf.get(name) == "true", "Spark's default"
    rows = source(spark).mapInPandas(unknown, source(spark).schema)
    spark.conf.set(name, setting)
    try:
        assert eo_kafka.explain(written(rows.repartition(3))).guarantee == guarantee
    finally:
        spark.conf.unset(name)


def test_a_dataframe_has_no_sink_and_a_batch_is_told_as_one(spark):
    found = eo_kafka.explain(source(spark).where("rand() < 0.5").distinct())
    assert found.guarantee == "none", "whatever exactly-once sink follows"
    assert eo_kafka.explain(source(spark)).guarantee == "not-known"
    batch = eo_kafka.explain(spark.range(3))
    assert batch.guarantee == "not-known" and "a batch" in str(batch)


def test_the_direct_lane_is_told_with_its_transform(spark):
    found = eo_kafka.explain(PLANS["direct"][1](spark))
    told = [(line.place, line.name) for line in found.lines]
    assert told == [("source", "eo-kafka orders"), ("step", "transform"), ("sink", "eo-kafka out")]
    source = {"kafka.bootstrap.servers": NOWHERE, "subscribe": "orders"}
    into = {name: value for name, value in SINK.items() if name != "topic"}
    writer = eo_kafka.direct(spark, source, {**into, "url": "postgresql://x", "table": "t"})
    found = eo_kafka.explain(writer)
    assert found.guarantee == EXACT
    assert [line.name for line in found.lines if line.place == "sink"] == ["eo-postgres"]


def test_trusted_functions_are_told_by_name(spark):
    writer = PLANS["a function in a state"][1](spark)
    assert eo_kafka.explain(written(writer), trust=["price"]).guarantee == "exactly-once"
    assert eo_kafka.explain(enriched(spark), trust=["enrich"]).guarantee == "exactly-once"


@pytest.mark.parametrize("name", ["foreachBatch", "memory", "noop", "parquet", "console"])
def test_a_running_query_is_told_as_its_writer_is(spark, tmp_path, name):
    def both(_rows, _batch):
        """A function of the user's."""

    options = {"path": str(tmp_path / "out"), "checkpointLocation": str(tmp_path / "checkpoint")}
    writer = spark.readStream.format("rate").load().writeStream.queryName(f"a_{name}")
    writer = writer.foreachBatch(both) if name == "foreachBatch" else writer.format(name)
    writer = writer.options(**options).trigger(processingTime="1 hour")
    before = eo_kafka.explain(writer)
    query = writer.start()
    try:
        found = eo_kafka.explain(query)
    finally:
        query.stop()
    assert found.lines == before.lines
    assert found.lines[-1].name.startswith(name.lower())


@pytest.fixture
def command(capsys):
    """Runs `eo-kafka explain`; its exit code, and what it said."""

    def run(*words: object) -> tuple[int, str, str]:
        code = main(["explain", *map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def config(servers: str, folder: Path, **more: str) -> list[str]:
    pairs = {"bootstrap_servers": servers, "source": "in", "sink": "out", "job_name": "job"}
    pairs |= {"checkpoint": str(folder / "checkpoint"), **more}
    return ["--config", *(f"{name}={value}" for name, value in pairs.items())]


def test_a_function_is_explained_and_nothing_is_started(spark, command, tmp_path):
    words = [f"{JOBS}:copy", *config(f"localhost:{free_port()}", tmp_path)]
    code, text, _ = command(*words, "--require", "exactly-once")
    assert code == 0 and text.startswith("EXACTLY ONCE"), text
    assert "- The cluster was not looked at: " in text and "(Connection refused)" in text
    for function in ("started", "count"):
        text = command(f"{JOBS}:{function}", *words[1:], "--no-cluster")[1]
        assert text.startswith("EXACTLY ONCE"), text
    weak = [f"{JOBS}:repeating", *words[1:], "--no-cluster", "--json"]
    code, text, said = command(*weak, "--require", "exactly-once")
    assert (code, json.loads(text)["guarantee"]) == (3, "at-least-once")
    assert "exactly-once is required, and it is at-least-once." in said
    assert command(*weak, "--require", "at-least-once")[0] == 0
    assert not spark.streams.active
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            [f"{JOBS}:copy"],
            "config['bootstrap_servers']: give --config bootstrap_servers=",
        ),
        ([f"{JOBS}:no_such"], "has no attribute 'no_such'"),
        (["no_such_module:build"], "No module named 'no_such_module'"),
    ],
)
def test_a_function_that_cannot_be_called_is_told(spark, command, words, sentence):
    code, _, said = command(*words)
    assert code == 1 and sentence in said


def test_a_running_query_is_explained_and_its_plan_recorded(
    spark, broker, make_topic, command, tmp_path
):
    servers, job = broker.bootstrap_servers, f"job-{uuid.uuid4().hex[:8]}"
    incoming, out = make_topic("in"), make_topic("out")
    with pytest.raises(EoKafkaError, match=f"No plan of job '{job}' is recorded"):
        recorded(job, {"kafka.bootstrap.servers": servers})
    produce(servers, incoming, [b"a"])
    kafka = {"kafka.bootstrap.servers": servers}
    rows = spark.readStream.format("eo-kafka").options(**kafka, subscribe=incoming).load()
    writer = rows.select("value").distinct().writeStream.format("eo-kafka").queryName(job)
    writer = writer.options(**kafka, topic=out, checkpointLocation=str(tmp_path / "checkpoint"))
    query = writer.start()
    try:
        query.processAllAvailable()
        found = eo_kafka.explain(query, record=True)
    finally:
        query.stop()
    assert (found.guarantee, found.warnings) == ("exactly-once", ())
    assert found.lines == eo_kafka.explain(writer).lines
    with Reading(servers, out):
        code, text, _ = command("--job", job, "--bootstrap-servers", servers, "--json")
    told = json.loads(text)
    assert (code, told["guarantee"]) == (0, "exactly-once")
    assert told["lines"] == [vars(line) for line in found.lines]
    warnings = " ".join(told["warnings"])
    assert "the plan as it was recorded at" in warnings
    assert f"brokers: one live broker at {servers}" in warnings, "as eo-kafka doctor says it"
    assert f"These consumer groups read '{out}': readers-{out}." in warnings


class Reading:
    """A consumer group that has committed offsets of a topic."""

    def __init__(self, servers: str, topic: str) -> None:
        group = {"bootstrap.servers": servers, "group.id": f"readers-{topic}"}
        self._consumer = Consumer({**group, "auto.offset.reset": "earliest"})
        self._topic = topic

    def __enter__(self) -> None:
        from confluent_kafka import TopicPartition

        at = [TopicPartition(self._topic, 0, 1)]
        self._consumer.commit(offsets=at, asynchronous=False)

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
