"""The sink's columns, options, guarantees and errors, against a real broker and a real Spark."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.tools.cli import main
from harness import (
    Copy,
    assert_exactly_once,
    committed,
    committed_messages,
    partitions_of,
    produce,
)

VALUES = [b"%d" % number for number in range(300)]


@pytest.fixture
def source(broker, make_topic) -> str:
    topic = make_topic("in", partitions=2)
    produce(broker.bootstrap_servers, topic, VALUES)
    return topic


@pytest.fixture
def stream(spark, broker, source):
    """The input's keys and values as a stream."""
    return (
        spark.readStream.format("eo-kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
    )


@pytest.fixture
def write(broker, tmp_path):
    """Runs `frame` into a topic until all is written."""

    def run(frame, **options):
        writer = (
            frame.writeStream.format("eo-kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .options(**options)
        )
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    return run


def assert_nothing_open(servers: str, topic: str) -> None:
    """No transaction holds back the readers of the topic."""
    control = ControlPlane({"bootstrap.servers": servers})
    try:
        for number in partitions_of(servers, topic):
            stable = control.end_offset(topic, number, committed=True)
            assert stable == control.end_offset(topic, number, committed=False)
    finally:
        control.close()


def test_all_columns_are_written_as_they_are(stream, write, broker, make_topic):
    one, two = make_topic("one", partitions=3), make_topic("two", partitions=3)
    number = "cast(cast(value as string) as int)"
    frame = stream.selectExpr(
        f"if({number} % 5 = 0, null, cast(key as string)) as key",
        f"if({number} % 7 = 0, null, value) as value",
        f"if({number} < 100, '{one}', '{two}') as topic",
        "2 as partition",
        f"if({number} % 2 = 0, null, array(named_struct('key', 'n', 'value', value), "
        "named_struct('key', 'n', 'value', cast(null as binary)))) as headers",
        "'ignored' as another",
    )
    write(frame, jobName=f"columns-{one}")
    first, second = (
        committed_messages(broker.bootstrap_servers, one),
        committed_messages(broker.bootstrap_servers, two),
    )
    assert (len(first), len(second)) == (100, 200)
    assert {message.partition() for message in first + second} == {2}
    for message in first + second:
        value = message.value()
        if value is None:
            continue  # a tombstone
        assert int(value) % 7 != 0
        assert message.key() == (None if int(value) % 5 == 0 else value)
        headers = [("n", value), ("n", None)] if int(value) % 2 else None
        assert message.headers() == headers
    assert sum(message.value() is None for message in first + second) == len(range(0, 300, 7))


def test_the_topic_option_wins_over_the_column(stream, write, broker, make_topic):
    topic = make_topic("out")
    write(stream.selectExpr("value", "'nowhere' as topic"), topic=topic, jobName=f"wins-{topic}")
    assert committed(broker.bootstrap_servers, topic) == Counter(VALUES)


def test_keys_go_to_the_partition_the_java_client_would_choose(stream, write, broker, make_topic):
    topic = make_topic("out", partitions=5)
    write(stream.select("key", "value"), topic=topic, jobName=f"murmur-{topic}")
    for message in committed_messages(broker.bootstrap_servers, topic):
        assert message.partition() == (murmur2(message.key()) & 0x7FFFFFFF) % 5


def murmur2(data: bytes) -> int:
    """Kafka's `Utils.murmur2`, written down from its definition."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@pytest.mark.smoke
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "none"])
def test_each_guarantee_writes_all_rows_when_nothing_fails(
    stream, write, broker, make_topic, guarantee
):
    topic = make_topic("out", partitions=2)
    write(stream, topic=topic, guarantee=guarantee, jobName=f"g-{topic}")
    assert committed(broker.bootstrap_servers, topic) == Counter(VALUES)
    ledger = f"__eo_kafka.g-{topic}.ledger"
    topics = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30)
    assert (ledger in topics.topics) == (guarantee == "exactly-once")


def test_at_least_once_loses_nothing_when_a_task_is_killed(
    stream, write, broker, make_topic, crash_points
):
    topic = make_topic("out", partitions=2)
    crash_points.arm("S3.while_writing", "kill")
    write(stream, topic=topic, guarantee="at-least-once")
    assert crash_points.reached("S3.while_writing")
    assert not Counter(VALUES) - committed(broker.bootstrap_servers, topic)


def test_the_ledger_is_made_as_it_must_be(stream, write, broker, make_topic):
    topic = make_topic("out")
    write(stream, topic=topic, jobName=f"ledger-{topic}")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    ledger = f"__eo_kafka.ledger-{topic}.ledger"
    assert len(admin.list_topics(ledger, timeout=30).topics[ledger].partitions) == 2
    resource = ConfigResource(ResourceType.TOPIC, ledger)
    config = admin.describe_configs([resource])[resource].result(30)
    assert config["cleanup.policy"].value == "compact"
    assert config["retention.ms"].value == "-1"
    assert config["unclean.leader.election.enable"].value == "false"


def test_a_ledger_that_would_forget_is_refused(stream, write, broker, make_topic):
    ledger = make_topic("bad-ledger", partitions=2)  # cleanup.policy=delete
    with pytest.raises(Exception, match=f"Topic '{ledger}' has cleanup.policy=delete"):
        write(stream, topic=make_topic("out"), jobName="bad", ledgerTopic=ledger)


def test_a_ledger_with_one_partition_is_refused(stream, write, broker, make_topic):
    ledger = make_topic("one-ledger", partitions=1, config={"cleanup.policy": "compact"})
    with pytest.raises(Exception, match="has 1 partition.* and needs 2"):
        write(stream, topic=make_topic("out"), jobName="one", ledgerTopic=ledger)


def test_more_time_than_the_broker_gives_is_refused(stream, write, make_topic):
    with pytest.raises(Exception, match="allows transactions of 900000 ms"):
        write(
            stream,
            topic=make_topic("out"),
            jobName="patient",
            **{"kafka.transaction.timeout.ms": "1000000"},
        )


@pytest.mark.parametrize(
    ("columns", "options", "sentences"),
    [
        (["1 as value"], {}, ["value attribute unsupported type int"]),
        (["key"], {}, ["Required attribute 'value' not found"]),
        (["value", "1 as key"], {}, ["key attribute unsupported type int"]),
        (
            ["key"],
            {"kafka.acks": "1", "guarantee": "most", "kafka.transactional.id": "mine"},
            [
                "Required attribute 'value' not found",
                "'kafka.acks' is '1', but guarantee 'exactly-once' needs 'all'",
                "Option 'guarantee' must be one of",
                "Kafka option 'transactional.id' is not supported",
            ],
        ),
        (["value"], {"jobNam": "x"}, ["did you mean 'jobName'?"]),
        (["value"], {"jobName": "not a topic name"}, ["Option 'jobName' must be usable"]),
        (["value"], {"kafka.no.such.setting": "1"}, ["no.such.setting"]),
    ],
)
def test_what_is_wrong_is_said_all_at_once(stream, write, make_topic, columns, options, sentences):
    with pytest.raises(Exception, match="OptionsError") as stop:
        write(stream.selectExpr(*columns), topic=make_topic("out"), **options)
    for sentence in sentences:
        assert sentence in str(stop.value)


def test_without_topic_option_and_column_it_says_so(stream, write):
    with pytest.raises(Exception, match="topic option required when no 'topic' attribute"):
        write(stream.select("value"))


def test_a_null_topic_stops_the_batch_and_shows_nothing(stream, write, broker, make_topic):
    topic = make_topic("out", partitions=2)
    frame = stream.selectExpr("value", f"if(value = '77', null, '{topic}') as topic")
    with pytest.raises(Exception, match="null topic present in the data"):
        write(frame, jobName=f"null-{topic}")
    assert not committed(broker.bootstrap_servers, topic)
    assert_nothing_open(broker.bootstrap_servers, topic)


def test_an_unknown_topic_is_named_at_the_start(stream, write):
    with pytest.raises(Exception, match="Topic 'nowhere' does not exist"):
        write(stream, topic="nowhere", jobName="nowhere")


def test_a_thread_needs_an_active_session_before_spark_looks_for_formats(spark, broker, make_topic):
    topic = make_topic("thread")
    write = (
        spark.sql("select 'a' as value")
        .write.format("eo-kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", topic)
        .mode("append")
    )

    def with_an_active_session() -> None:
        spark._jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)
        write.save()

    with ThreadPoolExecutor(1) as thread:
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            thread.submit(write.save).result()
        thread.submit(with_an_active_session).result()
    assert committed(broker.bootstrap_servers, topic) == {b"a": 1}


def test_an_unreachable_broker_is_named_within_a_bounded_time(spark, write, tmp_path):
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    with pytest.raises(Exception, match=r"No Kafka broker listens at 127.0.0.1:1 \(Connection ref"):
        write(rows, topic="t", jobName="j", **{"kafka.bootstrap.servers": "127.0.0.1:1"})


def test_a_record_larger_than_the_broker_takes_shows_nothing(stream, write, broker, make_topic):
    topic = make_topic("out", config={"max.message.bytes": "20000"})
    frame = stream.selectExpr("if(value = '7', repeat('x', 40000), value) as value")
    with pytest.raises(Exception, match=r"(?i)message size too large"):
        write(frame, topic=topic, jobName=f"large-{topic}")
    assert not committed(broker.bootstrap_servers, topic)
    assert_nothing_open(broker.bootstrap_servers, topic)


def test_the_job_name_defaults_to_the_query_id(stream, write, broker, make_topic, tmp_path):
    topic = make_topic("out")
    write(stream, topic=topic)
    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    topics = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30)
    assert f"__eo_kafka.{query_id}.ledger" in topics.topics


def test_a_batch_write_shows_all_or_nothing(spark, broker, make_topic):
    topic = make_topic("out", partitions=2)
    rows = spark.range(1000).selectExpr("cast(id as string) as key", "cast(id as string) as value")

    def save(frame):
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
        frame.repartition(3).write.format("eo-kafka").options(**options).mode("append").save()

    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        save(rows.selectExpr("key", "cast(1 / (value - 500) as string) as value"))
    assert not committed(broker.bootstrap_servers, topic)
    save(rows)
    assert committed(broker.bootstrap_servers, topic) == Counter(b"%d" % n for n in range(1000))
    assert_nothing_open(broker.bootstrap_servers, topic)


def test_reset_gives_the_ledger_to_a_new_query(spark, broker, source, make_topic, tmp_path, capsys):
    job = Copy(
        servers=broker.bootstrap_servers,
        source_topic=source,
        sink_topic=make_topic("out"),
        checkpoint=tmp_path / "one",
        job_name=f"reset-{source}",
    )
    job.run(spark)
    command = [job.job_name, "--bootstrap-servers", job.servers]
    assert main(["job", "show", "--json", *command]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [batch["state"] for batch in shown["batches"]] == ["DONE"]
    assert main(["job", "reset", *command]) == 0
    job.checkpoint, job.sink_topic = tmp_path / "two", make_topic("again")
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_commands_about_a_job_without_a_ledger_say_so(broker, capsys):
    servers = broker.bootstrap_servers
    assert main(["job", "show", "no-such-job", "--bootstrap-servers", servers]) == 1
    assert "has no ledger" in capsys.readouterr().err


def test_a_ledger_with_unclean_elections_is_refused(stream, write, make_topic):
    config = {"cleanup.policy": "compact", "unclean.leader.election.enable": "true"}
    ledger = make_topic("unclean", partitions=2, config=config)
    with pytest.raises(Exception, match="unclean leader elections.*allowWeakReplication"):
        write(stream, topic=make_topic("out"), jobName="unclean", ledgerTopic=ledger)
