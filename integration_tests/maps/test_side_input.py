"""A stream joined with a map: a batch that runs again is joined with the same entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

import eo_kafka
from eo_kafka.connectors.maps import side_input
from eo_kafka.connectors.maps.hadoop_files import HadoopFiles
from eo_kafka.errors import CheckpointError, OptionsError, SourceError
from grid_fixtures import new_map
from harness import Copy, assert_exactly_once, fail_at, kill_driver_at, make_copy, produce
from map_backends import HAZELCAST_IN_FULL, TopicMap
from test_map_stream import options_of

FIRST = [b"%d" % number for number in range(100)]
LATER = [b"%d" % number for number in range(100, 130)]
KEYS = [str(number) for number in range(50, 150)]  # so that half of the first have no entry


@dataclass
class Enriched(Copy):
    """A copy of a topic, each value with the map's entry behind it."""

    side: dict[str, str] | None = None
    refresh: str | None = None
    script: ClassVar[str] = "enriched_job.py"
    key_of = staticmethod(lambda value: value.split()[0])

    def as_job(self) -> dict[str, object]:
        return {**super().as_job(), "side": self.side, "refresh": self.refresh}

    def start(self, spark):
        from jobs.enriched_job import start_enriched

        return start_enriched(spark, self.as_job())


@pytest.fixture
def job(broker, make_topic, tmp_path, a_map) -> Enriched:
    a_map.put_all(dict.fromkeys(KEYS, "old"))
    given = {"kind": Enriched, "side": a_map.options()}
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, FIRST, **given)


def joined(values: list[bytes], entry: str) -> list[bytes]:
    return [value + b" " + (entry if value.decode() in KEYS else "-").encode() for value in values]


def change(job, a_map) -> None:
    a_map.put_all(dict.fromkeys(KEYS, "new"))
    produce(job.servers, job.source_topic, LATER)


@pytest.mark.full
@pytest.mark.parametrize(
    ("point", "entry"),
    [
        ("side-input.before_pin", "new"),  # nothing was pinned, or read
        ("S3.while_writing", "old"),
        ("S6.before_decision", "old"),
        ("S7.after_first_end_txn", "old"),
        ("S8.after_done", "old"),
    ],
)
def test_a_batch_whose_driver_was_killed_is_joined_with_the_same_entries(
    job, a_map, spark, crash_points, tmp_path, point, entry
) -> None:
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    change(job, a_map)
    job.run(spark)
    assert_exactly_once(job, joined(FIRST, entry) + joined(LATER, "new"))


@HAZELCAST_IN_FULL
def test_a_batch_that_was_interrupted_is_joined_with_the_same_entries(
    job, a_map, spark, crash_points
) -> None:
    fail_at(job, spark, crash_points, "S6.before_decision")
    change(job, a_map)
    job.run(spark)
    assert_exactly_once(job, joined(FIRST, "old") + joined(LATER, "new"))


@pytest.mark.full
def test_entries_are_taken_again_when_they_are_old_enough(job, a_map, spark) -> None:
    job.refresh = "1 hour"
    job.run(spark)
    change(job, a_map)
    job.run(spark)
    assert_exactly_once(job, joined(FIRST + LATER, "old"))
    assert len(list((job.checkpoint / "side" / "versions").iterdir())) == 1
    job.refresh = "1 ms"
    last = [b"%d" % number for number in range(130, 140)]
    produce(job.servers, job.source_topic, last)
    job.run(spark)
    assert_exactly_once(job, joined(FIRST + LATER, "old") + joined(last, "new"))


@pytest.fixture
def prices(spark, broker, make_topic, tmp_path):
    a_map = TopicMap(broker.bootstrap_servers, make_topic, 1)
    a_map.put_all({"a": "1"})
    return eo_kafka.SideInput(a_map.options(), str(tmp_path / "side"))


def test_old_pins_and_versions_are_forgotten(prices, spark, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(side_input, "PINS_KEPT", 2)
    monkeypatch.setattr(side_input, "_FORGOTTEN_AT_A_TIME", 1)
    for batch in range(5):
        assert prices.at(spark, batch).collect() == [("a", "1")]
    assert sorted(one.name for one in (tmp_path / "side" / "pins").glob("[0-9]*")) == ["3", "4"]
    versions = [one.name for one in (tmp_path / "side" / "versions").iterdir()]
    assert sorted(name.partition("-")[0] for name in versions) == ["3", "4"]
    assert prices.at(spark, 3).collect() == [("a", "1")]


def test_keys_of_an_imap_that_are_one_as_text_are_told(
    spark, grid, hazelcast_client, tmp_path
) -> None:
    """A join would repeat each row that has this key."""
    stored = new_map(hazelcast_client, "plain")
    stored.put("12", "text")
    stored.put(12, "number")
    side = eo_kafka.SideInput(options_of(grid, stored), str(tmp_path / "side"))
    with pytest.raises(SourceError, match="more than one entry with the key '12'.*an IMap"):
        side.at(spark, 0)


def test_a_pin_that_is_there_stays(spark, tmp_path) -> None:
    files = HadoopFiles(spark, str(tmp_path / "side"))
    for text in ("first", "second"):
        files.write_new("pins/0", text)
    assert files.read("pins/0") == "first"
    assert files.names("pins") == ["0"], "something is left behind"
    assert files.read("pins/1") is None


def test_the_folder_of_another_query_is_refused(prices, spark, tmp_path) -> None:
    prices.at(spark, 0)
    context = spark.sparkContext
    context.setLocalProperty("sql.streaming.queryId", "another")
    try:
        for batch in (0, 1):
            with pytest.raises(CheckpointError, match="belongs to query None"):
                prices.at(spark, batch)
    finally:
        context.setLocalProperty("sql.streaming.queryId", None)
    assert [one.name for one in (tmp_path / "side" / "pins").glob("[0-9]*")] == ["0"]


def test_bad_arguments_are_told_at_once(prices, spark) -> None:
    with pytest.raises(OptionsError) as error:
        eo_kafka.SideInput({"backend": "kafka", "map": "m"}, " ", "soon")
    assert len(error.value.problems) == 3
    rows = spark.sql("select 'a' as id, 'x' as entry")
    for arguments in ({"on": "key"}, {"on": "id"}):
        with pytest.raises(OptionsError, match="The rows need a column"):
            prices.join(rows, 0, **arguments)
    found = prices.join(rows, 0, on="id", name="price").collect()
    assert [(row.id, row.price) for row in found] == [("a", "1")]


def test_a_column_of_another_type_than_the_keys_is_refused(spark, broker, make_topic, tmp_path):
    """Spark would compare numbers: each row would come out once for each such key."""
    a_map = TopicMap(broker.bootstrap_servers, make_topic, 1)
    a_map.put_all({"1": "one", "01": "another"})
    side = eo_kafka.SideInput(a_map.options(), str(tmp_path / "side"))
    for kind in ("BIGINT", "BINARY"):
        rows = spark.sql(f"select cast('1' as {kind}) as id")
        with pytest.raises(OptionsError, match=f"'id' of the rows is {kind}, .* keys are STRING"):
            side.join(rows, 0, on="id").collect()
        rows = rows.withColumn("id", rows["id"].cast("string"))
        assert side.join(rows, 0, on="id").collect() == [("1", "one")]
