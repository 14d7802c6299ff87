"""Where a stream of a map is: what goes into Spark's log, and what is found to be lost."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest

from eo_kafka.clients.hazelcast.internals import Bounds
from eo_kafka.errors import SourceError
from eo_kafka.sources.maps.position import JournalRange, MapPosition, beginning, ranges
from eo_kafka.sources.maps.reader import tasks

ONE, OTHER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
D5, D7 = "5" * 12, "7" * 12
AT = MapPosition("orders", ONE, (5, 0, 7), (D5, "", D7))


def test_what_is_written_is_read_and_always_the_same_text() -> None:
    written = json.dumps(AT.encode())
    assert MapPosition.decode(json.loads(written)) == AT
    assert json.dumps(MapPosition.decode(json.loads(written)).encode()) == written


@pytest.mark.parametrize(
    "change",
    [
        {"cluster": "nobody"},
        {"sequences": [5, 0]},
        {"sequences": [5, -1, 7]},
        {"sequences": [5, True, 7]},
        {"sequences": "507"},
        {"anchors": ["short", "", D7]},
        {"sequences": [], "anchors": []},
        {"map": 3},
    ],
)
def test_an_offset_of_something_else_is_refused(change) -> None:
    with pytest.raises(SourceError, match="is not one of a map"):
        MapPosition.decode({**AT.encode(), **change})
    for strange in (None, 5, {"topic": {"0": 1}}, []):
        with pytest.raises(SourceError, match="is not one of a map"):
            MapPosition.decode(strange)


def test_a_batch_reads_from_position_to_position_and_carries_both_anchors() -> None:
    end = MapPosition("orders", ONE, (5, 2, 9), (D5, "2" * 12, "9" * 12))
    assert ranges(AT, end) == [
        JournalRange(1, 0, 2, "", "2" * 12),
        JournalRange(2, 7, 9, D7, "9" * 12),
    ]
    assert ranges(None, end) == []


def test_what_begins_anew_is_read_from_its_beginning() -> None:
    shorter = replace(AT, sequences=(5, 0, 2))
    assert ranges(AT, shorter) == [JournalRange(2, 0, 2, "", D7)]
    restarted = MapPosition("orders", OTHER, (9, 0, 7), (D5, "", D7))
    assert ranges(AT, restarted) == [JournalRange(0, 0, 9, "", D5), JournalRange(2, 0, 7, "", D7)]


@pytest.mark.parametrize(
    "bounds",
    [
        [Bounds(0, 4), Bounds(0, -1), Bounds(0, 6)],  # nothing new
        [Bounds(5, 14), Bounds(0, 3), Bounds(7, 6)],  # up to the edge
    ],
)
def test_nothing_is_lost(bounds) -> None:
    assert beginning(AT, ONE, bounds) == (AT.sequences, ())


def test_each_loss_is_told_with_its_partitions_and_sequences() -> None:
    found = beginning(AT, ONE, [Bounds(8, 12), Bounds(0, 3), Bounds(0, 3)])
    assert found.sequences == (8, 0, 0)
    overwritten, shorter = found.losses
    assert "partition 0: sequences 5 to 7" in overwritten
    assert "partition 2: read up to sequence 6, now ends with 3" in shorter


def test_another_cluster_or_number_of_partitions_begins_anew() -> None:
    bounds = [Bounds(0, 12), Bounds(2, 3), Bounds(0, 9)]
    found = beginning(AT, OTHER, bounds)
    assert found.sequences == (0, 2, 0)
    assert ONE in found.losses[0]
    assert OTHER in found.losses[0]
    (loss,) = beginning(AT, ONE, bounds[:2]).losses
    assert "had 3 partitions and has 2" in loss


def test_many_partitions_make_a_short_sentence() -> None:
    at = MapPosition("orders", ONE, (5,) * 271, ("",) * 271)
    (loss,) = beginning(at, ONE, [Bounds(9, 12)] * 271).losses
    assert "and 266 more partitions" in loss


def test_tasks_share_out_all_ranges_always_in_the_same_way() -> None:
    wanted = [JournalRange(number, 0, number + 1, "", "") for number in range(10)]
    shared = tasks(ONE, wanted, 3)
    assert sorted(one for task in shared for one in task.ranges) == wanted
    assert shared == tasks(ONE, list(reversed(wanted)), 3)
    sizes = [sum(one.end - one.start for one in task.ranges) for task in shared]
    assert max(sizes) - min(sizes) <= 2
    assert len(tasks(ONE, wanted[:2], 3)) == 2
