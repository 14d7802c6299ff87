"""What a writer of a map may be told."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import StructType

from eo_kafka.connectors.maps.format import MapDataSource
from eo_kafka.core.digest import Digest
from eo_kafka.errors import OptionsError, SinkError
from eo_kafka.sinks.maps.marker import Marker
from eo_kafka.sinks.maps.options import MapSinkOptions

IMAP = {"map": "orders", "backend": "hazelcast", "hazelcast.members": "a:5701"}
TOPIC = {"map": "orders", "backend": "kafka", "kafka.bootstrap.servers": "a:1", "jobName": "j"}
COLUMNS = [("key", "string"), ("value", "binary"), ("gone", "boolean"), ("partition", "int")]
ROWS = StructType().add("key", "string").add("value", "string").add("gone", "boolean")


def problems(**more: str) -> list[str]:
    with pytest.raises(OptionsError) as error:
        MapSinkOptions.parse({**IMAP, **more}, COLUMNS)
    return list(error.value.problems)


def problems_of_topic(rows: StructType = ROWS, **more: str) -> list[str]:
    with pytest.raises(OptionsError) as error:
        MapDataSource({**TOPIC, **more}).streamWriter(rows, False)
    return list(error.value.problems)


def test_what_is_needed_is_enough_and_no_secret_is_shown() -> None:
    given = {**IMAP, "hazelcast.username": "me", "hazelcast.password": "hunter2"}
    options, shape = MapSinkOptions.parse({**given, "removeColumn": "gone"}, COLUMNS)
    assert (options.on_conflict, shape.json, shape.remove_column) == ("replace", False, "gone")
    assert pickle.loads(pickle.dumps(options)) == options
    assert "hunter" not in repr(options)


def test_versions_need_json_and_no_removals() -> None:
    (one,) = problems(onConflict="newest", **{"value.format": "json"})
    assert "'versionField' go together" in one
    assert len(problems(versionField="n")) == 1
    found = problems(onConflict="newest", versionField="n", removeColumn="gone")
    assert "needs 'value.format' to be 'json'" in found[0]
    assert "cannot be with 'removeColumn'" in found[1]


def test_what_is_merged_needs_a_decision_and_a_map_of_members() -> None:
    merge = {"onConflict": "merge", "mergeFunction": "operator:concat"}
    assert "needs 'commit' to be 'two-phase'" in problems(**merge)[0]
    assert "a topic's newest record always is the entry" in problems_of_topic(**merge)[0]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    found = problems(
        onConflict="mix", putSize="0", removeColumn="partition", **{"kafka.acks": "all"}
    )
    assert [one.split("'")[1] for one in found] == [
        "removeColumn",
        "onConflict",
        "putSize",
        "kafka.acks",
    ]
    with pytest.raises(OptionsError) as error:
        MapSinkOptions.parse({}, [])
    assert len(error.value.problems) == 5  # map, backend, key, value, members


def test_a_topic_is_told_what_only_members_can_do() -> None:
    wrong = {"onConflict": "newest", "versionField": "n", "topic": "t", "hazelcast.cluster": "dev"}
    assert len(problems_of_topic(**wrong)) == len(wrong)
    rows = StructType().add("key", "long").add("value", "string")
    assert "Column 'key' must be" in problems_of_topic(rows)[0]
    assert "'guarantee' must be one of" in problems_of_topic(guarantee="twice")[0]


def test_the_kafka_sink_gets_key_and_value_and_no_partition() -> None:
    rows = StructType().add("key", "string").add("partition", "integer").add("value", "string")
    writer = MapDataSource(TOPIC).streamWriter(rows, False)
    assert writer._entries.schema.names == ["key", "value"]
    assert writer._sink.options.topic == "orders"


def test_a_map_is_never_replaced_as_a_whole() -> None:
    with pytest.raises(OptionsError, match="never replaced as a whole"):
        MapDataSource(IMAP).streamWriter(ROWS, True)


def test_markers_are_written_and_read_as_themselves() -> None:
    marker = Marker(7, 3, "m1:00")
    assert Marker.decode(marker.encode()) == marker
    for wrong in ("", "{}", "[]", '{"v": 2, "batch": 1, "rows": 1, "keys": ""}', None, b"\xff", 5):
        with pytest.raises(SinkError, match="has not written there"):
            Marker.decode(wrong)


def test_a_digest_comes_back_from_its_text() -> None:
    digest = Digest()
    digest.add(b"t", -1, b"key", None)
    assert Digest.of(1, digest.text()) == digest
    for wrong in ("", "m0:" + 32 * "0", "m1:0"):
        with pytest.raises(ValueError, match="no digest"):
            Digest.of(1, wrong)


def test_puts_have_no_ledger_that_a_new_checkpoint_could_meet() -> None:
    assert problems(onReset="new-job") == ["Option 'onReset' is for 'commit' 'two-phase'."]
