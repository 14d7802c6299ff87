"""Chooses the checkpoint files that a restart at a given batch needs.

Batch N runs from version N of the state, which batch N - 1 wrote, with the offsets of `offsets/N`.
A restart with `offsets/N` and without `commits/N` runs batch N again. A state store's version N is
its newest full file at or below N (`.snapshot`, `.zip`) and every later step (`.delta`,
`.changelog`); a RocksDB full file names the sorted tables that belong to it.

Sources: HDFSBackedStateStoreProvider, RocksDBFileManager, MicroBatchExecution.populateStartOffsets
of Spark 4.3.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable

# With checkpoint format 2 the version is followed by an id; its checksum is a visible file.
_VERSIONED = re.compile(r"(\d+)(_[0-9A-Za-z-]+)?\.(delta|snapshot|changelog|zip)(\.crc)?")
_FULL = {"snapshot", "zip"}
_STORE = re.compile(r"(state/\d+)/(\d+)(/.+)?")
LOGS = ("offsets", "commits")


class Incomplete(Exception):
    """A file that must be there is not: the listing is stale, or the checkpoint is damaged."""


def needed(
    paths: Iterable[str],
    batch: int,
    read: Callable[[str], bytes],
    partitions: int | None = None,
) -> list[str]:
    """The paths that a restart at `batch` needs, sorted. `read` gives a RocksDB zip's bytes;
    `partitions` is the number of the state's: of those behind, an offline repartition left files.

    Raises Incomplete, or what `read` raises.
    """
    there = set(paths)
    wanted: set[str] = set()
    stores: dict[str, list[str]] = defaultdict(list)
    for path in there:
        folder, _, name = path.rpartition("/")
        top = path.partition("/")[0]
        store, version = _STORE.fullmatch(folder), _VERSIONED.fullmatch(name)
        if store and partitions is not None and int(store[2]) >= partitions:
            if version and int(version[1]) >= batch:
                raise Incomplete(f"{path} is state of more partitions than {partitions}")
        elif store and version:
            stores[folder].append(name)
        elif top not in LOGS and not _is_table(path):
            wanted.add(path)
    wanted |= _logs(batch, there, stores.values())
    if batch:  # version 0 is nothing, and the first attempt at version 1 may be there in part
        _check_partitions(stores)
    for folder, names in stores.items():
        for name in _of_store(names, batch, folder):
            path = f"{folder}/{name}"
            wanted.add(path)
            if name.endswith(".zip"):
                wanted |= {f"{folder}/{table}" for table in tables(read(path))}
    if missing := wanted - there:
        raise Incomplete(f"{sorted(missing)[0]} is not there")
    return sorted(wanted)


def _logs(batch: int, there: Iterable[str], stores: Iterable[list[str]]) -> set[str]:
    """`commits/N-1` may be missing: Spark warns, and goes on from `offsets/N`, which has the
    watermark; but not where the commit says which files the state is in (format 2)."""
    # Spark asks for the offsets before the last ones, too: they say where batch N begins.
    wanted = {"metadata", f"offsets/{batch}", *({f"offsets/{batch - 1}"} if batch else ())}
    logs = (path.split("/") for path in there if path.startswith("commits/"))
    known = [int(name) for _, name in logs if name.isdecimal() and int(name) < batch]
    if batch and any(map(_has_id, itertools.chain.from_iterable(stores))):
        wanted.add(f"commits/{batch - 1}")
    elif known:
        wanted.add(f"commits/{max(known)}")
    return wanted


def _has_id(name: str) -> bool:
    found = _VERSIONED.fullmatch(name)
    return found is not None and found[2] is not None


def _is_table(path: str) -> bool:
    # state/<operator>/<partition>[/<store>]/SSTs/..., taken where a zip names them
    return path.startswith("state/") and path.split("/")[-2] in ("SSTs", "logs")


def _check_partitions(folders: Iterable[str]) -> None:
    """An operator's partitions are numbered from 0, and each has the same stores: else the listing
    passed over one of them."""
    operators: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for parsed in filter(None, map(_STORE.fullmatch, folders)):
        operator, partition, store = parsed.groups("")
        operators[operator][int(partition)].add(store)
    for operator, partitions in operators.items():
        stores = set().union(*partitions.values())
        for number in range(max(partitions) + 1):
            for store in stores - partitions[number]:
                raise Incomplete(f"{operator}/{number}{store} is not there")


def _of_store(names: list[str], batch: int, folder: str) -> list[str]:
    """The files of one store that version `batch` is loaded from."""
    found = [parsed for name in names if (parsed := _VERSIONED.fullmatch(name))]
    found = [parsed for parsed in found if int(parsed[1]) <= batch]
    kinds: dict[int, set[str]] = defaultdict(set)
    for parsed in found:
        if not parsed[4]:  # a checksum may have been written without its file
            kinds[int(parsed[1])].add(parsed[3])
    full = max((at for at, there in kinds.items() if there & _FULL), default=0)
    for at in range(full + 1, batch + 1):
        if at not in kinds:
            raise Incomplete(f"{folder} has no version {at}, from which {batch} is loaded")
    if any(parsed[2] for parsed in found):  # which id has which ancestors is Spark's business: all
        return [parsed[0] for parsed in found]
    return [
        parsed[0]
        for parsed in found
        if (int(parsed[1]) == full and parsed[3] in _FULL)
        or (int(parsed[1]) > full and parsed[3] not in _FULL)
    ]


def tables(zipped: bytes) -> list[str]:
    """The files a RocksDB full file names, relative to its folder.

    Raises Incomplete when it cannot be read.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(zipped)) as archive:
            _, _, body = archive.read("metadata").decode().partition("\n")
        found = json.loads(body)
        return [f"SSTs/{one['dfsSstFileName']}" for one in found["sstFiles"]] + [
            f"logs/{one['dfsLogFileName']}" for one in found.get("logFiles") or ()
        ]
    # What zipfile and its decompressors raise for a torn file is documented nowhere.
    except Exception as error:
        raise Incomplete(f"a RocksDB zip cannot be read ({error})") from None
