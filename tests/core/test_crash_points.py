"""The names of crash points: those in the code and those that tests may arm are the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from eo_kafka.core import crash_points

ROOT = Path(__file__).parents[2]
PACKAGES = ("connectors", "sources", "sinks", "state", "clients", "core", "targets")


def calls(function: str) -> Iterator[ast.expr]:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == function:
                    yield node.args[0]


def test_names_are_written_out() -> None:
    found = list(calls("crash_point"))

    assert found
    assert all(isinstance(name, ast.Constant) for name in found)


def test_every_name_in_the_code_is_a_point_and_every_point_is_in_the_code() -> None:
    used = {ast.literal_eval(name) for name in calls("crash_point")}

    assert used == crash_points.POINTS


def test_only_points_are_asked_for() -> None:
    assert {ast.literal_eval(name) for name in calls("armed")} <= crash_points.POINTS


def test_an_armed_point_acts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_points, "FOLDER", str(tmp_path))
    (tmp_path / "S1.after_fence").write_text("raise")

    with pytest.raises(crash_points.CrashPointReached):
        crash_points.crash_point("S1.after_fence")
    crash_points.crash_point("S1.after_fence")
    assert (tmp_path / "S1.after_fence.reached").exists()


def test_an_unknown_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_points, "FOLDER", str(tmp_path))

    with pytest.raises(ValueError, match="not a crash point"):
        crash_points.crash_point("S9.nowhere")
