"""What the replay of a torn batch has to commit: not what is visible of it already. No I/O.

A replay may give the same rows to other tasks: Spark's own source for Kafka does with two to four
partitions. (It has a task for each in the order of a Scala Map, which up to four entries is that of
insertion, and from the offset log they come in another one.) So what is visible is looked for by
its content: of equal rows it does not matter which task brought them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ...core.transaction import Participant
from .committable import Torn


class Content(NamedTuple):
    """What a task brought; a digest of no rows is of no interest."""

    partition: int
    rows: int
    digest: str


class Replay(NamedTuple):
    """`visible`: the tasks whose rows are visible already. `unequal`: the partitions, of the batch
    as it was or as it is, whose rows the other one lacks; a replay with any must not be decided."""

    visible: frozenset[int]
    unequal: tuple[int, ...]


def compare(torn: Torn, brought: Iterable[Content]) -> Replay:
    """All that is visible must come back. So must the rest, and nothing more, of a batch that was
    decided; of one that was not nobody knows what else there was."""
    committed = torn.committed
    shown, lost = _contents(committed), _contents(torn.missing)
    # First those that wrote nothing, because it is just theirs that is visible.
    first = {(part.partition, part.rows, part.digest) for part in committed}
    with_rows = [one for one in brought if one.rows]
    visible, unequal = set(), []
    for one in sorted(with_rows, key=lambda one: one not in first):
        content = (one.rows, one.digest)
        if shown[content]:
            shown[content] -= 1
            visible.add(one.partition)
        elif lost[content]:
            lost[content] -= 1
        elif torn.decided:
            unequal.append(one.partition)
    left = shown + lost
    unequal += [p.partition for p in torn.decision.participants if left[p.rows, p.digest]]
    return Replay(frozenset(visible), tuple(sorted(set(unequal))))


def _contents(parts: Iterable[Participant]) -> Counter[tuple[int, str]]:
    return Counter((part.rows, part.digest) for part in parts)
