"""Whether rows of one input partition kept their order. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

V = TypeVar("V")
Place = tuple[int, int]  # partition and offset


def out_of_order(input_: Mapping[V, Place], output: Iterable[tuple[int, int, V]]) -> list[str]:
    """A sentence for each row that stands behind a later one of its input partition, in the same
    output partition. `output` are partition, offset and row, in the order of the log; rows that
    the input does not have are passed over."""
    newest: dict[Place, tuple[int, Place]] = {}
    found = []
    for to, at, row in output:
        if row not in input_:
            continue
        partition, offset = input_[row]
        before, other = newest.get((partition, to), (-1, (to, at)))
        if offset < before:
            found.append(
                f"input {partition}:{before} stands at output {other[0]}:{other[1]}, "
                f"and the earlier {partition}:{offset} behind it at {to}:{at}"
            )
        else:
            newest[partition, to] = (offset, (to, at))
    return found
