# mypy: ignore-errors
"""Compiled loop that gathers what slots point at into one buffer."""

from __future__ import annotations

from ...core.compiled import copy, i64, part


@part
def gather(count, data, starts, sizes, target):
    """Pieces of `data` one behind the other. All but `count` are addresses."""
    for row in range(count):
        start, size = i64(starts + 8 * row), i64(sizes + 8 * row)
        copy(target, data + start, size)
        target += size
