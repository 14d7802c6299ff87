"""Adds bytecode to the archives that Spark's Python processes import PySpark from.

Spark's JVM puts `pyspark.zip` first on the path of each Python process that it starts, and Python
writes no bytecode into an archive: without it each of these processes compiles PySpark's sources
again. It takes what is there already (`zipimport`): a `.pyc` beside its `.py`.

Up to Python 3.12, a process reads an archive's directory again for each package that it has
imported from it, once Spark has given it a path (`importlib.invalidate_caches`): 0.1 s of CPU. A
folder in the archive's place has neither cost.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import py_compile
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...core.errors import EnvironmentRefused

_TESTS = re.compile(r"/tests/")  # no worker imports them


def archives() -> list[Path]:
    """Those of the Spark that this interpreter starts, or the folders in their place; none where
    Spark has neither."""
    from pyspark.find_spark_home import _find_spark_home

    try:
        home = _find_spark_home()
    except SystemExit:  # there is none; it has printed where it looked
        return []
    return sorted(path.resolve() for path in Path(home, "python", "lib").glob("*.zip"))


def has_bytecode(archive: Path) -> bool:
    """Whether the archive, or the folder, has any for this version of Python."""
    if archive.is_dir():
        own = f"__pycache__/*.{sys.implementation.cache_tag}.pyc"
        return next(archive.rglob(own), None) is not None
    found = _bytecode(archive)
    return bool(found) and found == importlib.util.MAGIC_NUMBER


def add(archive: Path) -> int:
    """Add bytecode of this version of Python; how many modules got it.

    Processes that run meanwhile are not disturbed: the new archive takes the old one's place at
    once, and begins with the same bytes.

    Raises:
        EnvironmentRefused: If the archive cannot be written, or has bytecode of another Python.
    """
    if archive.is_dir():
        return len(_compiled(archive, archive))
    if _bytecode(archive):
        raise EnvironmentRefused(
            f"{archive} has the bytecode of another version of Python, which this one does not "
            "read. Reinstall PySpark, and run 'eo-kafka prepare' with the Python of your workers."
        )
    staged = archive.with_name(f".{archive.name}.{os.getpid()}")
    with _told(archive):
        try:
            with tempfile.TemporaryDirectory() as folder:
                _extract(archive, Path(folder))
                modules = _compiled(Path(folder), archive, legacy=True)  # beside its source
                shutil.copy2(archive, staged)
                with zipfile.ZipFile(staged, "a", zipfile.ZIP_DEFLATED) as whole:
                    for module in modules:
                        whole.write(module, module.relative_to(folder))
            staged.replace(archive)
        finally:
            with suppress(OSError):
                staged.unlink(missing_ok=True)
    return len(modules)


def unpack(archive: Path) -> int:
    """Put a folder with bytecode in the archive's place, and keep the archive beside it as
    `NAME.packed`; how many modules have bytecode. Processes of Spark's that run meanwhile fail.

    Raises:
        EnvironmentRefused: If the folder cannot be written.
    """
    staged = archive.with_name(f".{archive.name}.{os.getpid()}")
    with _told(archive):
        try:
            _extract(archive, staged)
            modules = _compiled(staged, archive)
            packed = archive.rename(archive.with_name(f"{archive.name}.packed"))
            try:
                staged.rename(archive)
            except OSError:
                packed.rename(archive)
                raise
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    return len(modules)


@contextmanager
def _told(archive: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EnvironmentRefused(
            f"{archive} cannot be changed ({error}). Run 'eo-kafka prepare' as the user that "
            "installed PySpark."
        ) from None


def _extract(archive: Path, folder: Path) -> None:
    """Its sources, without bytecode of whichever Python."""
    with zipfile.ZipFile(archive) as whole:
        whole.extractall(folder, [name for name in whole.namelist() if not name.endswith(".pyc")])


def _bytecode(archive: Path) -> bytes:
    """The first bytes of its first module that has some, which name a version of Python."""
    with zipfile.ZipFile(archive) as whole:
        for name in whole.namelist():
            if name.endswith(".pyc"):
                with whole.open(name) as module:
                    return module.read(len(importlib.util.MAGIC_NUMBER))
    return b""


def _compiled(folder: Path, archive: Path, *, legacy: bool = False) -> list[Path]:
    """The bytecode of all modules in the folder, which tracebacks say are in the archive."""
    compileall.compile_dir(
        folder,
        quiet=2,
        legacy=legacy,
        rx=_TESTS,
        stripdir=str(folder),
        prependdir=str(archive),
        # The source is in the same place, and replaced with it.
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    return sorted(folder.rglob("*.pyc" if legacy else f"*.{sys.implementation.cache_tag}.pyc"))
