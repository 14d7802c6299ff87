"""What restores in this process took, for its metrics. No I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Restored:
    """A restore that was finished. `at_s`: since 1970, when it was. `size`: of all its files."""

    batch: int
    size: int
    seconds: float
    at_s: float


_newest: dict[str, Restored] = {}  # by job


def note(job: str, restored: Restored) -> None:
    """Keep it in place of the job's last one."""
    _newest[job] = restored


def newest() -> dict[str, Restored]:
    """Each job's last one."""
    return dict(_newest)
