"""Where recorded batches began and ended, and whether starts are unambiguous. No I/O.

Spark tells a source where a batch starts, and not which batch it is. So a source can repeat the
batches after a snapshot only if each of them started, for each source, somewhere else. The sink
asks here before it passes over a snapshot, and the source answers Spark by the same function.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from ...core.offsets import Offsets, decode, encode, encode_text, names


class Ambiguous(Exception):
    """The recorded batches cannot be told apart by where they started; the end of a sentence."""


class NotOurs(Ambiguous):
    """The line of a source that does not look at what is recorded, and would not follow."""


def next_ends(batches: Iterable[Sequence[str]]) -> Mapping[str, Offsets]:
    """Where a batch ended, by where it started (`encode_text`), from the lines of consecutive
    batches, one a source. Raises Ambiguous unless every source of every batch is found by that."""
    found: dict[str, Offsets] = {}
    for before, after in pairwise(batches):
        if len(before) != len(after):
            raise Ambiguous(f"there were {len(before)} sources, and are {len(after)} now")
        for start, end in zip(map(ends_of, before), map(ends_of, after), strict=True):
            if start == end:
                raise Ambiguous(f"a source stayed at {encode_text(end)}")
            if changed := start.keys() ^ end.keys():
                raise Ambiguous(f"{names(changed)} came or went, and no line says where it began")
            if found.setdefault(encode_text(start), end) != end:
                raise Ambiguous(f"two batches started at {encode_text(start)}")
    return found


def is_replayable(line: str) -> bool:
    """Whether equal lines mean equal records: those of our sources, and of Spark's own for Kafka.
    A file source's, say, are numbers of a log that may name other files on another disk. `-` is
    Spark's word for a source that has read nothing yet."""
    if line == "-":
        return True
    try:
        decode(line)
    except ValueError:
        return _is_of_a_map(line)
    return True


def same_lines(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether all sources stand at the same place, whoever wrote the lines: Spark's own source for
    Kafka writes them without spaces."""
    return len(one) == len(other) and all(map(_is_same, one, other))


def _is_same(one: str, other: str) -> bool:
    try:
        return one == other or decode(one) == decode(other)
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
    )


def ends_of(line: str) -> Offsets:
    """The offsets in a line of Spark's log. Raises NotOurs, also for those of Spark's own Kafka
    source: it writes the same ones without spaces."""
    try:
        found = decode(line)
    except ValueError as error:
        raise NotOurs(f"the offsets of a source {error}") from None
    if line != json.dumps(encode(found)):
        raise NotOurs("the offsets of a source were not written by format 'eo-kafka'")
    return found
