"""Partitions, offsets and ranges, and the JSON in which Spark's checkpoints keep them.

The JSON is the JVM connector's, `{"topic":{"0":23}}`, where 23 is the next offset to read. Spark
compares offsets as text, so that one position must always be written in one way: topics in
alphabetical order, partitions in numerical order.

A position may say more than offsets, by marks behind the topics, as in
`{"topic":{"0":23},"@tasks 8":{}}`. No topic has such a name, and the JVM connector finds no
partition there.

- `@continues LEDGER`: a new query starts at the end of the last one (`onReset=continue`). By it the
  sink, and a restart, know that nothing was read.
- `@tasks NUMBER`: the batch that ends here has so many tasks at most. By it a restart gives each
  task the records that it had (`sources/most_tasks.py`).
- `@id TOPIC ID`: which topic of that name it is. By it a restart knows that it was deleted and made
  again. `@anew TOPIC ID`: and the batch that ends here reads it from its beginning
  (`failOnDataLoss=false`), wherever it starts: it starts in one of before.
- `@epochs TOPIC 3,3,4`: the epochs of its partitions' leaders when that end was told, -1 for one
  that is not known. By it a restart knows that a log was cut (`sources/cut_logs.py`).
- `@from TOPIC 0,5`: where the first batch, which ends here, begins in its partitions, -1 for one
  that is not known. By it a restart begins there, too (`sources/planned_begin.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from .errors import cut
from .options import json_object

EARLIEST = -2
LATEST = -1
OFFSET_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1

_CONTINUES = "@continues "
_MOST_TASKS = re.compile(r"@tasks ([1-9][0-9]{0,9})")
_ID = re.compile(r"@(id|anew) ([a-zA-Z0-9._-]+) ([a-zA-Z0-9_-]+)")
_NUMBERS = re.compile(
    r"@(epochs|from) ([a-zA-Z0-9._-]+) ((?:-1|[0-9]{1,19})(?:,(?:-1|[0-9]{1,19}))*)"
)
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_DIGITS_MAX = len(str(PARTITION_MAX))
_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'


class TopicPartition(NamedTuple):
    """One partition of one topic; sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets: TypeAlias = Mapping[TopicPartition, int]


class OffsetRange(NamedTuple):
    """The records from offset `start` up to, not including, `end`.

    A batch query's range may hold EARLIEST and LATEST, which the task resolves when it runs.
    """

    partition: TopicPartition
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.partition} from offset {self.start} to {self.end}"


def names(partitions: Iterable[TopicPartition]) -> str:
    """Partitions for a sentence: `a-0, a-1, b-0`."""
    return ", ".join(map(str, sorted(partitions)))


def encode(offsets: Offsets) -> dict[str, dict[str, int]]:
    """The nested form, inserted in canonical order, so that `json.dumps` is canonical too."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def encode_text(offsets: Offsets) -> str:
    """The canonical text, as short as the JVM connector writes it."""
    return json.dumps(encode(offsets), separators=(",", ":"))


class Position(NamedTuple):
    """Where a stream is, and what its marks say: the ledger that it continues, how many tasks the
    batch that ends here has at most, its topics' ids, by name, which of them that batch reads from
    their beginning, the epochs of leaders, and where that batch begins, if it is the first."""

    offsets: Offsets
    continues: str | None = None
    most_tasks: int | None = None
    ids: Mapping[str, str] = {}
    anew: frozenset[str] = frozenset()
    epochs: Mapping[TopicPartition, int] = {}
    begins: Mapping[TopicPartition, int] = {}


def encode_position(position: Position) -> dict[str, dict[str, int]]:
    """As `encode`, with its marks behind the topics."""
    return {**encode(position.offsets), **{mark: {} for mark in _marks(position)}}


def _marks(position: Position) -> Iterator[str]:
    if position.continues is not None:
        yield f"{_CONTINUES}{position.continues}"
    if position.most_tasks is not None:
        yield f"@tasks {position.most_tasks}"
    for topic in sorted(position.ids):
        yield f"@{'anew' if topic in position.anew else 'id'} {topic} {position.ids[topic]}"
    for mark, numbers in (("epochs", position.epochs), ("from", position.begins)):
        for topic in sorted({at.topic for at in numbers}):
            partitions = sorted(at for at in position.offsets if at.topic == topic)
            yield f"@{mark} {topic} " + ",".join(str(numbers.get(at, -1)) for at in partitions)


def decode_position(written: object) -> Position:
    """A position out of a checkpoint. Raises ValueError as `decode`."""
    topics = dict(_nested(written))
    marks = [name for name, partitions in topics.items() if partitions == {}]
    continues, most_tasks, ids, anew = None, None, {}, set()
    told: dict[str, dict[str, str]] = {"epochs": {}, "from": {}}
    for name in marks:
        if name.startswith(_CONTINUES):
            continues = name.removeprefix(_CONTINUES)
            del topics[name]
        elif found := _MOST_TASKS.fullmatch(name):
            most_tasks = int(found[1])
        elif found := _ID.fullmatch(name):
            ids[found[2]] = found[3]
            anew |= {found[2]} if found[1] == "anew" else set()
        elif found := _NUMBERS.fullmatch(name):
            told[found[1]][found[2]] = found[3]
    offsets = decode(topics)
    epochs, begins = (_numbers(offsets, mark, told[mark]) for mark in ("epochs", "from"))
    return Position(offsets, continues, most_tasks, ids, frozenset(anew), epochs, begins)


def _numbers(offsets: Offsets, mark: str, told: Mapping[str, str]) -> dict[TopicPartition, int]:
    """The numbers of partitions, as their topic's marks list them."""
    found = {}
    for topic, written in told.items():
        partitions = sorted(at for at in offsets if at.topic == topic)
        numbers = [int(number) for number in written.split(",")]
        if len(numbers) != len(partitions):
            raise ValueError(
                f"must have as many numbers in '@{mark}' as partitions of topic '{cut(topic)}'"
            )
        found.update({at: one for at, one in zip(partitions, numbers, strict=True) if one >= 0})
    return found


def decode(written: object, lowest: int = 0) -> dict[TopicPartition, int]:
    """Offsets from JSON text, or from what `json.loads` made of it.

    `lowest` is 0 for positions; EARLIEST admits the two words of `startingOffsets` as well.
    Raises ValueError with the end of a sentence: "must be ...".
    """
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _nested(written).items():
        if partitions == {} and any(mark.fullmatch(topic) for mark in (_MOST_TASKS, _ID, _NUMBERS)):
            continue  # a position out of a progress report, given as `startingOffsets`
        if not _TOPIC.fullmatch(topic):
            raise ValueError(f"must name topics; {cut(repr(topic))} is none")
        if not isinstance(partitions, Mapping):
            raise ValueError(
                f"must map topic '{cut(topic)}' to offsets by partition, as in {_EXAMPLE}"
            )
        for number, offset in partitions.items():
            found[TopicPartition(topic, _partition(topic, number))] = _offset(
                topic, number, offset, lowest
            )
    return found


def _nested(written: object) -> Mapping[str, object]:
    nested = json_object(written) if isinstance(written, str) else written
    if not isinstance(nested, Mapping):
        raise ValueError("must be a JSON object")
    return nested


def _partition(topic: str, written: str) -> int:
    # Only the canonical spelling: "00" beside "0" would give one partition two offsets.
    if len(written) <= _DIGITS_MAX and written.isascii() and written.isdigit():
        partition = int(written)
        if str(partition) == written and partition <= PARTITION_MAX:
            return partition
    raise ValueError(
        f"must name partitions of topic '{cut(topic)}' by number; '{cut(written)}' is none"
    )


def _offset(topic: str, partition: str, written: object, lowest: int) -> int:
    if isinstance(written, int) and not isinstance(written, bool):
        if lowest <= written <= OFFSET_MAX:
            return written
        words = f" (or {LATEST} for latest, {EARLIEST} for earliest)" if lowest < 0 else ""
        raise ValueError(
            f"must give offsets from 0 to {OFFSET_MAX}{words}; "
            f"for {cut(topic)}-{partition} it gives {cut(written)}"
        )
    raise ValueError(
        f"must give a whole number for {cut(topic)}-{partition}, as in {_EXAMPLE}; "
        f"it gives {_shown(written)}"
    )


def _shown(written: object) -> str:
    try:
        return cut(json.dumps(written))
    except RecursionError:
        return "something nested too deeply"
