"""A Delta table whose methods fail when a test says so: `sulk` writes which, and how."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import target_places  # noqa: F401 - the examples can be imported then

# isort: split
from delta_target import DeltaTarget

MOODY = "moody_target:MoodyTarget"


def sulk(path: str, method: str, how: str) -> None:
    """The next call of `method` fails: `before` or `after` it has done its part."""
    _mood(path).write_text(json.dumps([method, how]))


def is_in_mood(path: str) -> bool:
    """Whether it has failed as it should."""
    return not _mood(path).exists()


def _mood(path: str) -> Path:
    return Path(f"{path}.mood")


class MoodyTarget(DeltaTarget):
    """`target.path`: as of the table."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._at = options["path"]

    def __getattribute__(self, method: str) -> Any:
        found = super().__getattribute__(method)
        if method not in ("stage", "staged", "marker", "apply", "discard"):
            return found

        def moody(*given: Any) -> Any:
            file = _mood(self._at)
            which, how = json.loads(file.read_text()) if file.exists() else ("", "")
            if which != method:
                return found(*given)
            file.unlink()
            if how == "after":
                found(*given)
            raise RuntimeError(f"{method} is in a mood")

        return moody
