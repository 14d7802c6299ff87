"""Which build of the package runs here: its version, and a digest of its sources.

A driver and its tasks must be of one build. All of them unpickle what another one made, so nothing
else would tell: what an older task does not do, the driver counts on.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import socket
import zipfile
from collections.abc import Collection, Iterator
from importlib import import_module
from pathlib import Path

from .errors import EnvironmentRefused

_OURS = __name__.partition(".")[0]
# What runs in tasks, or says what does. A checkout has more beside these than an installation.
_ROOMS = (
    *("clients", "connectors", "core", "formats", "sinks", "sources", "state", "targets"),
    "windows",
)
_BUILD = " build "
_ADVICE = (
    "Install the same eo-kafka for the driver and on all executors (one image, one wheel, or one "
    "zip in --py-files), end Python workers of before it with their executors, and start the "
    "query again."
)


@functools.cache
def mark() -> str:
    """Of this process: the version, and the build where the sources can be read. Computed once,
    as early as it is asked for: files may be replaced under a process that runs."""
    version = str(import_module(_OURS).__version__)
    try:
        return f"{version}{_BUILD}{digest(_OURS)[:12]}"
    except OSError:
        return version


def is_this(told: str) -> bool:
    """Whether another process's mark is this one's. By the version alone, where one of the two
    could not read its sources."""
    mine = mark()
    if _BUILD in told and _BUILD in mine:
        return told == mine
    return told.partition(_BUILD)[0] == mine.partition(_BUILD)[0]


def check_drivers(told: str) -> None:
    """In a task, before it does anything. Raises EnvironmentRefused."""
    if not is_this(told):
        raise EnvironmentRefused(
            f"The driver runs eo-kafka {told}, and a task on host {socket.gethostname()} "
            f"{mark()}, from {Path(import_module(_OURS).__file__ or '').parent}: one may not do "
            f"what the other counts on. The task has read and written nothing. {_ADVICE}"
        )


def check_tasks(told: list[str]) -> None:
    """On the driver, before anything is decided: `told` by the tasks of a batch, "" by those of a
    version that says nothing. Raises EnvironmentRefused."""
    others = sorted({one for one in told if not is_this(one)})
    if others:
        names = ", ".join(one or "an older one, which does not say its version" for one in others)
        raise EnvironmentRefused(
            f"Tasks of this batch ran another eo-kafka than the driver ({mark()}): {names}. They "
            f"may not have done what the driver counts on. Nothing was decided. {_ADVICE}"
        )


@functools.cache
def digest(package: str) -> str:
    """Of a package's sources, the same in a folder and in a zip. Of our own, those of the rooms
    that tasks run; of another one, all. Raises OSError, also if there are none."""
    module = import_module(package)
    home = os.path.dirname(module.__file__ or "")
    archive = getattr(module.__loader__, "archive", None)  # of `--py-files`
    rooms = _ROOMS if package == _OURS else None
    sources = _in_folder(home, rooms) if archive is None else _in_archive(archive, home, rooms)
    found, empty = hashlib.sha256(), True
    for name, source in sources:
        found.update(f"{name} {len(source)}\n".encode() + source)
        empty = False
    if empty:
        raise FileNotFoundError(errno.ENOENT, "the package has no sources", home)
    return found.hexdigest()


def _in_folder(home: str, rooms: Collection[str] | None) -> Iterator[tuple[str, bytes]]:
    names = []
    for folder, inner, files in os.walk(home):  # quicker than rglob
        if folder == home and rooms is not None:
            inner[:] = [one for one in inner if one in rooms]
        names += [os.path.join(folder, one) for one in files if one.endswith(".py")]
    for name, path in sorted((path[len(home) + 1 :].replace(os.sep, "/"), path) for path in names):
        with open(path, "rb") as source:
            yield name, source.read()


def _in_archive(
    archive: str, home: str, rooms: Collection[str] | None
) -> Iterator[tuple[str, bytes]]:
    inside = os.path.relpath(home, archive).replace(os.sep, "/") + "/"
    try:
        with zipfile.ZipFile(archive) as opened:
            for path in sorted(opened.namelist()):
                name = path.removeprefix(inside)
                room, _, rest = name.partition("/")
                if not (path.startswith(inside) and path.endswith(".py")):
                    continue
                if rooms is None or not rest or room in rooms:
                    yield name, opened.read(path)
    except zipfile.BadZipFile as error:
        raise OSError(errno.EIO, str(error), archive) from None
