"""What a directory of files shows: its manifest, and how files are named. Free of I/O."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...core.errors import LedgerError, cut

OWN = "_eo_files"  # readers of directories pass over names that begin so
COLUMN = "batch"  # what readers make of the directories' names
_FORMAT = 1
_BATCH = re.compile(rf"{COLUMN}=(\d+)")
_STAGED = re.compile(r"([\w-]+)-(\d+)-(\d+)\.([a-z]+)")


@dataclass(frozen=True)
class DataFile:
    """A chunk of rows. Its name says whose, which, and how many rows."""

    name: str
    bytes: int

    @property
    def rows(self) -> int:
        """How many."""
        return int(self.name.rpartition(".")[0].rpartition("-")[2])


@dataclass(frozen=True)
class Manifest:
    """The newest one is the truth: the batches up to `sequence` are shown, and nothing else.

    `files` are those of its own batch: earlier ones have all been published. `markers` holds each
    writer's, `schema` the columns of all rows so far, as Spark writes one in JSON.
    """

    sequence: int
    id: str
    markers: Mapping[str, str]
    schema: str
    files: Sequence[DataFile] = ()

    def marker(self, writer: str) -> bytes | None:
        """This writer's."""
        found = self.markers.get(writer)
        return None if found is None else found.encode("latin-1")

    def encoded(self) -> bytes:
        """As it is stored."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=1).encode()

    @classmethod
    def decoded(cls, raw: bytes, where: str) -> Manifest:
        """Raises LedgerError."""
        try:
            found: dict[str, Any] = json.loads(raw)
            known = found.pop("format") == _FORMAT
            found["files"] = tuple(DataFile(**one) for one in found["files"])
            if known:
                return cls(**found)
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise LedgerError(
            f"Manifest {where} is not what this version of eo-kafka writes: {cut(raw, 200)}. "
            "Nothing was changed. A newer version wrote it, or somebody changed it: take that "
            "version, or bring back what was there."
        )


def successor(
    newest: Manifest | None, writer: str, marker: bytes, schema: str, files: Iterable[DataFile]
) -> Manifest:
    """What comes after `newest`."""
    return Manifest(
        sequence=newest.sequence + 1 if newest else 1,
        id=uuid.uuid4().hex,
        markers={**(newest.markers if newest else {}), writer: marker.decode("latin-1")},
        schema=merged(newest.schema if newest else "", schema),
        files=tuple(files),
    )


def batch_folder(sequence: int) -> str:
    """Where its files are once they are published."""
    return f"{COLUMN}={sequence:010}"


def batch_in(folder: str) -> int | None:
    """Of such a name."""
    found = _BATCH.fullmatch(folder)
    return int(found[1]) if found else None


def chunk_file(name: str, number: int, rows: int, ending: str) -> str:
    """The file of a chunk."""
    return f"{name}-{number}-{rows}.{ending}"


def staged_name(file: str) -> tuple[str, int] | None:
    """Of which name a file is a chunk, and which; None: of none."""
    found = _STAGED.fullmatch(file)
    return (found[1], int(found[2])) if found else None


def merged(known: str, more: str) -> str:
    """The columns of both; where they differ, as they are `known`. Each is text, or nothing."""
    if not known or not more:
        return known or more
    fields = _fields(known)
    names = {one["name"] for one in fields}
    fields += [one for one in _fields(more) if one["name"] not in names]
    return json.dumps({"type": "struct", "fields": fields})


def clashes(known: str, more: str) -> list[str]:
    """Why rows of columns `more` cannot go beside those that are `known`: sentences."""
    if not known or not more:
        return []
    there = {one["name"].lower(): one for one in _fields(known)}
    found = []
    for field in _fields(more):
        name, known_field = field["name"], there.get(field["name"].lower())
        if known_field is None:
            continue
        if known_field["name"] != name:
            found.append(
                f"Column '{name}' of the rows is '{known_field['name']}' in the files that are "
                "there: name it so."
            )
        elif loose(known_field["type"]) != loose(field["type"]):
            found.append(
                f"Column '{name}' of the rows is {shown(field['type'])}, and "
                f"{shown(known_field['type'])} in the files that are there: cast it, or write "
                "another directory."
            )
    return found


def misplaced(known: str, more: str) -> list[str]:
    """Why rows of columns `more` cannot be CSV beside those that are `known`: sentences."""
    if not known or not more:
        return []
    there, mine = names_of(known), names_of(more)
    if mine[: len(there)] == there:
        return []
    return [
        f"The columns of the rows are {', '.join(mine)}, and {', '.join(there)} in the files that "
        "are there. Readers of CSV go by the place of a column: select those first, in their "
        "order (null where there is nothing), and new ones after them."
    ]


def misread(known: str, asked: str) -> list[str]:
    """Columns that are `asked` for and not `known`, or by the same name in another case, or by
    another type: sentences. Nothing is known before the first row."""
    if not known:
        return []
    there = {one["name"].lower(): one for one in _fields(known)}
    found = []
    for field in _fields(asked):
        name, known_field = field["name"], there.get(field["name"].lower())
        if known_field is None:
            names = ", ".join(f"'{one}'" for one in names_of(known))
            found.append(f"Column '{name}' is in no file: their columns are {names}.")
        elif known_field["name"] != name:
            found.append(f"Column '{name}' is '{known_field['name']}' in the files: name it so.")
        elif loose(known_field["type"]) != loose(field["type"]):
            found.append(
                f"Column '{name}' is {shown(known_field['type'])} in the files: read it so, and "
                f"cast it to {shown(field['type'])} then."
            )
    return found


def loose(kind: Any) -> Any:
    """A type without whether there may be nulls: what a query says of that changes easily."""
    if isinstance(kind, dict):
        left = {key: loose(of) for key, of in kind.items() if key != "metadata"}
        return {
            key: True if key in ("nullable", "containsNull", "valueContainsNull") else of
            for key, of in left.items()
        }
    return [loose(one) for one in kind] if isinstance(kind, list) else kind


def shown(kind: Any) -> str:
    """A type, for a sentence."""
    return kind if isinstance(kind, str) else json.dumps(loose(kind))


def names_of(schema: str) -> list[str]:
    """Of the columns."""
    return [one["name"] for one in _fields(schema)]


def _fields(schema: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(schema)["fields"]
    return found
