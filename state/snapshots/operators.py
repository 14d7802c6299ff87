"""The stateful operators of a checkpoint, from Spark's own description in it. No I/O.

`state/<operator>/_metadata/metadata` (version 1), or `state/<operator>/_metadata/v2/<batch>` for
transformWithState: a line with the version, then JSON. Sources: OperatorStateMetadata of Spark 4.3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...core.options import json_object

_PATH = re.compile(r"state/(\d+)/_metadata/(?:metadata|v2/(\d+))")
# In JSON: the name of a file, the part that the checkpoint's own folder precedes.
_SCHEMA_FILE = re.compile(rb'"(?:[^"\\]|\\.)*?(/state/\d+/_stateSchema/[^"]*)"')


@dataclass(frozen=True)
class Operator:
    """One operator. `partitions` is that of its state, `stores` are the names of its state stores;
    0 and none where Spark's description cannot be read here."""

    id: int
    name: str
    partitions: int
    stores: tuple[str, ...]


def descriptions(paths: Iterable[str]) -> list[str]:
    """Those of the checkpoint's paths that describe an operator, the newest for each."""
    newest: dict[int, tuple[int, str]] = {}
    for path in paths:
        if found := _PATH.fullmatch(path):
            operator, version = int(found[1]), int(found[2] or -1)
            newest[operator] = max(newest.get(operator, (version, path)), (version, path))
    return [path for _, (_, path) in sorted(newest.items())]


def is_description(path: str) -> bool:
    """Whether the file describes an operator."""
    return _PATH.fullmatch(path) is not None


def parse(described: Mapping[str, bytes]) -> list[Operator]:
    """The operators, by id. `described` are the contents of `descriptions`."""
    return sorted((_parse(path, text) for path, text in described.items()), key=lambda one: one.id)


def moved(text: bytes, folder: str) -> bytes:
    """The description `text`, as it must be when the checkpoint is at `folder`.

    Spark describes transformWithState with the full names of its schema files: from where the
    checkpoint was. No other description depends on the place.
    """
    root = json.dumps(folder)[1:-1].encode()
    return _SCHEMA_FILE.sub(lambda found: b'"' + root + found[1] + b'"', text)


def _parse(path: str, text: bytes) -> Operator:
    known = _PATH.fullmatch(path)
    assert known is not None
    try:
        _, _, body = text.decode().partition("\n")
        fields = json_object(body)
        stores = fields["stateStoreInfo"]
        return Operator(
            id=int(known[1]),
            name=str(fields["operatorInfo"]["operatorName"]),
            partitions=max((int(store["numPartitions"]) for store in stores), default=0),
            stores=tuple(str(store["storeName"]) for store in stores),
        )
    except (LookupError, TypeError, ValueError):  # of a newer Spark: it reads it by itself
        return Operator(int(known[1]), "(described in a way not known here)", 0, ())
