"""Many drivers of two jobs at once, paused and killed anywhere, while readers look and somebody
removes old batches: what the marker says is shown, each row once, and nothing else ever was."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from eo_kafka.targets.files.home import home_of
from eo_kafka.targets.files.target import FilesTarget
from eo_kafka.testing.driver import python_path
from files_job import honest_rows, plain_rows, settings_of
from files_racer import WRITERS
from object_store import BUCKET, object_store

RACER = Path(__file__).parents[1] / "support" / "files_racer.py"
AT_ONCE = 4


@pytest.fixture(params=["directory", "object store"])
def path(request, tmp_path, monkeypatch) -> Iterator[str]:
    if request.param == "directory":
        yield str(tmp_path / "t")
        return
    with object_store(tmp_path) as store:
        for name, value in store.environment().items():
            monkeypatch.setenv(name, value)
        yield f"s3://{BUCKET}/races"


class Racers:
    """Some of them run, some are paused; each dies sooner or later."""

    def __init__(self, settings: dict[str, str], logs: Path) -> None:
        self._words = [sys.executable, str(RACER), json.dumps(settings)]
        self._logs, self._chance = logs, random.Random(3)
        self._running: list[subprocess.Popen[bytes]] = []
        self._paused: list[subprocess.Popen[bytes]] = []
        logs.mkdir()

    def turn(self) -> None:
        """Pause one, let another one go on, kill a third, and start one in its place."""
        while len(self._running) < AT_ONCE:
            with (self._logs / f"{len(list(self._logs.iterdir()))}").open("wb") as output:
                env = {**os.environ, "PYTHONPATH": python_path()}
                words = [*self._words, self._chance.choice(WRITERS)]
                started = subprocess.Popen(words, stdout=output, env=env)
            self._running.append(started)
        one, what = self._chance.choice(self._running), self._chance.random()
        time.sleep(self._chance.uniform(0, 0.05))  # when: anywhere in what it does
        if what < 0.5 and len(self._paused) < AT_ONCE:
            one.send_signal(signal.SIGSTOP)
            self._running.remove(one)
            self._paused.append(one)
        elif what < 0.9 and self._paused:
            woken = self._paused.pop(self._chance.randrange(len(self._paused)))
            woken.send_signal(signal.SIGCONT)
            self._running.append(woken)
        elif what > 0.95:
            self._running.remove(one)
            one.kill()
            one.wait(60)

    def told(self) -> set[int]:
        """The rows whose `apply` has returned."""
        lines = [line for log in self._logs.iterdir() for line in log.read_text().split("\n")[:-1]]
        return set(map(int, lines))

    def end(self) -> None:
        for one in (*self._running, *self._paused):
            one.kill()
            one.wait(60)


@pytest.mark.timeout(300)
def test_what_is_shown_is_what_the_marker_says_whoever_is_paused_or_killed(path, tmp_path):
    settings = settings_of(path)
    racers, target = Racers(settings, tmp_path / "racers"), FilesTarget(settings)
    applied: set[int] = set()
    removed: set[int] = set()
    turns, began_s = 0, time.monotonic()

    def has_seen_enough() -> bool:
        """On a busy machine most of them are killed before they have begun."""
        return turns > 20 and len(applied) > 20 and time.monotonic() > began_s + 20

    try:
        while not has_seen_enough():
            assert time.monotonic() < began_s + 240, (turns, applied)
            racers.turn()
            turns += 1
            applied = markers(target)
            seen = [row[0] for row in honest_rows(path)]
            later = markers(target)
            assert applied <= later, "what was applied stays"
            assert len(seen) == len(set(seen)), "a row was seen twice"
            assert applied - removed <= set(seen) <= later - removed
            if not path.startswith("s3:"):
                plain = [row[0] for row in plain_rows(path)]
                assert Counter(plain) == Counter(set(plain))
                removed |= _remove_old(path)
    finally:
        racers.end()
    applied = markers(target)
    shown = Counter(row[0] for row in honest_rows(path))
    assert shown == Counter(applied - removed)
    assert racers.told() <= applied
    assert len(applied) > 20
    assert turns > 20
    if not path.startswith("s3:"):
        assert removed


def markers(target: FilesTarget) -> set[int]:
    """All that they say was applied."""
    return {one for writer in WRITERS for one in json.loads(target.marker(writer) or b"[]")}


def _remove_old(path: str) -> set[int]:
    """All batches but the newest five; their rows."""
    old = sorted(Path(path).glob("batch=*"))[:-5]
    gone = {row[0] for folder in old for row in plain_rows_of(folder)}
    for folder in old:
        shutil.rmtree(folder)
    return gone


def plain_rows_of(folder: Path) -> list[tuple[object, ...]]:
    """Of one batch."""
    from pyarrow import parquet

    return [
        (number,)
        for file in folder.iterdir()
        for number in parquet.read_table(file, partitioning=None).column("id").to_pylist()
    ]


def test_a_home_is_known_by_its_path():
    assert home_of("/a/b/").place == home_of("file:///a/b").place == "directory /a/b"
    assert home_of("s3a://a/b/").place == home_of("s3://a/b").place == "object store s3://a/b"
