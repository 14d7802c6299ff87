"""How many tasks ran at once, and where the driver's other processes find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eo_kafka.core.process.moment import Moment
from eo_kafka.core.process.task_slots import Span, learn, most_at_once, tell, told


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    return tmp_path


@pytest.mark.parametrize(
    ("spans", "most"),
    [
        ([], 0),
        ([("a", 0, 1)], 1),
        ([("a", 0, 1), ("a", 1, 2), ("a", 2, 3)], 1),  # one after the other in one slot
        ([("a", 0, 3), ("a", 1, 2), ("a", 2, 4)], 2),
        ([("a", 0, 9), ("a", 1, 8), ("a", 2, 7), ("a", 10, 11)], 3),
        (
            [("a", 0, 1), ("b", 500, 501), ("b", 500.5, 502)],
            3,
        ),  # clocks that have nothing in common
    ],
)
def test_the_most_that_ran_at_once(spans: list[tuple[str, float, float]], most: int) -> None:
    assert most_at_once(Span(*span) for span in spans) == most


def test_a_span_is_on_the_clock_of_its_machine() -> None:
    began = Moment.now()
    span = Span.since(began)

    assert (span.machine, span.began) == (began.machine, began.seconds)
    assert began.seconds <= span.ended <= Moment.now().seconds


def test_the_highest_number_is_kept(directory: Path) -> None:
    assert told() is None
    for seen, kept in ((0, None), (2, 2), (1, 2), (5, 5)):
        tell(seen)
        assert told() == kept
    assert len(list(directory.iterdir())) == 1


def test_few_tasks_say_nothing_of_how_many_could_run(directory: Path) -> None:
    """Of one topic partition, say, or behind `repartition(2)`: another query may have many."""
    learn([])
    learn([Span("a", 0, 1)])
    learn([Span("a", 0, 1), Span("a", 0, 1)])
    learn([Span("a", number // 2, number // 2 + 1) for number in range(8)])
    assert told() is None
    learn([Span("a", number // 2, number // 2 + 1) for number in range(9)])
    assert told() == 2
    learn([Span("a", 0, 1)] * 8)  # a batch that was planned by it, on a cluster that has grown
    assert told() == 8


def test_where_there_is_no_place_for_it_nothing_is_known(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "eo-kafka-task-slots").write_text("half a")
    assert told() is None
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(directory / "gone"))
    tell(3)
    assert told() is None
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    tell(3)
    assert told() is None
