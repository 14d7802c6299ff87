"""What `benchmarks.peers` makes of what it saw: rates, commit intervals, goals and the page."""

from __future__ import annotations

import re

import pytest

from benchmarks.peers import page
from benchmarks.peers.contenders import BARE_COPY, EO_KAFKA, FLINK, LANE, OURS, QUIX, SPARK
from benchmarks.peers.environments import PeerMissing, installed
from benchmarks.peers.page import BARE, Goal, Results, goals
from benchmarks.peers.visible import Sample, Seen, seen


def changes(*points: tuple[float, int]) -> list[Sample]:
    return [Sample(seconds, offset) for seconds, offset in points]


def test_neither_the_start_nor_the_end_is_in_the_rate() -> None:
    slow_at_both_ends = changes((60, 50), (70, 200), (71, 400), (72, 600), (90, 950), (99, 1000))
    assert seen([slow_at_both_ends]) == Seen(rate=200, interval_s=1)


def test_partitions_are_added_up_each_by_its_own_commits() -> None:
    one = changes((0, 100), (2, 300), (4, 500), (9, 1000))
    other = changes((1, 1000), (3, 3000), (5, 5000), (9, 10_000))
    assert seen([one, other]) == Seen(rate=100 + 1000, interval_s=2)


@pytest.mark.parametrize("points", [[], [(1, 1000)], [(1, 200), (2, 800), (3, 1000)]])
def test_a_rate_needs_three_commits_in_the_middle(points: list[tuple[float, int]]) -> None:
    enough = changes((0, 100), (2, 300), (4, 500), (9, 1000))
    with pytest.raises(ValueError, match="too few"):
        seen([enough, changes(*points)])


def test_a_goal_is_judged_by_the_median_of_the_rounds() -> None:
    goal = Goal("ours", "theirs", 2.5)
    # within the rounds 2, 3 and 2.5 times as much, though the machine was ten times slower once
    met = {"ours": [200, 30, 250], "theirs": [100, 10, 100]}
    missed = {"ours": [200, 30, 240], "theirs": [100, 10, 100]}
    line = goal.line({100: met, 1000: missed})
    assert line == "| ours / theirs | 2.5 | 2.50 (2.00-3.00), met | 2.40 (2.00-3.00), **not met** |"
    line = Goal("ours", "theirs", (2.5, 2.4)).line({100: met, 1000: missed})
    assert line == "| ours / theirs | 2.5; 2.4 | 2.50 (2.00-3.00), met | 2.40 (2.00-3.00), met |"


@pytest.fixture
def results() -> Results:
    rates = {OURS: 500.0, LANE: 600.0, SPARK: 350.0, FLINK: 500.0, QUIX: 80.0, BARE_COPY: 1200.0}
    copies = {name: [Seen(rate, 1.25), Seen(rate, 1.25)] for name, rate in rates.items()}
    reads = {EO_KAFKA: [900.0, 700.0], BARE: [1000.0, 1000.0]}
    return Results({100: copies, 1000: copies}, {100: reads, 1000: reads})


def test_goals(results: Results) -> None:
    copies = {size: results.copy_rates(size) for size in results.copies}
    lines = goals(copies, results.reads).splitlines()
    assert [re.findall(r"(?<!not )met|not met", line) for line in lines[2:]] == [
        ["not met", "not met"],
        ["met", "met"],
        ["met", "met"],
        ["met", "not met"],
        ["not met", "met"],
        ["met", "met"],
    ]


def test_the_page_and_its_plots(results: Results, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    text = page.write({"cores": 2, "rounds": 2}, results, tmp_path)
    assert (tmp_path / "peers.md").read_text() == text
    assert "$" not in text, "a place of the template was left empty"
    assert "cores 2, rounds 2" in text
    assert f"{FLINK} 1.25 s" in text
    for plot in re.findall(r"\((\w+\.svg)\)", text):
        assert EO_KAFKA in (tmp_path / plot).read_text()


def test_few_rounds_are_called_a_first_look(results: Results) -> None:
    assert "first look" in page.render({"rounds": 2}, results)
    assert "first look" not in page.render({"rounds": 3}, results)


def test_a_python_that_flink_has_no_wheels_for_is_refused_at_once(tmp_path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 3 14\n")
    python.chmod(0o755)
    with pytest.raises(PeerMissing, match=r"needs Python 3.9 to 3.12, and of .*/python none is"):
        installed(str(python))
