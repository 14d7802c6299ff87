"""What a reader of a map may be told."""

from __future__ import annotations

import pickle
import subprocess
import sys
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql.types import StructType

from eo_kafka.connectors.maps.backends import classes_of
from eo_kafka.connectors.maps.format import MapDataSource, columns, typed
from eo_kafka.core.offsets import Position
from eo_kafka.errors import OptionsError
from eo_kafka.sources.maps.options import MapOptions
from eo_kafka.sources.maps.position import MapPosition
from eo_kafka.sources.maps.topic_options import TopicMapOptions
from eo_kafka.sources.maps.topic_position import TopicPosition

GIVEN = {"map": "orders", "backend": "hazelcast", "hazelcast.members": "a:5701, b:5702"}
RIGHT = (
    StructType()
    .add("event", "string")
    .add("key", "string")
    .add("value", "string")
    .add("old_value", "string")
    .add("partition", "integer")
    .add("sequence", "long")
)
TOPIC = {"map": "orders", "backend": "kafka", "kafka.bootstrap.servers": "a:9092"}


def of_reader(given: Mapping[str, str], streaming: bool | None) -> Any:
    return classes_of(given).options(given, streaming)


def refused(streaming: bool | None = True, **more: str) -> str:
    given = {name: value for name, value in {**GIVEN, **more}.items() if value is not None}
    with pytest.raises(OptionsError) as error:
        MapOptions.parse(given, streaming)
    return str(error.value)


def test_what_is_needed_is_enough() -> None:
    options = MapOptions.parse(GIVEN, streaming=True)
    assert options.hazelcast.members == ("a:5701", "b:5702")
    assert (options.starting, options.fail_on_data_loss) == ("oldest", True)
    assert columns(options) == (
        "event STRING, key STRING, value STRING, old_value STRING, partition INT, sequence BIGINT"
    )


def test_everything_that_is_missing_is_told_at_once() -> None:
    with pytest.raises(OptionsError) as error:
        MapOptions.parse({}, streaming=True)
    assert [sentence.split("'")[1] for sentence in error.value.problems] == [
        "map",
        "backend",
        "hazelcast.members",
    ]


def test_wrong_values_and_misspelt_names_are_told() -> None:
    assert "'backend' must be one of hazelcast, kafka" in refused(backend="redis")
    assert "'kafka.acks' is for maps with 'backend' 'kafka'" in refused(**{"kafka.acks": "all"})
    assert "must be one of oldest, current" in refused(startingSequence="latest")
    assert "did you mean 'maxEventsPerTrigger'" in refused(maxEventPerTrigger="5")
    assert "Unknown option 'hazelcast.clustre'" in refused(**{"hazelcast.clustre": "x"})
    assert "host:port" in refused(**{"hazelcast.members": "a:x"})
    assert "needs 'hazelcast.ssl.enabled'" in refused(**{"hazelcast.ssl.ca.location": "/ca"})
    assert "go together" in refused(**{"hazelcast.username": "me"})


def test_typed_formats_need_a_schema_and_a_schema_one_of_them() -> None:
    for kind in ("json", "compact", "portable"):
        told = refused(**{"value.format": kind})
        assert "'compact' or 'portable' and option 'value.schema' go together" in told
    assert "'key.schema' go together" in refused(**{"key.schema": "id INT"})


def test_typed_columns_are_those_of_the_schema() -> None:
    given = {"key.format": "bytes", "value.format": "json"}
    wanted = "event STRING, key BINARY, value {0}, old_value {0}, partition INT, sequence BIGINT"
    for schema, words in (
        ("id BIGINT, tags ARRAY<STRING>", "STRUCT<id BIGINT, tags ARRAY<STRING>>"),
        (StructType().add("id", "long").json(), "struct<id:bigint>"),
    ):
        options = MapOptions.parse({**GIVEN, **given, "value.schema": schema}, streaming=True)
        assert columns(options) == wanted.format(words)
    options = MapOptions.parse({**GIVEN, **given, "value.schema": "{}"}, streaming=True)
    with pytest.raises(OptionsError, match="'value.schema' is no schema of Spark's"):
        columns(options)


def test_columns_of_ones_own_are_refused() -> None:
    options = MapOptions.parse(GIVEN, streaming=True)
    assert typed(options, RIGHT) == {}
    for wrong in (StructType(RIGHT.fields[:-1]), StructType([*RIGHT.fields[:-1], RIGHT["key"]])):
        with pytest.raises(OptionsError, match="cannot be set with schema"):
            typed(options, wrong)


def test_a_predicate_is_for_batches() -> None:
    assert "'predicate' is for batches" in refused(predicate="a > 1")
    for streaming in (False, None):
        assert MapOptions.parse({**GIVEN, "predicate": "a > 1"}, streaming).predicate == "a > 1"


def test_a_topic_needs_its_brokers_and_takes_the_same_options() -> None:
    more = {"startingSequence": "current", "maxEventsPerTrigger": "5", "failOnDataLoss": "false"}
    options = of_reader({**TOPIC, **more, "kafkaConsumer.pollTimeoutMs": "7"}, True)
    assert isinstance(options, TopicMapOptions)
    assert options.source.subscription.topics == ("orders",)
    assert (options.source.starting, options.source.max_offsets_per_trigger) == ("latest", 5)
    assert not options.source.fail_on_data_loss
    assert options.source.poll_timeout_ms == 7
    # a batch has all entries, wherever a stream would start
    batch = of_reader({**TOPIC, **more}, False)
    assert isinstance(batch, TopicMapOptions)
    assert batch.source.starting == "earliest"
    assert columns(options) == columns(MapOptions.parse(GIVEN, streaming=True))


def test_what_a_topic_cannot_do_is_told_at_once() -> None:
    wrong = {
        "tasks": "3",
        "fetchSize": "5",
        "predicate": "a > 1",
        "subscribe": "t",
        "value.format": "data",
        "hazelcast.members": "a:1",
        "kafka.isolation.level": "read_uncommitted",
        "maxEventPerTrigger": "1",
    }
    with pytest.raises(OptionsError) as error:
        of_reader({**TOPIC, **wrong}, True)
    assert len(error.value.problems) == len(wrong)
    with pytest.raises(OptionsError) as error:
        of_reader({"backend": "kafka"}, True)
    assert [one.split("'")[1] for one in error.value.problems] == ["map", "kafka.bootstrap.servers"]
    for name in ("a,b", "a b"):
        with pytest.raises(OptionsError, match="'map' is the topic's name"):
            of_reader({**TOPIC, "map": name}, None)


def test_the_checkpoint_of_another_map_is_refused_before_anybody_is_asked() -> None:
    for given, offset in (
        (GIVEN, MapPosition("other", str(uuid.UUID(int=1)), (0,), ("",)).encode()),
        (TOPIC, TopicPosition("other", Position({}), 0).encode()),
    ):
        reader = MapDataSource(given).streamReader(RIGHT)
        with pytest.raises(OptionsError, match="is of a stream of map 'other'"):
            reader.latestOffset(offset)
        with pytest.raises(OptionsError, match="is of a stream of map 'other'"):
            reader.partitions(offset, offset)


def test_no_secret_is_shown_and_all_arrive_at_the_tasks() -> None:
    secrets = {
        "hazelcast.username": "me",
        "hazelcast.password": "hunter2",
        "hazelcast.ssl.enabled": "true",
        "hazelcast.ssl.key.password": "hunter3",
    }
    options = MapOptions.parse({**GIVEN, **secrets}, streaming=True)
    arrived = pickle.loads(pickle.dumps(options))
    assert arrived == options
    assert arrived.hazelcast.credentials == ("me", "hunter2")
    assert dict(arrived.hazelcast.tls)["ssl_password"] == "hunter3"
    for shown in (repr(options), str(options), options.place):
        assert "hunter" not in shown
    assert "hunter" not in refused(**secrets, tasks="0")


def test_before_spark_4_2_the_format_is_found_and_its_streams_are_refused() -> None:
    code = (
        "import sys, pyspark.sql.datasource\n"
        "sys.modules['pyspark.sql.streaming.datasource'] = None\n"
        "import pyspark_eo_map as found\n"
        "try: found.DefaultSource({}).streamReader(None)\n"
        "except Exception as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "A stream of a map needs PySpark 4.2 or newer" in ran.stdout


def test_the_module_that_spark_finds_needs_no_hazelcast() -> None:
    """One that fails to import would hide all Python formats."""
    code = (
        "import sys; sys.modules['hazelcast'] = None; import pyspark_eo_map as found; "
        "assert found.DefaultSource.name() == 'eo-map'; assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
