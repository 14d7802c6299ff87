"""Two-phase writes into an IMap, what needs no member: options, keys, markers, chunks."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import eo_kafka
from eo_kafka.connectors.maps.backends import classes_of
from eo_kafka.connectors.maps.format import MapDataSource
from eo_kafka.connectors.maps.writers import ImapTwoPhaseWriter, TopicMapStreamWriter
from eo_kafka.core.transaction import NO_TRANSACTION, Participant, Staged
from eo_kafka.errors import LedgerError, OptionsError
from eo_kafka.sinks.maps.applied import LANES, Marker, lane_of
from eo_kafka.sinks.maps.staging import CHUNK_ROWS, ChunkKey, _pieces, chunk_keys
from eo_kafka.sinks.maps.two_phase_options import read_target, read_two_phase

ROWS = StructType().add("key", "string").add("value", "string")
COLUMNS = [("key", "string"), ("value", "string")]
GIVEN = {
    "map": "orders",
    "backend": "hazelcast",
    "hazelcast.members": "a:5701",
    "commit": "Two-Phase",
    "kafka.bootstrap.servers": "b:9092",
    "jobName": "orders",
}


def problems(**more: str | None) -> list[str]:
    given = {name: value for name, value in {**GIVEN, **more}.items() if value is not None}
    with pytest.raises(OptionsError) as error:
        MapDataSource(given).streamWriter(ROWS, False)
    return list(error.value.problems)


def test_what_is_needed_is_enough_and_no_secret_is_shown() -> None:
    secrets = {
        "hazelcast.username": "me",
        "hazelcast.password": "hunter2",
        "kafka.sasl.password": "hunter3",
    }
    options, target, shape = read_two_phase({**GIVEN, **secrets}, COLUMNS)
    assert (options.job, options.topic, options.one_phase, options.staging) == (
        *("orders", None, False),
        target,
    )
    assert (target.map, target.fail_on_loss, shape.json) == ("orders", True, False)
    assert pickle.loads(pickle.dumps(options)) == options
    assert "hunter" not in repr(options)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    found = problems(
        onConflict="keep",
        putSize="10",
        guarantee="none",
        batchId="1",
        jobName=None,
        **{"kafka.bootstrap.servers": None, "hazelcast.members": None, "hazelcast.colour": "1"},
    )
    assert "set option 'jobName'" in found.pop()
    assert [one.split("'")[1] for one in found] == [
        "onConflict",
        "putSize",
        "guarantee",
        "batchId",
        "hazelcast.members",
        "hazelcast.colour",
        "kafka.bootstrap.servers",
    ]
    assert "did you mean 'failOnDataLoss'" in problems(failOnDataLos="true")[0]


def test_rows_are_merged_by_a_function_that_the_driver_has() -> None:
    merge = {"onConflict": "merge", "mergeFunction": "operator:concat"}
    assert read_two_phase({**GIVEN, **merge}, COLUMNS)[1].merge == "operator:concat"
    for given, said in (
        ({"onConflict": "merge"}, "go together"),
        ({"mergeFunction": "operator:concat"}, "go together"),
        ({**merge, "mergeFunction": "no_such_module:f"}, "cannot be imported on host"),
        ({**merge, "mergeFunction": "operator:no_such"}, "cannot be imported on host"),
        ({**merge, "mergeFunction": "operator"}, "must be 'module:function'"),
        ({**merge, "mergeFunction": "operator:__doc__"}, "is no function"),
    ):
        (one,) = problems(**given)
        assert said in one


def test_a_command_merges_by_the_function_that_it_is_told() -> None:
    of_map = {"map": "m", "hazelcast.members": "127.0.0.1:5701"}
    assert read_target(of_map).merge is None
    merge = {"onConflict": "merge", "mergeFunction": "operator:concat"}
    assert read_target({**of_map, **merge}).merge == "operator:concat"
    with pytest.raises(OptionsError, match="cannot be imported on host"):
        read_target({**of_map, **merge, "mergeFunction": "no_such_module:f"})


def test_it_is_a_way_of_streams_into_imaps_only() -> None:
    on_topic = {**GIVEN, "backend": "kafka", "kafka.linger.ms": 20}  # as Spark's options() takes
    assert classes_of(on_topic).stream_writer is TopicMapStreamWriter
    assert classes_of(GIVEN).stream_writer is ImapTwoPhaseWriter
    with pytest.raises(OptionsError, match="a way of streaming writes"):
        MapDataSource(GIVEN).writer(ROWS, False)
    with pytest.raises(OptionsError, match="never replaced as a whole"):
        MapDataSource(GIVEN).streamWriter(ROWS, True)
    without_job = {name: value for name, value in GIVEN.items() if name != "jobName"}
    with pytest.raises(OptionsError, match="needs option 'jobName'"):
        eo_kafka.foreach_batch(without_job)


def test_a_key_says_whose_rows_a_chunk_holds() -> None:
    part = Participant(3, 1, 34, NO_TRANSACTION, 7, "d", staged=Staged("orders", "c", 9, 2))
    keys = chunk_keys("main", 12, part)
    assert [key.encode() for key in keys] == ["main/34/12/1/3/9/0", "main/34/12/1/3/9/1"]
    assert [ChunkKey.decode(key.encode()) for key in keys] == keys
    for strange in ("", "main/1/2/3/4/5", "main/1/2/3/4/5/x", "main/1/2/3/4/5/6/7", None):
        assert ChunkKey.decode(strange) is None


def test_a_marker_comes_back_and_others_are_refused() -> None:
    marker = Marker(5, 4, 3, "d")
    assert Marker.decode(marker.encode()) == marker
    assert Marker.decode('{"v": 1, "holder": 5, "decision": 4, "done": 3}') == Marker(5, 4, 3)
    for strange in (
        None,
        "",
        "[]",
        "{}",
        '{"v":1,"holder":1,"decision":1,"done":true}',
        marker.encode().replace('"d"', "7"),
    ):
        with pytest.raises(LedgerError, match="has not written there"):
            Marker.decode(strange)
    with pytest.raises(LedgerError):
        Marker.decode(marker.encode().replace('"v": 1', '"v": 2'))


def test_the_chunks_of_a_task_are_in_one_lane() -> None:
    """So that of two rows with one key the later one stays."""
    assert {lane_of(partition) for partition in range(100)} == set(range(LANES))


@pytest.mark.parametrize(("rows", "size"), [(0, 1), (1, 9), (CHUNK_ROWS * 3 + 1, 9), (9, 400_000)])
def test_pieces_are_small_and_hold_each_row_once_in_order(rows: int, size: int) -> None:
    keys = [str(number) for number in range(rows)]
    whole = pa.record_batch({"key": keys, "value": pa.array(["x" * size] * rows, pa.string())})
    found = list(_pieces(whole))
    assert [key for piece in found for key in piece.column("key").to_pylist()] == keys
    assert all(piece.num_rows <= CHUNK_ROWS for piece in found)
    assert all(piece.num_rows == 1 or piece.nbytes <= 1 << 20 for piece in found)
