"""Dead letters where rows cannot carry them: queries with state, sinks that are no topics."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import eo_kafka
from harness import committed, produce
from newcomer import blocks

GOOD = [b'{"price":%d.0}' % number for number in range(10)]
BAD = [b'{"price":"a lot"}', b"no JSON"]


@pytest.fixture
def reads(spark, broker, make_topic):
    """Makes a stream of a topic with good and bad records, which go to `letters`."""
    source = make_topic("in")
    produce(broker.bootstrap_servers, source, [*GOOD, *BAD, GOOD[3]])

    def make(letters: str, mode: str = "DEADLETTER"):
        given = {"subscribe": source, "startingOffsets": "earliest", "mode": mode}
        if mode == "DEADLETTER":
            given["deadLetterTopic"] = letters
        reader = spark.readStream.format("eo-kafka").options(**given)
        reader = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers)
        return reader.options(**{"value.format": "json", "value.schema": "price DOUBLE"}).load()

    return make


@pytest.fixture
def ran(broker, tmp_path):
    """Runs a writer to the end of what there is."""

    def run(writer) -> None:
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    return run


def as_the_page_says(rows):
    """Its block for queries with state."""
    (recipe,) = [
        block.content for block in blocks("docs/how-to/dead-letters.md") if "union" in block.content
    ]
    names = {"rows": rows}
    exec(recipe, names)
    return names["both"].writeStream.format("eo-kafka").option("value.format", "json")


def test_beside_a_query_that_keeps_state(broker, make_topic, reads, ran):
    output, letters = make_topic("out"), make_topic("letters")
    ran(as_the_page_says(reads(letters)).options(topic=output, jobName=output))
    assert committed(broker.bootstrap_servers, letters) == Counter(BAD)
    assert committed(broker.bootstrap_servers, output) == Counter(GOOD)


@pytest.mark.parametrize(
    ("config", "told"),
    [({"cleanup.policy": "compact"}, "is compacted"), (None, "does not exist")],
)
def test_with_state_the_topic_is_looked_at_too(broker, make_topic, reads, ran, config, told):
    output = make_topic("out")
    letters = make_topic("letters", config=config) if config else f"none-{output}"
    with pytest.raises(Exception, match=f"opic '{letters}' {told}"):
        ran(as_the_page_says(reads(letters)).options(topic=output, jobName=output))
    assert not committed(broker.bootstrap_servers, output)


@pytest.mark.parametrize("mode", ["DEADLETTER", "PERMISSIVE"])
@pytest.mark.parametrize("way", ["writeStream", "foreachBatch"])
def test_a_map_refuses_them_and_keeps_its_keys(broker, make_topic, reads, ran, way, mode):
    """It would take a bad record for the removal of its key."""
    a_map = make_topic("map", config={"cleanup.policy": "compact"})
    rows = reads(make_topic("letters"), mode)
    entries = rows.selectExpr("'k' AS key", "to_json(value) AS value", "_bad_record")
    given = {"backend": "kafka", "map": a_map, "jobName": a_map}
    if way == "writeStream":
        writer = entries.writeStream.format("eo-map").options(**given)
    else:
        given["kafka.bootstrap.servers"] = broker.bootstrap_servers
        writer = entries.writeStream.foreachBatch(eo_kafka.foreach_batch(given))
    with pytest.raises(Exception, match=r"Leave such records out, with where\("):
        ran(writer)
    assert not committed(broker.bootstrap_servers, a_map)


def test_a_map_takes_the_good_ones(broker, make_topic, reads, ran):
    a_map = make_topic("map", config={"cleanup.policy": "compact"})
    good = reads(make_topic("letters")).where("_bad_record IS NULL")
    entries = good.selectExpr("string(value.price) AS key", "to_json(value) AS value")
    given = {"backend": "kafka", "map": a_map, "jobName": a_map}
    ran(entries.writeStream.format("eo-map").options(**given))
    found = committed(broker.bootstrap_servers, a_map)
    assert {json.loads(value)["price"] for value in found} == {float(n) for n in range(10)}
