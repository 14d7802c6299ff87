"""Two restores of one folder, at the same time or the one after the other has died: the later one
goes on, and the earlier one harms nothing. What is of another job, or of a start-from, stays."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eo_kafka.errors import CheckpointError, CheckpointUnreadable
from eo_kafka.state.snapshots.checkpoint import Checkpoint, LocalCheckpoint, open_checkpoint
from eo_kafka.state.snapshots.snapshot import RESTORING
from eo_kafka.state.snapshots.writing_back import Claim, Purpose, check_nothing_left, filling

SNAPSHOT = ("offsets/7", "state/0/0/7.delta", "metadata")
MINE = Purpose("firsts")
FROM_EXPORT = Purpose("firsts", "old", "monday")
TAKEN = "Another restore has taken over"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def fill(checkpoint: Checkpoint, *paths: str) -> None:
    for path in paths:
        checkpoint.write(path, [b"restored"])


def restore_and_run(url: str) -> set[str]:
    """What is there when its query has run for a while."""
    other = open_checkpoint(url)
    claim = Claim(other, MINE)
    fill(other, *SNAPSHOT)
    claim.finish()
    live = [f"{kind}/{batch}" for batch in range(8, 12) for kind in ("offsets", "commits")]
    fill(other, *live, *(f"state/0/0/{batch}.delta" for batch in range(8, 12)))
    return set(other.paths())


class Stopped(LocalCheckpoint):
    """Stands still before one of its calls, while `meanwhile` happens."""

    def __init__(self, folder: Path, at: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(str(folder), folder)
        self._at, self._meanwhile = at, meanwhile

    def _pause(self, name: str) -> None:
        if name == self._at:
            self._at = ""
            self._meanwhile()

    def is_empty(self) -> bool:
        found = super().is_empty()
        self._pause("is_empty")
        return found

    def clear(self, marker: str, check: Callable[[], object] = lambda: None) -> None:
        self._pause("clear")

        def removing() -> None:
            if (self._root / "offsets/7").exists():
                self._pause("removing")
            check()

        super().clear(marker, removing)

    def finish(self, marker: str, check: Callable[[], object] = lambda: None) -> None:
        self._pause("finish")
        super().finish(marker, check)


@pytest.mark.parametrize("at", ["is_empty", "clear", "removing"])
def test_one_that_was_stopped_before_it_cleared_leaves_a_live_checkpoint(
    at: str, folder: Path
) -> None:
    dead = open_checkpoint(str(folder))
    fill(dead, RESTORING, "offsets/7", "state/0/0/7.delta", "state/0/1/7.delta")
    live: set[str] = set()
    stopped = Stopped(folder, at, lambda: live.update(restore_and_run(str(folder))))
    with pytest.raises(CheckpointError, match="is not empty" if at == "is_empty" else TAKEN):
        Claim(stopped, MINE)
    assert set(dead.paths()) == live
    assert len(live) > 10


@pytest.mark.parametrize("ended", [False, True])
def test_one_that_ends_late_takes_no_marker_away_but_its_own(folder: Path, ended: bool) -> None:
    first = open_checkpoint(str(folder))
    claim = Claim(first, MINE)
    fill(first, "offsets/7", "state/0/0/7.delta")
    claim.check()
    second = open_checkpoint(str(folder))
    other = Claim(second, MINE)
    if ended:
        fill(second, *SNAPSHOT)
        other.finish()
    for step in (claim.check, claim.finish, claim.clear):
        with pytest.raises(CheckpointError, match=TAKEN):
            step()
    assert (RESTORING in second.paths()) is not ended
    if not ended:
        other.finish()


def test_one_that_is_taken_over_in_its_last_moment_stops(folder: Path) -> None:
    others: list[Claim] = []
    again = open_checkpoint(str(folder))
    stopped = Stopped(folder, "finish", lambda: others.append(Claim(again, MINE)))
    claim = Claim(stopped, MINE)
    fill(stopped, *SNAPSHOT)
    with pytest.raises(CheckpointError, match=TAKEN):
        claim.finish()
    assert RESTORING in stopped.paths()
    others[0].finish()


@pytest.mark.parametrize(
    ("left", "comes", "way"),
    [
        (FROM_EXPORT, MINE, "start-from old monday --job firsts --checkpoint"),
        (FROM_EXPORT, replace(FROM_EXPORT, export="sunday"), "start-from old monday --job firsts"),
        (MINE, FROM_EXPORT, "snapshots restore firsts"),
        (Purpose("other"), MINE, "snapshots restore other"),
    ],
)
@pytest.mark.parametrize("works", [True, False])
def test_what_is_left_of_something_else_is_not_taken_over(
    left: Purpose, comes: Purpose, way: str, works: bool, folder: Path
) -> None:
    checkpoint = open_checkpoint(str(folder))
    claim = Claim(checkpoint, left)
    fill(checkpoint, "offsets/7", "state/0/0/7.delta")
    before = content_of(folder)
    with pytest.raises(CheckpointError, match=f"{way}.*delete the folder"):
        Claim(open_checkpoint(str(folder)), comes)
    assert content_of(folder) == before
    if works:
        claim.finish()
    else:
        assert Claim(open_checkpoint(str(folder)), left), "the same again goes on"
        assert set(content_of(folder)) == {RESTORING}


OLDER = [b"", b"12345678901234567890123456789012", b"0f1e", b"[1]", b'{"id":"1"}']


@pytest.mark.parametrize("marker", OLDER)
@pytest.mark.parametrize("purpose", [MINE, FROM_EXPORT])
def test_what_does_not_say_what_it_was_is_taken_over(
    marker: bytes, purpose: Purpose, folder: Path
) -> None:
    checkpoint = open_checkpoint(str(folder))
    checkpoint.write(RESTORING, [marker])
    fill(checkpoint, "offsets/7")
    Claim(checkpoint, purpose)
    assert set(content_of(folder)) == {RESTORING}


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        *((marker, "does not say of what.*has no snapshot.*start-from") for marker in OLDER),
        (MINE.marker(), "unfinished restore of job 'firsts'.*'firsts' has no snapshot here"),
        (FROM_EXPORT.marker(), "start-from old monday --job firsts' has not finished"),
    ],
    ids=[*(f"older {number}" for number in range(len(OLDER))), "restore", "start-from"],
)
def test_a_job_without_a_snapshot_begins_in_no_unfinished_folder(
    marker: bytes, said: str, folder: Path
) -> None:
    checkpoint = open_checkpoint(str(folder))
    check_nothing_left(checkpoint, "firsts")
    checkpoint.write(RESTORING, [marker])
    fill(checkpoint, "offsets/7")
    before = content_of(folder)
    with pytest.raises(CheckpointError, match=said):
        check_nothing_left(checkpoint, "firsts")
    assert content_of(folder) == before


@pytest.mark.parametrize("at", ["is_empty", "write", "open", "finish"])
@pytest.mark.parametrize(
    ("code", "passes"),
    [
        (errno.EIO, True),
        (errno.ESTALE, True),
        (errno.EACCES, False),
        (errno.ENOTDIR, False),
        (errno.ENOSPC, False),
        (errno.EROFS, False),
    ],
)
def test_a_store_that_fails_in_a_restore_is_asked_again_where_that_may_help(
    code: int, passes: bool, at: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`eo-kafka run` restarts what is retriable, and a restart begins the restore anew."""

    def fails(*given: object) -> None:
        raise OSError(code, os.strerror(code))

    checkpoint = open_checkpoint(str(folder))

    def restore() -> None:
        with filling(checkpoint):
            claim = Claim(checkpoint, MINE)
            fill(checkpoint, *SNAPSHOT)
            claim.check()
            claim.finish()

    with monkeypatch.context() as broken, pytest.raises(CheckpointError) as told:
        broken.setattr(LocalCheckpoint, at, fails)
        restore()
    assert isinstance(told.value, CheckpointUnreadable) is passes
    assert ("When its store answers" in str(told.value)) is passes
    restore()
    assert set(content_of(folder)) == set(SNAPSHOT)
