"""Which test files begin first: those that take longest, so that no worker is left with one at the
end. A file stays on one worker: its tests share servers, and some share names.

And which tests take turns: of those that take over three seconds, `--turn 0` runs every third one,
and `--turn 1` and `--turn 2` the others. CI does one turn a day. Tests of the smoke set, and tests
that nobody has measured, have no turns.

    python integration_tests/support/balance.py REPORT.xml ...

takes the seconds in reports of `pytest --junitxml` (setup and teardown included) into
durations.json, and prints the minutes of each group. Tests that are in no report keep theirs, as
those of other turns, for as long as their file has a function of that name.
Files without seconds begin first, for they may be long.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DURATIONS = ROOT / "integration_tests" / "durations.json"
LONG_S = 1.0  # tests that take less are added up, under no name
IN_TURNS_S = 3.0
TURNS = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `.ci/run` gives."""
    parser.addoption(
        "--turn",
        type=int,
        choices=range(TURNS),
        help=f"of the tests that take over {IN_TURNS_S:g} s, run only one in {TURNS}",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first, if they are given out to workers."""
    known = read()
    if (turn := config.getoption("--turn")) is not None:
        others = _other_turns(known, turn)
        waits = [_place(one) in others and not one.get_closest_marker("smoke") for one in items]
        config.hook.pytest_deselected(items=[*itertools.compress(items, waits)])
        items[:] = [item for item, left_out in zip(items, waits, strict=True) if not left_out]
    if hasattr(config, "workerinput"):
        of_files = {file: sum(tests.values()) for file, tests in known.items()}
        items.sort(key=lambda item: -of_files.get(_place(item)[0], math.inf))


def _place(item: pytest.Item) -> tuple[str, str]:
    return item.nodeid.split("::")[0], item.name


def _other_turns(known: dict[str, dict[str, float]], turn: int) -> set[tuple[str, str]]:
    """By their seconds, so that all turns take as long."""
    in_turns = sorted(
        (-seconds, file, test)
        for file, tests in known.items()
        for test, seconds in tests.items()
        if test and seconds >= IN_TURNS_S
    )
    others = (one for at, one in enumerate(in_turns) if at % TURNS != turn)
    return {(file, test) for _, file, test in others}


def read() -> dict[str, dict[str, float]]:
    """Seconds by file and test."""
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


def seconds_of(report: Path) -> Iterator[tuple[str, str, float]]:
    """(file, test, seconds) of each test in a report."""
    for case in ET.parse(report).iter("testcase"):
        if case.find("skipped") is None:
            module = case.get("classname", "").split(".")
            while module and not ROOT.joinpath(*module).with_suffix(".py").exists():
                module.pop()  # a class
            if module:
                yield "/".join(module) + ".py", case.get("name", ""), float(case.get("time", 0))


def take(reports: list[Path]) -> None:
    """Write the seconds of these reports over what is known of their tests."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for report in reports:
        for file, test, seconds in seconds_of(report):
            found[file][test if seconds >= LONG_S else ""] += seconds
    known = {file: tests for file, tests in read().items() if (ROOT / file).exists()}
    for file, tests in found.items():
        text = (ROOT / file).read_text()
        others = {
            one: s for one, s in known.get(file, {}).items() if f"def {one.split('[')[0]}(" in text
        }
        known[file] = {**others, **tests}
    rounded = {
        file: {test: round(seconds, 1) for test, seconds in sorted(tests.items())}
        for file, tests in sorted(known.items())
    }
    DURATIONS.write_text(json.dumps(rounded, indent=0) + "\n")


def minutes_of_groups() -> dict[str, float]:
    """All its tests one after the other, by group."""
    found: dict[str, float] = defaultdict(float)
    for file, tests in read().items():
        group = "unit" if file.startswith("tests/") else file.split("/")[1]
        found[group] += sum(tests.values()) / 60
    return dict(found)


if __name__ == "__main__":
    take([Path(name) for name in sys.argv[1:]])
    for group, minutes in minutes_of_groups().items():
        print(f"{group:8} {minutes:5.1f} minutes of one worker")
