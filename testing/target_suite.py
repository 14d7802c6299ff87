"""`check_target`: whether a target of one's own keeps what `eo_kafka.targets.Target` promises."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..sinks.targets.custom import CustomTarget
from ..targets import MarkerChanged, NotStaged, Target
from .driver import python_path

if TYPE_CHECKING:
    import pyarrow as pa

PROGRAM_S = 120.0
Row = tuple[tuple[type, Any], ...]
MORE_KILLS = 10  # than asked for, while none of them has come in time


def check_target(
    reference: str,
    settings: Mapping[str, str],
    rows: Callable[[int], pa.Table],
    shown: Callable[[], Iterable[Any]],
    *,
    kills: int = 10,
    seed: int = 1,
) -> None:
    """Try a target out: what it promises, two drivers at once, and processes killed in the middle.

    Runs in a test of yours, on a place that nobody else writes; two to four seconds a kill.

    Args:
        reference: `module:class`, as in option `target`.
        settings: What it is made with: the options `target.*`.
        rows: Some rows for number 0, 1, 2, and so on; each is told from all others.
        shown: What readers see now: of each row a tuple of its columns' values. Their types count
            too: 1, 1.0 and True are three values.
        kills: How many processes are killed, at all moments of the time that one takes to apply.
        seed: Of when they are killed.

    Raises:
        AssertionError: It breaks a promise, or could not be tried; the sentence says which.

    Examples:
        >>> check_target("my_app.redis:RedisTarget", {"url": url}, rows, shown)
    """
    with tempfile.TemporaryDirectory() as folder:
        suite = _Suite(reference, settings, rows, shown, Path(folder))
        suite.check_promises()
        suite.check_two_at_once()
        suite.check_kills(kills, random.Random(seed))  # noqa: S311 - no secret


class _Suite:
    def __init__(
        self,
        reference: str,
        settings: Mapping[str, str],
        rows: Callable[[int], pa.Table],
        shown: Callable[[], Iterable[Any]],
        folder: Path,
    ) -> None:
        self._reference, self._settings, self._folder = reference, dict(settings), folder
        self._rows, self._shown = rows, shown
        self._number = 0
        self._writer = f"eo-{uuid.uuid4().hex[:16]}"
        self._target: Target = CustomTarget(reference, self._settings, (), True).made()
        self._expected = Counter(map(_plain, shown()))
        self._marker: str | None = None

    def check_promises(self) -> None:
        """One after the other, in this process; what is staged comes from another one."""
        target, writer = self._target, self._writer
        self._is(target.marker(writer), "a writer that has applied nothing has no marker")
        assert target.place == target.place, "`place` must stay the same"
        names, table = self._staged(2, 12)
        (name, _), (near, _) = names.items()
        self._check("staged rows must not be shown")
        assert dict(target.staged(writer)) == names, "`staged` must count what is staged"
        assert not target.staged(f"{writer[:-1]}-"), "`staged` must give this writer's names alone"
        self._refused({name: 3}, self._marker, NotStaged, "a chunk is missing")
        self._refused({**names, near: 13}, self._marker, NotStaged, "a chunk is missing")
        self._refused({f"{name}-x": 1}, self._marker, NotStaged, "a name is not staged")
        self._refused(names, "another", MarkerChanged, "the marker is another one")
        self._apply(names, table)
        self._refused({}, None, MarkerChanged, "the marker is there already")
        target.discard([name, f"{name}-x", near])
        self._check("`discard` must not take away what is shown")
        assert not target.staged(writer), "`discard` must remove what is staged"
        self._apply({}, None)
        names, _ = self._staged(1, 12)
        name, near = names
        self._refused(names, "another", MarkerChanged, "the marker is another one")
        target.discard([name])
        assert dict(target.staged(writer)) == {near: 12}, "`discard` must remove its names alone"
        target.discard(names)
        assert not target.staged(writer), "`discard` must remove what is staged"
        self._refused(names, self._marker, NotStaged, "it was discarded")
        self._check_another_writer(f"eo-{uuid.uuid4().hex[:16]}")

    def _check_another_writer(self, other: str) -> None:
        target = self._target
        self._is(target.marker(other), "another writer has a marker of its own")
        theirs, mine = _marker(), "one writer's marker must stay when another one applies"
        target.apply(other, {}, None, theirs.encode())
        self._is(target.marker(self._writer), mine, self._marker)
        self._apply({}, None)
        self._is(target.marker(other), mine, theirs)

    def check_two_at_once(self, rounds: int = 3) -> None:
        """Two processes apply the same rows on top of the same marker."""
        for _ in range(rounds):
            names, table = self._staged(1)
            after = _marker()
            asked = {"apply": [self._writer, names, self._marker, after]}
            both = [self._ready(asked) for _ in range(2)]
            for one in both:
                _go(one)
            said = sorted(map(_ended, both))
            assert said in (["MarkerChanged", "done"], ["NotStaged", "done"]), (
                "of two drivers with the same marker one must win, and the other one be told "
                f"(MarkerChanged or NotStaged): {', '.join(said)}"
            )
            self._expected += _counted(table)
            self._marker = after
            self._check("two drivers at once must not show rows twice, or none")
            self._is(self._target.marker(self._writer), "the winner's marker", after)

    def check_kills(self, kills: int, chance: random.Random) -> None:
        """A process is killed while it applies: all of it is shown with the marker, or nothing."""
        if not kills:
            return
        took, inside, tries = self._timed(), 0, 0
        while tries < kills or (not inside and tries < kills + MORE_KILLS):
            names, table = self._staged(2, 2)
            after = _marker()
            process = self._ready({"apply": [self._writer, names, self._marker, after]})
            # One in each part of the time, or a few may all come in the same one.
            moment = 1.2 * took * (tries % kills + chance.random()) / kills
            inside += self._killed_inside(process, moment)
            tries += 1
            self._check_killed(names, table, after)
            self._target.discard(names)
        if not inside:
            raise AssertionError(
                f"none of {tries} kills came while `apply` ran, so they have shown nothing: it "
                f"takes {took:.4f} s. Let rows(n) give more rows, or ask for more kills."
            )

    def _timed(self) -> float:
        """How many seconds it takes to apply, from the word on, when nobody disturbs it."""
        names, table = self._staged(2, 2)
        after = _marker()
        process = self._ready({"apply": [self._writer, names, self._marker, after]})
        began = time.monotonic()
        _go(process)
        said, told = process.communicate(timeout=PROGRAM_S)
        words = said.split()
        assert words[-1:] == ["done"], f"`apply` failed in a process of its own: {said}\n{told}"
        self._check_killed(names, table, after)
        assert self._marker == after, "`apply` must set the marker"
        self._target.discard(names)
        return float(words[-2]) - began  # one clock for all processes

    def _killed_inside(self, process: subprocess.Popen[str], seconds: float) -> bool:
        """Let it apply, and kill it so much later. Whether it was applying then."""
        _go(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()
        words = process.communicate(timeout=PROGRAM_S)[0].split()
        return words[-1:] == ["begin"]

    def _check_killed(self, names: Mapping[str, int], table: pa.Table, after: str) -> None:
        """And apply what the process has not applied."""
        before = None if self._marker is None else self._marker.encode()
        found = self._target.marker(self._writer)
        assert found in (before, after.encode()), "a kill must leave the old marker or the new"
        is_applied = found != before
        if is_applied:
            self._expected += _counted(table)
            self._marker = after
        try:
            self._check("a kill must leave rows and marker of the same moment")
            if not is_applied:
                self._apply(names, table)
        except (AssertionError, MarkerChanged):
            if is_applied or self._target.marker(self._writer) != after.encode():
                raise
            # The dead process's last request was on its way to a server, and came after our look.
            self._check_killed(names, table, after)

    def _staged(self, *chunks: int) -> tuple[dict[str, int], pa.Table]:
        """Names with so many chunks each, each name the beginning of the next."""
        import pyarrow as pa

        self._number += 1
        names = {
            f"{self._writer}-00000000-{self._number}-0-7{'0' * n}": of
            for n, of in enumerate(chunks)
        }
        tables: list[pa.Table] = []
        asked: list[list[object]] = []
        for name, of in names.items():
            for number in range(of):
                ask = 100 * self._number + len(tables)
                tables.append(self._rows(ask))
                assert tables[-1].num_rows, f"rows({ask}) gave no rows: nothing would be tried"
                path = self._folder / f"{name}-{number}.arrow"
                with (
                    pa.OSFile(str(path), "wb") as file,
                    pa.ipc.new_file(file, tables[-1].schema) as to,
                ):
                    to.write_table(tables[-1])
                asked.append([name, number, str(path)])
        process = self._ready({"stage": asked})
        _go(process)
        said = _ended(process)
        assert said == "done", f"rows could not be staged: {said}"
        return names, pa.concat_tables(tables)

    def _apply(self, names: Mapping[str, int], table: pa.Table | None) -> None:
        after = _marker()
        before = None if self._marker is None else self._marker.encode()
        self._target.apply(self._writer, names, before, after.encode())
        self._marker = after
        if table is not None:
            self._expected += _counted(table)
        self._check("`apply` must show the rows, each once")
        self._is(self._target.marker(self._writer), "the marker is what `apply` was given", after)

    def _refused(
        self, names: Mapping[str, int], before: str | None, error: type[Exception], why: str
    ) -> None:
        raw = None if before is None else before.encode()
        try:
            self._target.apply(self._writer, names, raw, b"never")
        except error:
            pass
        else:
            raise AssertionError(f"`apply` must raise {error.__name__}: {why}")
        self._check(f"a refused `apply` must change nothing ({why})")
        self._is(self._target.marker(self._writer), "a refused `apply` changes none", self._marker)

    def _check(self, promise: str) -> None:
        found = Counter(map(_plain, self._shown()))
        if found == self._expected:
            return
        missing, more = self._expected - found, found - self._expected
        raise AssertionError(
            f"{promise}. Not shown: {_told(missing)}; shown and should not be: {_told(more)}"
        )

    def _is(self, marker: bytes | None, promise: str, wanted: str | None = None) -> None:
        raw = None if wanted is None else wanted.encode()
        assert marker == raw, f"{promise}: it is {marker!r} and should be {raw!r}"

    def _ready(self, asked: Mapping[str, Any]) -> subprocess.Popen[str]:
        """A process that has made the target, and waits."""
        words = {"reference": self._reference, "settings": self._settings, **asked}
        process = subprocess.Popen(
            [sys.executable, "-m", "eo_kafka.testing.target_program", json.dumps(words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": python_path()},
        )
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise AssertionError(f"the target cannot be made:\n{process.communicate()[1]}")
        return process


def _marker() -> str:
    """As long as a real one, and with whatever a target may trip over."""
    return json.dumps({"id": uuid.uuid4().hex, "odd": "'\"\\;%s{}", "long": "x" * 300})


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def _ended(process: subprocess.Popen[str]) -> str:
    """The program's last word, or how it failed."""
    said, told = process.communicate(timeout=PROGRAM_S)
    words = said.split()
    return words[-1] if words and words[-1] != "begin" else f"it failed:\n{told}"


def _counted(table: pa.Table) -> Counter[Row]:
    return Counter(_plain(tuple(row.values())) for row in table.to_pylist())


def _plain(row: Any) -> Row:
    """With types: 1 == 1.0 == True in Python."""
    return tuple((type(value), value) for value in row)


def _told(rows: Counter[Row]) -> list[tuple[Any, ...]]:
    """The first few, for a message."""
    return [tuple(value for _, value in row) for row in itertools.islice(rows.elements(), 5)]
