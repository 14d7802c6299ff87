# mypy: ignore-errors
"""Compiled loop that gathers what slots point at into one buffer."""

from __future__ import annotations

from ...core.compiled import compiled, copy, i64


@compiled
def gather(count, data, spare, starts, sizes, target):
    """Pieces one behind the other: of `data` from a start >= 0 on, else of `spare` from -1 - start
    on. All but `count` are addresses."""
    for row in range(count):
        start, size = i64(starts + 8 * row), i64(sizes + 8 * row)
        copy(target, data + start if start >= 0 else spare - 1 - start, size)
        target += size
