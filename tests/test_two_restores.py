"""Two restores of one folder at the same time: the later one goes on, and the earlier one harms
nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eo_kafka.errors import CheckpointError
from eo_kafka.state.snapshots.checkpoint import Checkpoint, LocalCheckpoint, open_checkpoint
from eo_kafka.state.snapshots.snapshot import RESTORING
from eo_kafka.state.snapshots.writing_back import Claim

SNAPSHOT = ("offsets/7", "state/0/0/7.delta", "metadata")
TAKEN = "Another restore has taken over"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def fill(checkpoint: Checkpoint, *paths: str) -> None:
    for path in paths:
        checkpoint.write(path, [b"restored"])


def restore_and_run(url: str) -> set[str]:
    """What is there when its query has run for a while."""
    other = open_checkpoint(url)
    claim = Claim(other)
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
        Claim(stopped)
    assert set(dead.paths()) == live
    assert len(live) > 10


@pytest.mark.parametrize("ended", [False, True])
def test_one_that_ends_late_takes_no_marker_away_but_its_own(folder: Path, ended: bool) -> None:
    first = open_checkpoint(str(folder))
    claim = Claim(first)
    fill(first, "offsets/7", "state/0/0/7.delta")
    claim.check()
    second = open_checkpoint(str(folder))
    other = Claim(second)
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
    stopped = Stopped(folder, "finish", lambda: others.append(Claim(open_checkpoint(str(folder)))))
    claim = Claim(stopped)
    fill(stopped, *SNAPSHOT)
    with pytest.raises(CheckpointError, match=TAKEN):
        claim.finish()
    assert RESTORING in stopped.paths()
    others[0].finish()
