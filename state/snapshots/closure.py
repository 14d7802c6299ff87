"""Chooses the checkpoint files that a restart at a given batch needs.

Batch N runs from version N of the state, which batch N - 1 wrote, with the offsets of `offsets/N`.
A restart with `offsets/N` and without `commits/N` runs batch N again. A state store's version N is
its newest full file at or below N (`.snapshot`, `.zip`) and every later step (`.delta`,
`.changelog`); a RocksDB full file names the sorted tables that belong to it. With checkpoint format
2 a version may have files of several attempts, each with an id; `commits/N-1` says which counts.

Older files are not asked for: Spark's clean-up removes tables before the zips that name them, and
may die in between.

Sources: HDFSBackedStateStoreProvider, RocksDB.loadWithCheckpointId, RocksDBFileManager,
MicroBatchExecution.populateStartOffsets of Spark 4.3.
"""

from __future__ import annotations

import functools
import io
import itertools
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from ...core.options import json_object

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
    """The paths that a restart at `batch` needs, sorted. `read` gives a file's bytes, of a RocksDB
    zip or a commit; `partitions` is the number of the state's: of those behind, an offline
    repartition left files.

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

    @functools.cache
    def named(version: int) -> Collection[str]:
        path = f"commits/{version - 1}"
        return _ids(read(path)) if path in there else ()

    for folder, names in stores.items():
        for name in _of_store(names, batch, folder, named):
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


def _of_store(
    names: list[str], batch: int, folder: str, named: Callable[[int], Collection[str]]
) -> list[str]:
    """The files of one store that version `batch` is loaded from. `named` gives the ids that the
    commit of a version has: none if it is gone, or of format 1."""
    found = [
        (int(parsed[1]), parsed[2] or "", parsed)
        for name in names
        if (parsed := _VERSIONED.fullmatch(name)) and int(parsed[1]) <= batch
    ]
    ids: dict[int, set[str]] = defaultdict(set)
    fulls: set[tuple[int, str]] = set()
    for version, its_id, parsed in found:
        if not parsed[4]:  # a checksum may have been written without its file
            ids[version].add(its_id)
            if parsed[3] in _FULL:
                fulls.add((version, its_id))

    def is_in_lineage(full: tuple[int, str]) -> bool:
        version, its_id = full
        return ids[version] == {its_id} or its_id in named(version)

    base = next(filter(is_in_lineage, sorted(fulls, reverse=True)), (0, ""))
    for at in range(base[0] + 1, batch + 1):
        if at not in ids:
            raise Incomplete(f"{folder} has no version {at}, from which {batch} is loaded")
    if any(ids[batch]) and (known := named(batch)) and ids[batch].isdisjoint(known):
        raise Incomplete(f"{folder} has no version {batch} that commits/{batch - 1} names")
    # After it the files of all attempts: which belong together, Spark has packed into them.
    return [
        parsed[0]
        for version, its_id, parsed in found
        if ((version, its_id) == base and parsed[3] in _FULL)
        or (version > base[0] and (parsed[3] not in _FULL or (version, its_id) in fulls))
    ]


def _ids(commit: bytes) -> Collection[str]:
    """The ids of the state's files that a commit names, each as in a file's name."""
    try:
        _, _, body = commit.decode().partition("\n")
        operators = json_object(body).get("stateUniqueIds") or {}
        partitions = itertools.chain.from_iterable(operators.values())
        return {f"_{one}" for one in itertools.chain.from_iterable(partitions)}
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise Incomplete(f"a commit cannot be read ({error})") from None


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
