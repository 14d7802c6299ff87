"""How `eo-kafka watch` fills a terminal."""

from __future__ import annotations

import pytest
from ui_world import NOW, job

from eo_kafka.tools.jobs import report
from eo_kafka.tools.jobs.watch import _rows


def test_where_there_is_no_room_the_least_is_left_out():
    found = [job("a-job-with-a-name-of-its-own", said="me")]
    wide = report.listing(found, NOW)
    room = max(map(len, wide.splitlines()))
    assert report.listing(found, NOW, room) == wide
    for width, missing in ((room - 1, {"format"}), (80, {"format", "oldest", "snapshot"})):
        titles = report.listing(found, NOW, width).split("\n")[0].split()
        assert set(report.TITLES) - set(titles) == missing


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("", [""]),
        ("job    state  batch", ["job    state  batch"]),
        ("job    state  batch   written", ["job    state  batch "]),
        ("  No Kafka broker is reached.", ["  No Kafka broker is", "  reached."]),
    ],
)
def test_a_table_is_cut_and_a_sentence_goes_on_below(line: str, rows: list[str]) -> None:
    assert _rows(line, 20) == rows
