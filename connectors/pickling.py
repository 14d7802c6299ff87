"""Errors of writers that check things while Spark pickles them for the tasks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pickle import PickleError
from typing import Any, TypeAlias, TypeVar

from ..core.errors import EoKafkaError

Writer = TypeVar("Writer")
GetState: TypeAlias = Callable[[Writer], dict[str, Any]]


def tells_errors(getstate: GetState[Writer]) -> GetState[Writer]:
    """For `__getstate__`: its EoKafkaErrors reach the user by their own names, once. Spark's
    serializer prints what is raised while it pickles and raises a PicklingError in its place,
    unless that is a PickleError; so ours become PickleErrors, too. Driver, once a batch."""

    @functools.wraps(getstate)
    def told(writer: Writer) -> dict[str, Any]:
        try:
            return getstate(writer)
        except EoKafkaError as error:
            if not isinstance(error, PickleError):
                kind = type(error)
                told_as = {
                    "__module__": kind.__module__,
                    "__qualname__": kind.__qualname__,
                    "__reduce__": lambda told: (kind, *kind.__reduce__(told)[1:]),
                }
                error.__class__ = type(kind.__name__, (kind, PickleError), told_as)
            raise

    return told
