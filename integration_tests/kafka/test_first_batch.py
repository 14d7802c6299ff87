"""The first batch, when it is run again after its oldest records have expired: it begins where it
was planned to begin, and what is gone is told."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

import eo_kafka
from eo_kafka.connectors.kafka_source import KafkaStreamReader
from eo_kafka.connectors.spark_versions import ReadAllAvailable
from eo_kafka.errors import DataLossError, SourceError
from eo_kafka.sources.settings.options import SourceOptions
from harness import committed, delete_records, produce, wait_until

VALUES = [b"%d" % number for number in range(10)]
AN_HOUR_AGO = str(int(time.time() * 1000) - 3_600_000)
STARTS = [{"startingOffsets": "earliest"}, {"startingTimestamp": AN_HOUR_AGO}]


@pytest.fixture
def servers(broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def source(servers, make_topic) -> str:
    topic = make_topic("first")
    produce(servers, topic, VALUES)
    return topic


def planned(
    servers: str, done: object = None, meanwhile: Callable[[], None] = lambda: None, **options: str
):
    """A run of a query, as Spark drives it: where its first batch ends, and its tasks' values.
    What happens `meanwhile` does so between the questions where it starts and where it ends."""
    given = {"kafka.bootstrap.servers": servers, **options}
    reader = KafkaStreamReader(SourceOptions.parse(given, streaming=True))
    start = reader.initialOffset()
    meanwhile()
    end = reader.latestOffset(start, ReadAllAvailable()) if done is None else done
    batches = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
    return end, Counter(value for batch in batches for value in batch["value"].to_pylist())


def test_what_is_written_while_a_query_asks_where_it_starts_is_read(servers, source) -> None:
    """No record was as new as the time that is given: it starts at the newest offset of then."""
    in_an_hour = str(int(time.time() * 1000) + 3_600_000)
    given = {"startingTimestamp": in_an_hour, "startingOffsetsByTimestampStrategy": "latest"}
    end, values = planned(
        servers, None, lambda: produce(servers, source, [b"new"]), subscribe=source, **given
    )
    assert values == Counter([b"new"])
    produce(servers, source, [b"of the next batch"])
    assert planned(servers, end, subscribe=source, **given) == (end, values)


@pytest.mark.parametrize("starting", STARTS, ids=["earliest", "time"])
def test_what_expired_before_it_was_read_is_told(servers, source, starting, caplog) -> None:
    given = {"subscribe": source, **starting}
    end, values = planned(servers, **given)
    assert values == Counter(VALUES)
    produce(servers, source, [b"later"])
    assert planned(servers, end, **given)[1] == values

    delete_records(servers, source, 6)

    with pytest.raises(DataLossError, match=f"Offset 0 of partition {source}-0 is out of range"):
        planned(servers, end, **given)
    assert "begins where it was planned" in caplog.text
    assert planned(servers, end, failOnDataLoss="false", **given)[1] == Counter(VALUES[6:])
    assert f"Offset 0 of partition {source}-0 is out of range" in caplog.text


@pytest.mark.parametrize("quiet", [False, True], ids=["all", "one of two"])
def test_a_time_whose_records_have_all_expired(servers, make_topic, caplog, quiet) -> None:
    source = make_topic("first", 2 if quiet else 1)
    producer = Producer({"bootstrap.servers": servers})
    for partition, values in enumerate([VALUES, [b"other"]][: 1 + quiet]):
        for value in values:
            producer.produce(source, value, partition=partition)
    assert producer.flush(60) == 0
    given = {"subscribe": source, "startingTimestamp": AN_HOUR_AGO}
    end, _ = planned(servers, **given)
    delete_records(servers, source, 10)

    lost = f"Offset 0 of partition {source}-0 is out of range"
    with pytest.raises(DataLossError, match=lost):
        planned(servers, end, **given)
    left = Counter([b"other"] if quiet else [])
    assert planned(servers, end, failOnDataLoss="false", **given)[1] == left
    assert lost in caplog.text
    with pytest.raises(SourceError, match=f"{source}-0 and timestamp"):
        planned(servers, **given)


def test_offsets_that_do_not_name_a_partition_that_was_added_since(servers, source) -> None:
    given = {"subscribe": source, "startingOffsets": json.dumps({source: {"0": 4}})}
    end, values = planned(servers, **given)
    assert values == Counter(VALUES[4:])
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(source, 2)])[source].result(60)
    wait_until(
        lambda: len(admin.list_topics(source, 10).topics[source].partitions) == 2, "the partition"
    )

    assert planned(servers, end, **given)[1] == values
    with pytest.raises(SourceError, match="you must specify all TopicPartitions"):
        planned(servers, **given)


LATEST = [{}, {"startingOffsets": "latest"}, {"startingTimestamp": "9999999999999"}]


@pytest.mark.parametrize("starting", LATEST, ids=["default", "latest", "late by time"])
@pytest.mark.parametrize("changed", STARTS, ids=["earliest", "time"])
def test_one_that_began_at_the_end_reads_nothing_by_another_option(
    servers, source, starting, changed
) -> None:
    given = {"subscribe": source, "startingOffsetsByTimestampStrategy": "latest"}
    end, values = planned(servers, **given, **starting)
    assert not values
    assert not planned(servers, end, **given, **changed)[1]


def test_of_all_topics_that_a_pattern_names(servers, make_topic) -> None:
    one, other = make_topic("pattern-a"), make_topic("pattern-b")
    given = {"subscribePattern": f"{one}|{other}", "startingOffsets": "earliest"}
    for topic in one, other:
        produce(servers, topic, VALUES)
    end, _ = planned(servers, **given)
    delete_records(servers, other, 10)

    with pytest.raises(DataLossError, match=f"Offset 0 of partition {other}-0 is out of range"):
        planned(servers, end, **given)
    assert planned(servers, end, failOnDataLoss="false", **given)[1] == Counter(VALUES)


def test_a_first_batch_that_an_older_version_planned_is_looked_up_again(servers, source) -> None:
    given = {"subscribe": source, "startingOffsets": "earliest"}
    end, _ = planned(servers, **given)
    delete_records(servers, source, 6)
    of_before = {name: said for name, said in end.items() if not name.startswith("@from")}
    assert len(of_before) == len(end) - 1

    assert planned(servers, of_before, **given)[1] == Counter(VALUES[6:])


def to_the_end(writer, checkpoint) -> str:
    """Runs a query; what it failed with, or ""."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    except Exception as error:
        return str(error)
    finally:
        query.stop()
    return ""


def written(rows, way: str, sink: dict[str, str]):
    """A writer of a job that is named after its topic."""
    sink = {**sink, "jobName": f"first-{sink['topic']}"}
    if way == "sink":
        return rows.writeStream.format("eo-kafka").options(**sink)
    return rows.writeStream.foreachBatch(eo_kafka.foreach_batch(sink))


def uncommit(checkpoint) -> None:
    """As if the driver had died just before Spark noted the first batch."""
    for name in "0", ".0.crc":
        (checkpoint / "commits" / name).unlink(missing_ok=True)


@pytest.mark.parametrize("way", ["sink", "foreach_batch"])
def test_a_decided_first_batch_is_not_read_again_from_elsewhere(
    spark, servers, source, make_topic, tmp_path, way
) -> None:
    """Of a query with state, that would be rebuilt from fewer rows: one would come twice."""
    out, checkpoint = make_topic("out"), tmp_path / "checkpoint"
    kafka = {"kafka.bootstrap.servers": servers}
    rows = spark.readStream.format("eo-kafka").options(**kafka).option("subscribe", source)
    rows = rows.option("startingOffsets", "earliest").load().select("value")
    writer = written(rows.dropDuplicates(["value"]), way, {**kafka, "topic": out})

    assert to_the_end(writer, checkpoint) == ""
    uncommit(checkpoint)
    delete_records(servers, source, 6)
    produce(servers, source, [b"0"])

    told = to_the_end(writer, checkpoint)
    assert "DataLossError" in told and f"Offset 0 of partition {source}-0" in told
    assert committed(servers, out) == Counter(VALUES)


@pytest.mark.parametrize("way", ["sink", "foreach_batch"])
def test_a_first_batch_at_latest_stays_empty_whatever_the_option_says_later(
    spark, servers, source, make_topic, tmp_path, way
) -> None:
    """Its rows would be skipped as written, and stay in the state: a later one of them was lost."""
    out, checkpoint = make_topic("out"), tmp_path / "checkpoint"
    kafka = {"kafka.bootstrap.servers": servers}

    def run(**starting: str) -> str:
        rows = spark.readStream.format("eo-kafka").options(**kafka, **starting)
        rows = rows.option("subscribe", source).load().select("value")
        return to_the_end(
            written(rows.dropDuplicates(["value"]), way, {**kafka, "topic": out}), checkpoint
        )

    assert run() == ""
    uncommit(checkpoint)
    assert run(startingOffsets="earliest") == ""
    produce(servers, source, [b"0", b"new"])
    assert run(startingOffsets="earliest") == ""
    assert committed(servers, out) == Counter([b"0", b"new"])


def test_the_direct_lane_begins_there_too(spark, servers, source, make_topic, tmp_path) -> None:
    out, kafka = make_topic("out"), {"kafka.bootstrap.servers": servers}
    given = {**kafka, "subscribe": source, "startingOffsets": "earliest"}
    sink = {**kafka, "topic": out, "jobName": f"first-{out}"}

    def fails(batches):
        raise ValueError("as long as it is broken")

    def run(transform=None, **options: str) -> str:
        writer = eo_kafka.direct(spark, {**given, **options}, sink, transform)
        return to_the_end(writer, tmp_path / "checkpoint")

    assert "as long as it is broken" in run(fails)
    delete_records(servers, source, 6)
    assert f"Offset 0 of partition {source}-0 is out of range" in run()
    assert committed(servers, out) == Counter()
    assert run(failOnDataLoss="false") == ""
    assert committed(servers, out) == Counter(VALUES[6:])
