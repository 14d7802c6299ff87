"""Where recorded batches began and ended, and whether starts are unambiguous. No I/O.

Spark tells a source where a batch starts, and not which batch it is. So a source can repeat the
batches after a snapshot only if each of them started, for each source, somewhere else. The sink
asks here before it passes over a snapshot, and the source answers Spark by the same function.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

from ...core.offsets import (
    Offsets,
    Position,
    decode_position,
    encode_position,
    encode_text,
    names,
)

NOTHING_READ = "-"  # Spark's word for a source that has read nothing yet
# Of a source with a name (`DataStreamReader.name()`, Spark 4.2 and newer) the name comes first.
_NAMED = re.compile(r"([A-Za-z0-9_]+):(.*)", re.DOTALL)


class Ambiguous(Exception):
    """The recorded batches cannot be told apart by where they started; the end of a sentence."""


class NotOurs(Ambiguous):
    """The line of a source that does not look at what is recorded, and would not follow."""


def next_ends(batches: Iterable[Sequence[str]], *, once: bool = False) -> Mapping[str, Position]:
    """Where a batch ended, by where it started (`encode_text`), from the lines of consecutive
    batches, one a source. Raises Ambiguous unless every source of every batch is found by that.
    `once`: they are followed once, and the rows compared. So a source may stay where it is, and
    partitions may come."""
    found: dict[str, Position] = {}
    for before, after in pairwise(map(by_name, batches)):
        if len(before) != len(after):
            raise Ambiguous(f"there were {len(before)} sources, and are {len(after)} now")
        if [name_of(line) for line in before] != [name_of(line) for line in after]:
            raise Ambiguous("a source came, and another one went")
        for (start, *_), end in zip(map(ends_of, before), map(ends_of, after), strict=True):
            if start == end.offsets and not once:
                raise Ambiguous(f"a source stayed at {encode_text(start)}")
            if not once and end.anew:  # and what came before cannot be repeated
                raise Ambiguous(f"topic '{min(end.anew)}' was made again")
            if not once and (changed := start.keys() ^ end.offsets.keys()):
                raise Ambiguous(f"{names(changed)} came or went, and its beginning is not recorded")
            if found.setdefault(encode_text(start), end) != end:
                raise Ambiguous(f"two batches started at {encode_text(start)}")
    return found


def name_of(line: str) -> str:
    """The name of the line's source; "" if it has none, and is known by its place."""
    return _split(line)[0]


def by_name(lines: Sequence[str]) -> Sequence[str]:
    """The lines of one batch in an order that does not change: sources with names have none."""
    return sorted(lines, key=name_of)  # it keeps the order of those without


def _split(line: str) -> tuple[str, str]:
    """The source's name, and its offsets."""
    named = _NAMED.fullmatch(line)
    return (named[1], named[2]) if named else ("", line)


def is_of_nothing(line: str) -> bool:
    """Whether the source has read nothing yet, so that its line does not tell what it reads."""
    return _split(line)[1] == NOTHING_READ


def without_marks(line: str) -> str:
    """The line as short as it can be, for a person: Kafka offsets as 'startingOffsets' takes
    them."""
    name = name_of(line)
    try:
        return f"{name}:" * bool(name) + encode_text(position_of(line))
    except ValueError:
        return "".join(line.split())


def topics_of(line: str) -> set[str]:
    """The topics in a line of Spark's offset log; none of a source that is not Kafka."""
    try:
        return {at.topic for at in position_of(line)}
    except ValueError:
        return set()


def position_of(line: str) -> Offsets:
    """Where the line's source stands, whoever's it is. Raises ValueError if it is not Kafka."""
    return decode_position(_split(line)[1]).offsets


def ids_of(lines: Iterable[str]) -> dict[str, str]:
    """The ids of the topics that the lines say they are of."""
    found: dict[str, str] = {}
    for line in lines:
        with suppress(ValueError):
            found.update(decode_position(_split(line)[1]).ids)
    return found


def begins_of(lines: Sequence[str]) -> tuple[str, ...]:
    """Where a first batch begins that ends as the lines say, a line each; none unless all say it.
    A partition of which that is not kept begins where it ends."""
    found = []
    for line in lines:
        name, offsets = _split(line)
        try:
            end = decode_position(offsets)
        except ValueError:
            return ()
        if not end.begins:
            return ()
        start = Position({**end.offsets, **end.begins}, ids=end.ids)
        found.append(f"{name}:" * bool(name) + json.dumps(encode_position(start)))
    return tuple(found)


def continued_from(line: str) -> str | None:
    """The ledger where its source says that it started at the end of the query before; None of a
    source that says nothing of the kind."""
    try:
        return decode_position(_split(line)[1]).continues
    except ValueError:
        return None


def end_of_topics(lines: Iterable[str], topics: Collection[str]) -> Offsets | None:
    """Where the source of `topics` ended; None unless exactly one place can be meant."""
    known = {line: topics_of(line) for line in lines}
    all_mine = [line for line in known if known[line] and known[line] <= {*topics}]
    mine = [position_of(line) for line in all_mine]
    return mine[0] if mine and all(end == mine[0] for end in mine) else None


def is_replayable(line: str) -> bool:
    """Whether equal lines mean equal records: those of our sources, and of Spark's own for Kafka.
    A file source's, say, are numbers of a log that may name other files on another disk."""
    if is_of_nothing(line):
        return True
    try:
        position_of(line)
    except ValueError:
        return _is_of_a_map(_split(line)[1])
    return True


def same_lines(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether all sources stand at the same place, whoever wrote the lines: Spark's own source for
    Kafka writes them without spaces."""
    return len(one) == len(other) and all(map(_is_same, by_name(one), by_name(other)))


def _is_same(one: str, other: str) -> bool:
    (mine, here), (theirs, there) = _split(one), _split(other)
    try:
        return mine == theirs and (here == there or position_of(one) == position_of(other))
    except ValueError:
        return False


def _is_of_a_map(line: str) -> bool:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() in (
        {"map", "cluster", "sequences", "anchors"},  # sources/maps: an IMap's journal
        {"map", "offsets", "caughtUp"},  # a topic as a map
        {"map", "offsets", "caughtUp", "removalsKept"},
    )


def ends_of(line: str) -> Position:
    """The position in a line of Spark's log. Raises NotOurs, also for those of Spark's own Kafka
    source: it writes the same ones without spaces."""
    _, offsets = _split(line)
    try:
        found = decode_position(offsets)
    except ValueError as error:
        raise NotOurs(f"the offsets of a source {error}") from None
    if offsets != json.dumps(encode_position(found)):
        raise NotOurs("the offsets of a source were not written by format 'eo-kafka'")
    return found
