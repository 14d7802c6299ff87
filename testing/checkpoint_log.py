"""What a query's checkpoint says of its batches: where each one's input ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Ends = Mapping[str, Mapping[int, int]]  # topic -> partition -> the next offset to read


def newest(folder: Path) -> int:
    """The newest batch in one of the checkpoint's logs; -1 if there is none."""
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def is_noted(checkpoint: Path, batch: int) -> bool:
    """Whether Spark has noted a batch as committed."""
    return (checkpoint / "commits" / str(batch)).exists()


def batches(checkpoint: Path) -> dict[int, Ends]:
    """Where the input of each batch ended that is still in `offsets/`, by its number."""
    folder = checkpoint / "offsets"
    if not folder.exists():
        return {}
    paths = {int(path.name): path for path in folder.iterdir() if path.name.isdigit()}
    return {number: _ends(path.read_text()) for number, path in sorted(paths.items())}


def committed_ends(checkpoint: Path) -> Ends:
    """Where the newest batch ended that Spark has noted as committed."""
    return batches(checkpoint).get(newest(checkpoint / "commits"), {})


def batch_of(known: Mapping[int, Ends], topic: str, partition: int, offset: int) -> int | None:
    """The batch that read a record; None if no batch that is known did."""
    for number, ends in known.items():
        if offset < ends.get(topic, {}).get(partition, 0):
            return number
    return None


def _ends(text: str) -> Ends:
    """A source's line is JSON: topics, partitions, offsets. Other sources' lines are not."""
    found: dict[str, dict[int, int]] = {}
    for line in text.splitlines():
        try:
            parsed: Any = json.loads(line)
        except ValueError:
            continue
        for topic, offsets in parsed.items() if isinstance(parsed, dict) else ():
            if isinstance(offsets, dict) and all(_is_offset(*pair) for pair in offsets.items()):
                found[topic] = {int(number): at for number, at in offsets.items()}
    return found


def _is_offset(partition: str, offset: object) -> bool:
    return partition.isdigit() and isinstance(offset, int)
