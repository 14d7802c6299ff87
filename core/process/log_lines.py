"""Gives our warnings time and level where nobody configured logging, as in Spark's Python workers.

Python prints such warnings bare. As soon as the program, or Spark, has a handler of its own for
them, this one is silent; the root logger is left alone.
"""

from __future__ import annotations

import logging
import sys

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME = "%y/%m/%d %H:%M:%S"  # as in Spark's lines, between which these stand


class _LastResort(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter(_FORMAT, _TIME))

    def emit(self, record: logging.LogRecord) -> None:
        others = [*logging.getLogger().handlers, *_ours.handlers]
        if others != [self] or sys.stderr is None:
            return
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:
            self.handleError(record)


_ours = logging.getLogger(__name__.partition(".")[0])


def show_time_and_level() -> None:
    """Once a process, when anything of ours that may warn is imported."""
    if not any(isinstance(handler, _LastResort) for handler in _ours.handlers):
        _ours.addHandler(_LastResort())


def show_from(level: int) -> None:
    """Our lines from this level on, in a program of ours: on stderr, with time and level."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT, _TIME))
    _ours.addHandler(handler)
    _ours.setLevel(level)
    _ours.propagate = False
