"""The two worked examples of docs/targets.md keep what a target promises, against the real thing;
and `check_target` finds what breaks a promise."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from eo_kafka.testing import check_target, target_suite
from target_places import DELTA, REDIS, SCHEMA, delta_rows, redis_server  # noqa: F401


def rows(number: int) -> pa.Table:
    ids = [number * 100 + n for n in range(20)]
    return pa.table({"id": ids, "word": [f"é {n}\n" for n in ids]}, schema=SCHEMA)


@pytest.mark.timeout(300)
def test_redis_keeps_its_promises(redis_server):  # noqa: F811
    settings = {"url": redis_server.url, "list": "orders"}

    def shown():
        return [
            tuple(json.loads(row).values()) for row in redis_server.client.lrange("orders", 0, -1)
        ]

    check_target(REDIS, settings, rows, shown, kills=6)


@pytest.mark.timeout(300)
def test_delta_keeps_its_promises(tmp_path):
    DeltaTable.create(str(tmp_path / "orders"), SCHEMA)
    path = str(tmp_path / "orders")
    check_target(DELTA, {"path": path}, rows, lambda: delta_rows(path), kills=6)


BREAKS = {
    "shows_at_once": "staged rows must not be shown",
    "forgets_the_marker": "the marker is what `apply` was given",
    "looks_at_no_marker": "`apply` must raise MarkerChanged: the marker is another one",
    "takes_what_is_there": "`apply` must raise NotStaged: a chunk is missing",
    "marker_first": "a kill must leave rows and marker of the same moment",
    "no_lock": "of two drivers with the same marker one must win",
    "discards_what_is_shown": "`discard` must not take away what is shown",
    "one_for_all": "another writer has a marker of its own",
    "any_marker": "`apply` must raise MarkerChanged: the marker is another one",
    "first_name_only": "`apply` must show the rows, each once",
    "cuts_the_marker": "the marker is what `apply` was given",
    "discards_more": "`discard` must remove its names alone",
    "slow_then_torn": "a kill must leave rows and marker of the same moment",
    "makes_floats": "`apply` must show the rows, each once",
}


@pytest.mark.parametrize("broken", BREAKS)
@pytest.mark.timeout(300)
def test_a_broken_promise_is_named(tmp_path, broken):
    (tmp_path / "shown").mkdir()
    settings = {"path": str(tmp_path), "broken": broken}

    def shown():
        for file in (tmp_path / "shown").iterdir():
            yield from ((row["id"], row["word"]) for row in json.loads(file.read_text()))

    with pytest.raises(AssertionError) as failed:
        check_target("file_target:FileTarget", settings, rows, shown, kills=12)
    assert BREAKS[broken] in str(failed.value)


@pytest.mark.parametrize("settings", [{}, {"server": "yes"}], ids=["alone", "with a server"])
@pytest.mark.timeout(300)
def test_the_same_unbroken_keeps_its_promises(tmp_path, settings):
    """A server may have got a request whose process is killed: it comes true later."""
    (tmp_path / "shown").mkdir()

    def shown():
        for file in (tmp_path / "shown").iterdir():
            yield from ((row["id"], row["word"]) for row in json.loads(file.read_text()))

    given = {"path": str(tmp_path), **settings}
    check_target("file_target:FileTarget", given, rows, shown, kills=8)


def test_without_rows_nothing_is_tried(tmp_path):
    settings = {"path": str(tmp_path)}
    with pytest.raises(AssertionError, match=r"rows\(100\) gave no rows"):
        check_target("file_target:FileTarget", settings, lambda n: rows(n)[:0], list, kills=1)


def test_without_a_kill_while_it_applies_nothing_was_tried(tmp_path, monkeypatch):
    (tmp_path / "shown").mkdir()

    def killed_before(_suite, process, _seconds):
        process.kill()
        process.communicate()
        return False

    monkeypatch.setattr(target_suite, "MORE_KILLS", 1)
    monkeypatch.setattr(target_suite._Suite, "_killed_inside", killed_before)

    def shown():
        for file in (tmp_path / "shown").iterdir():
            yield from ((row["id"], row["word"]) for row in json.loads(file.read_text()))

    staged = tmp_path / "staged"
    staged.mkdir()
    settings = {"path": str(tmp_path)}
    suite = target_suite._Suite("file_target:FileTarget", settings, rows, shown, staged)
    with pytest.raises(AssertionError, match="none of 2 kills came while `apply` ran"):
        suite.check_kills(1, random.Random(1))
