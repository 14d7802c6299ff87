"""Which test files begin first: those that take longest, so that no worker is left with one at the
end. A file stays on one worker: its tests share servers, and some share names.

    python integration_tests/support/balance.py REPORT.xml ...

takes the seconds in reports of `pytest --junitxml` (setup and teardown included) into
durations.json, and prints the minutes of each group. Files that are in no report keep theirs.
Files without seconds begin first, for they may be long.
"""

from __future__ import annotations

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first, if they are given out to workers."""
    if hasattr(config, "workerinput"):
        known = {file: sum(tests.values()) for file, tests in read().items()}
        items.sort(key=lambda item: -known.get(item.nodeid.split("::")[0], math.inf))


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
    """Write the seconds of these reports over what is known of their files."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for report in reports:
        for file, test, seconds in seconds_of(report):
            found[file][test if seconds >= LONG_S else ""] += seconds
    known = {file: tests for file, tests in read().items() if (ROOT / file).exists()}
    known.update(found)
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
