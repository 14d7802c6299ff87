"""Compares two topics as multisets of ids in bounded memory.

Ids are kept as 16-byte digests with two counts, about 160 bytes for each different one. A first
pass counts; only if something differs a second one reads both topics again, up to the same
offsets, to find where the records are that differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from ...core.errors import OptionsError, SourceError
from ...core.offsets import OffsetRange
from ...core.progress import Told

if TYPE_CHECKING:
    import pyarrow as pa

    from ...sources.settings.options import SourceOptions

Id = bytes | None
_LONGEST = Context(prec=10_000)
_SHIFT = 1 << 32  # input's count in the upper half of a number, output's in the lower


@dataclass(frozen=True)
class How:
    """What makes two records the same: `key`, `value`, `record` (key and value), `header:NAME` or
    `json:FIELD` (a field of a JSON value; dots lead into objects)."""

    word: str
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> How:
        """Raises OptionsError."""
        word, colon, name = text.partition(":")
        named = word in ("header", "json")
        if word not in ("key", "value", "record", "header", "json") or named != bool(name.strip()):
            raise OptionsError(
                [f"--by is '{text}': key, value, record, header:NAME or json:FIELD is expected."]
            )
        return cls(word, name) if colon else cls(word)

    @property
    def needs_headers(self) -> bool:
        """Whether headers must be read."""
        return self.word == "header"

    def ids(self, batch: pa.RecordBatch) -> Iterator[Id]:
        """The id of each record; None where it has none. Raises SourceError for a value that is
        not JSON."""
        if self.word in ("key", "value"):
            yield from batch.column(self.word).to_pylist()
        elif self.word == "record":
            pairs = zip(
                batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True
            )
            yield from (_framed(key, value) for key, value in pairs)
        elif self.word == "header":
            for headers in batch.column("headers").to_pylist():
                named = [one["value"] for one in headers or () if one["key"] == self.name]
                yield named[-1] if named else None
        else:
            for number, value in enumerate(batch.column("value").to_pylist()):
                yield self._json_field(value, batch, number)

    def _json_field(self, value: Id, batch: pa.RecordBatch, row: int) -> Id:
        try:
            found: Any = None if value is None else json.loads(value, parse_float=Decimal)
        except (ValueError, RecursionError):
            at = f"{batch.column('topic')[row]}-{batch.column('partition')[row]}"
            raise SourceError(
                f"The value of {at} at offset {batch.column('offset')[row]} is not JSON: "
                f"--by json:{self.name} cannot be used on this topic."
            ) from None
        for step in self.name.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        return None if found is None else json.dumps(found, sort_keys=True, default=_exact).encode()


def _exact(fraction: Decimal) -> list[str]:
    """1.5 as 1.50, and no other number: a float would take two long ones for the same."""
    return [str(fraction.normalize(_LONGEST))]


def _framed(key: Id, value: Id) -> bytes:
    sizes = (-1 if part is None else len(part) for part in (key, value))
    return b"%d,%d:" % tuple(sizes) + (key or b"") + (value or b"")


def _digest(one: Id) -> bytes:
    marked = b"\0" if one is None else b"\1" + one
    return hashlib.blake2b(marked, digest_size=16).digest()


@dataclass(frozen=True)
class Side:
    """One of the two topics and the offsets that are compared. `ids`: the topic's, for which they
    were looked up. `left_out`: sentences about what is not compared."""

    options: SourceOptions
    ranges: Sequence[OffsetRange]
    ids: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()

    @property
    def length(self) -> int:
        """How many offsets."""
        return sum(max(0, one.end - one.start) for one in self.ranges)

    def overlaps(self, other: Side) -> bool:
        """Whether both have records of the same topic in common, or could have."""
        same = self.ids == other.ids and all(self.ids.values()) and bool(self.ids)
        return same and any(
            mine.partition == its.partition
            and (max(mine.start, its.start) < min(mine.end, its.end) or mine == its)
            for mine in self.ranges
            for its in other.ranges
        )

    def batches(self, told: Callable[[int], object]) -> Iterator[pa.RecordBatch]:
        """All committed records; `told` hears of how many offsets more. Raises what the source
        raises."""
        from ...sources.reader import read_ranges

        for one in self.ranges:
            at = one.start
            for batch in read_ranges(self.options, [one], self.ids):
                yield batch
                before, at = at, batch.column("offset")[-1].as_py() + 1
                told(at - before)
            told(max(0, one.end - at))  # markers of transactions, and what was aborted


@dataclass(frozen=True)
class Difference:
    """An id that does not occur as often in the output as in the input, and where it does occur:
    (partition, offset), the first few."""

    id: Id
    in_input: int
    in_output: int
    input_at: list[tuple[int, int]] = field(default_factory=list)
    output_at: list[tuple[int, int]] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """`lost` (too few in the output), `duplicated` (too many), `unexpected` (none in the
        input)."""
        if self.in_output < self.in_input:
            return "lost"
        return "duplicated" if self.in_input else "unexpected"


@dataclass
class Comparison:
    """What a comparison found. `records` in input and output, and those of them that have no id;
    ids by kind; missing and surplus records; the first few differences of each kind."""

    input_records: int = 0
    output_records: int = 0
    input_without: int = 0
    output_without: int = 0
    distinct: int = 0
    ids: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("lost", "duplicated", "unexpected"), 0)
    )
    missing: int = 0
    surplus: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def different(self) -> bool:
        """Whether an id is not as often in the output as in the input."""
        return any(self.ids.values())

    @property
    def equal(self) -> bool:
        """Whether the multisets are the same. Of records without an id nobody knows: one that is
        lost and another that is repeated would look like nothing."""
        return not (self.different or self.input_without or self.output_without)


class _Reading:
    """How far it is. That all is read once more, to find where records are, turns out late."""

    def __init__(self, told: Told, length: int, passes: int) -> None:
        self._told, self._length = told, length
        self._done, self._total = 0, length * passes

    def more(self, offsets: int) -> None:
        """So many more are read."""
        self._done += offsets
        self._told(self._done, self._total)

    def once_more(self) -> None:
        """Another pass."""
        self._total += self._length


def compare(
    source: Side,
    sink: Side,
    how: How,
    *,
    limit: int,
    passes: int,
    told: Told,
) -> Comparison:
    """Read both and compare. With `passes` above 1 each pass keeps only its share of the ids, so
    that memory is divided by it. `told` hears how many offsets are read, of all that it takes."""
    result = Comparison()
    reading = _Reading(told, source.length + sink.length, passes)
    for share in range(passes):
        counts = _count(source, sink, how, (share, passes), result, reading)
        result.distinct += len(counts)
        wrong = {one: both for one, both in counts.items() if both // _SHIFT != both % _SHIFT}
        del counts
        _locate(source, sink, how, wrong, limit, result, reading)
    return result


def _count(
    source: Side,
    sink: Side,
    how: How,
    share: tuple[int, int],
    result: Comparison,
    reading: _Reading,
) -> dict[bytes, int]:
    number, passes = share
    counts: dict[bytes, int] = {}
    totals = []
    for side, weight in ((source, _SHIFT), (sink, 1)):
        total = without = 0
        for batch in side.batches(reading.more):
            total += batch.num_rows
            for one in how.ids(batch):
                without += one is None
                digest = _digest(one)
                if digest[0] % passes == number:
                    counts[digest] = counts.get(digest, 0) + weight
        totals.append((total, without))
    before = (result.input_records, result.output_records)
    for side_name, first, (now, _) in zip(("input", "output"), before, totals, strict=True):
        if number and now != first:
            raise SourceError(
                f"There were {first:,} records of the {side_name} at first, and {now:,} in pass "
                f"{number + 1}: records went meanwhile (compaction), so the passes do not fit "
                "together. Nothing was found out. Compare with --passes 1, or again later."
            )
    (result.input_records, result.input_without) = totals[0]
    (result.output_records, result.output_without) = totals[1]
    return counts


def _locate(
    source: Side,
    sink: Side,
    how: How,
    wrong: dict[bytes, int],
    limit: int,
    result: Comparison,
    reading: _Reading,
) -> None:
    """Sum up the ids that differ; find where the first `limit` of each kind are."""
    for both in wrong.values():
        found = Difference(None, both // _SHIFT, both % _SHIFT)
        result.ids[found.kind] += 1
        result.missing += max(0, found.in_input - found.in_output)
        result.surplus += max(0, found.in_output - found.in_input)
    room = {
        kind: limit - sum(one.kind == kind for one in result.differences) for kind in result.ids
    }
    chosen: dict[bytes, Difference] = {}
    if not wrong or not any(left > 0 for left in room.values()):
        return
    reading.once_more()
    for side, at in ((source, "input_at"), (sink, "output_at")):
        for one, where in _places(side, how, reading):
            digest = _digest(one)
            if digest not in wrong:
                continue
            if digest not in chosen:
                new = Difference(one, wrong[digest] // _SHIFT, wrong[digest] % _SHIFT)
                if room[new.kind] <= 0:
                    continue
                room[new.kind] -= 1
                chosen[digest] = new
            places = getattr(chosen[digest], at)
            if len(places) < limit:
                places.append(where)
    result.differences += chosen.values()


def _places(side: Side, how: How, reading: _Reading) -> Iterable[tuple[Id, tuple[int, int]]]:
    for batch in side.batches(reading.more):
        places = zip(
            batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True
        )
        yield from zip(how.ids(batch), places, strict=True)
