"""Readers and writers that tasks of another build of this package do not unpickle."""

from __future__ import annotations

from typing import Any, TypeVar

from ..core import build
from ..core.errors import EnvironmentRefused
from .plain_errors import hide_traceback

Face = TypeVar("Face", bound="OneBuild")


class OneBuild:
    """For what Spark pickles to tasks: it says which build made it, and says so first, so that
    nothing else of it is unpickled by another one. A version without this module has no function
    to unpickle it with, and its task fails, too."""

    _build: _Mark

    def __new__(cls: type[Face], *given: Any, **named: Any) -> Face:
        """Before `__init__` and before what was pickled: the mark is the first of its state."""
        made = super().__new__(cls)
        made._build = _Mark()
        return made


class _Mark:
    def __reduce__(self) -> tuple[Any, ...]:
        return _of_driver, (build.mark(),)


def _of_driver(mark: str) -> _Mark:
    try:
        build.check_drivers(mark)
    except EnvironmentRefused:
        hide_traceback()
        raise
    return _Mark()
