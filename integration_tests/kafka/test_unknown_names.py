"""On a broker that creates the topics it is asked about, Kafka's default, none of our commands and
roles creates one by looking: what does not exist is said in a sentence and stays away."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

import eo_kafka
from eo_kafka.clients.kafka import config
from eo_kafka.connectors.monitoring.group_commits import GroupCommits
from eo_kafka.core.options import OptionReader
from eo_kafka.errors import EnvironmentRefused, WriteFailed
from eo_kafka.sinks.maps import topic as map_topic
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import batch, preflight
from eo_kafka.sinks.rows import fast, plain, plain_write
from eo_kafka.tools import cli
from eo_kafka.tools.ui.cluster import Cluster
from eo_kafka.tools.ui.looks import all_of
from harness import committed, make_copy, wait_until

IMPATIENT = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "10"}
# How long a producer waits for a topic that may be on its way.
SOON = {"kafka.topic.metadata.propagation.max.ms": "1000"}


@pytest.fixture(scope="module")
def broker_that_creates(broker) -> str:
    """The broker every test has: this module would show nothing on another one."""
    made = f"asked-for-{uuid.uuid4().hex[:8]}"
    asking = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    asking.list_topics(made, timeout=30)
    wait_until(lambda: made in asking.list_topics(timeout=30).topics, "the broker creates topics")
    return broker.bootstrap_servers


@pytest.fixture
def missing(broker_that_creates):
    """A word for names that do not exist; at the end nothing may have it in its name."""
    word = f"nowhere{uuid.uuid4().hex[:8]}"
    yield word
    admin = AdminClient({"bootstrap.servers": broker_that_creates})
    time.sleep(0.3)  # a topic that somebody's question makes is there a moment later
    assert [name for name in admin.list_topics(timeout=30).topics if word in name] == []


COMMANDS = (
    "doctor --topic {0} --job {0} --write",
    "explain --job {0}",
    "job show {0}",
    "watch {0} --once",
    "job reset {0}",
    "job repair {0} --batch 1 --accept-loss",
    "txn list --job {0}",
    "txn list --topic {0}",
    "txn show --job {0}",
    "txn commit --job {0}",
    "txn abort --job {0} --yes",
    "txn commit {0}",
    "txn abort {0} --force",
    "snapshots list {0}",
    "snapshots show {0}",
    "snapshots export {0} kept",
    "snapshots verify {0}",
    "snapshots verify {0} kept",
    "snapshots delete {0} kept",
    "snapshots restore {0} {1}/restored",
    "snapshots start-from {0} kept --job {0}-new --checkpoint {1}/new",
    "topic list --all",
    "topic describe {0}",
    "topic offsets {0} --at 2026-11-24T09:30:00Z",
    "verify --input {0} --output {0}",
)


def test_no_command_creates_what_it_does_not_find(broker_that_creates, missing, tmp_path, capsys):
    others = {"broker", "hazelcast", "registry", "prepare", "new", "run"}  # which ask no Kafka
    others.add("ui")  # below
    named = {command.words.split()[0] for command in cli.COMMANDS} - others
    assert named == {words.split()[0] for words in COMMANDS}
    for words in COMMANDS:
        command = words.format(missing, tmp_path).split()
        assert cli.main([*command, "--bootstrap-servers", broker_that_creates]) in (0, 1, 3)
        assert "Traceback" not in capsys.readouterr().err


def test_a_page_about_what_is_not_there_creates_nothing(broker_that_creates, missing):
    cluster = Cluster({"kafka.bootstrap.servers": broker_that_creates})
    asked = [
        cluster.transactions(missing),
        cluster.on_topic(missing),
        cluster.snapshots(missing),
        cluster.topics(missing, (missing,), (missing,)),
    ]
    transactions, on_topic, snapshots, topics = all_of(asked, 60)
    assert transactions.value == [] and snapshots.value.found == {} and topics.value.topics == ()
    assert "does not exist" in on_topic.problem


def options(servers: str, word: str, checkpoint: Path) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": servers,
        "topic": word,
        "jobName": word,
        "checkpointLocation": str(checkpoint),
    }


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"commit": "idempotent"},
        {"snapshots": "true"},
        {"guarantee": "at-least-once"},
        {"guarantee": "none"},
    ],
    ids=lambda given: "-".join(given.values()) or "two-phase",
)
def test_a_stream_into_a_topic_that_is_not_there_is_refused_and_leaves_nothing(
    broker_that_creates, missing, monkeypatch, tmp_path, given
):
    """Not even the ledger: S1 is refused before it."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    from eo_kafka.connectors.kafka_sink import KafkaStreamWriter

    monkeypatch.setattr(preflight, "OUTPUT_TIMEOUT_S", 0.2)
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").touch()  # the batch that is to be written
    (checkpoint / "metadata").write_text('{"id":"11111111-1111-1111-1111-111111111111"}')
    written = {**options(broker_that_creates, missing, checkpoint), **given}
    lowered = {name.lower(): value for name, value in written.items()}
    writer = KafkaStreamWriter(lowered, StructType([StructField("value", BinaryType())]), False)
    with pytest.raises(EnvironmentRefused, match="does not exist"):
        writer.__getstate__()


def test_readers_and_watchers_create_nothing(broker_that_creates, missing, spark, tmp_path, caplog):
    servers, word = broker_that_creates, missing
    source = {"kafka.bootstrap.servers": servers, "subscribe": word, **IMPATIENT}
    a_map = {"backend": "kafka", "map": word, "kafka.bootstrap.servers": servers, **IMPATIENT}
    sink = options(servers, word, tmp_path / "sink")
    side = eo_kafka.SideInput(a_map, str(tmp_path / "side"))

    def stream():
        loaded = spark.readStream.format("eo-kafka").options(**source).load()
        sent = loaded.select("value").writeStream.format("eo-kafka").options(**sink)
        sent.trigger(availableNow=True).start().awaitTermination()

    def group():
        settings = OptionReader({"kafka.bootstrap.servers": servers}).kafka({})
        commits = GroupCommits(settings.merged(group_id=word, enable_auto_commit="false"), word)
        commits.commit([json.dumps({word: {"0": 1}})])
        commits.close()
        raise LookupError(caplog.text)

    roles = {
        "batch read": lambda: spark.read.format("eo-kafka").options(**source).load().collect(),
        "stream": stream,
        "map": lambda: spark.read.format("eo-map").options(**a_map).load().collect(),
        "side input": lambda: side.at(spark, 0).collect(),
        "consumer group": group,
    }
    for name, role in roles.items():
        with pytest.raises(Exception, match=f"{word}|UNKNOWN_TOPIC_OR_PART"):
            role()
            raise AssertionError(f"{name} found what is not there")


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "none"])
def test_a_save_into_a_topic_that_is_not_there_is_refused(
    broker_that_creates, missing, monkeypatch, guarantee
):
    """Also a map's that is a topic."""
    monkeypatch.setattr(preflight, "OUTPUT_TIMEOUT_S", 0.2)
    where = {"kafka.bootstrap.servers": broker_that_creates, "topic": missing}
    given = SinkOptions.parse({**where, "guarantee": guarantee}, streaming=False)
    map_topic.check_is_map(given)  # leaves it to the next line
    with pytest.raises(EnvironmentRefused, match="does not exist"):
        batch.new_batch(given)


def test_a_row_that_names_a_missing_topic_fails_its_task(broker_that_creates, missing):
    """Also a dead letter's, which is a row with a topic of its own."""
    given = SinkOptions.parse(
        {"kafka.bootstrap.servers": broker_that_creates, **SOON}, streaming=False
    )
    rows = pa.record_batch({"topic": pa.array([missing]), "value": pa.array([b"1"])})
    with pytest.raises(WriteFailed, match="creates no topic"):
        batch.write(given, batch.new_batch(given), 0, 0, iter([rows]))
    weak = replace(given, guarantee="at-least-once")
    with pytest.raises(WriteFailed, match="creates no topic"):
        plain_write.write(weak, 0, iter([rows]))


@pytest.mark.parametrize("module", [fast, plain], ids=lambda one: one.__name__.rpartition(".")[2])
def test_a_client_that_knows_already_says_the_same(broker, missing, module):
    """It asks for a topic in the background. Once it has the answer it takes no row."""
    producer = config.producer(
        {"bootstrap.servers": broker.bootstrap_servers, "topic.metadata.propagation.max.ms": "100"}
    )
    sender = module.ArrowProducer(producer, missing)
    row = pa.record_batch({"value": pa.array([b"1"])})

    deadline = time.monotonic() + 60
    with pytest.raises(WriteFailed, match="creates no topic"):
        while time.monotonic() < deadline:
            sender.send(row)
            producer.poll(0.1)
    producer.purge()


def test_the_sink_starts_for_the_first_time(broker_that_creates, make_topic, spark, tmp_path):
    """A look-up by name used to make the ledger with one partition and cleanup.policy=delete, and
    then it was refused."""
    values = [b"%d" % number for number in range(20)]
    job = make_copy(broker_that_creates, make_topic, tmp_path, values)
    job.run(spark)
    assert sum(committed(job.servers, job.sink_topic).values()) == len(values)
