"""Adds bytecode to the archives that Spark's Python processes import PySpark from.

Spark's JVM puts `pyspark.zip` first on the path of each Python process that it starts, and Python
writes no bytecode into an archive: without it each of these processes compiles PySpark's sources
again. It takes what is there already (`zipimport`): a `.pyc` beside its `.py`.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import py_compile
import re
import shutil
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

from ...core.errors import EnvironmentRefused

_TESTS = re.compile(r"/tests/")  # no worker imports them


def archives() -> list[Path]:
    """Those of the Spark that this interpreter starts; none where Spark has no archive."""
    from pyspark.find_spark_home import _find_spark_home

    try:
        home = _find_spark_home()
    except SystemExit:  # there is none; it has printed where it looked
        return []
    found = (path.resolve() for path in Path(home, "python", "lib").glob("*.zip"))
    return sorted(path for path in found if path.is_file())


def has_bytecode(archive: Path) -> bool:
    """Whether the archive has any for this version of Python."""
    found = _bytecode(archive)
    return bool(found) and found == importlib.util.MAGIC_NUMBER


def add(archive: Path) -> int:
    """Add bytecode of this version of Python; how many modules got it.

    Processes that run meanwhile are not disturbed: the new archive takes the old one's place at
    once, and begins with the same bytes.

    Raises:
        EnvironmentRefused: If the archive cannot be written, or has bytecode of another Python.
    """
    if _bytecode(archive):
        raise EnvironmentRefused(
            f"{archive} has the bytecode of another version of Python, which this one does not "
            "read. Reinstall PySpark, and run 'eo-kafka prepare' with the Python of your workers."
        )
    staged = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            modules = _compiled(archive, Path(folder))
            shutil.copy2(archive, staged)
            with zipfile.ZipFile(staged, "a", zipfile.ZIP_DEFLATED) as whole:
                for module in modules:
                    whole.write(module, module.relative_to(folder))
        staged.replace(archive)
    except OSError as error:
        raise EnvironmentRefused(
            f"{archive} cannot be changed ({error}). Run 'eo-kafka prepare' as the user that "
            "installed PySpark."
        ) from None
    finally:
        with suppress(OSError):
            staged.unlink(missing_ok=True)
    return len(modules)


def _bytecode(archive: Path) -> bytes:
    """The first bytes of its first module that has some, which name a version of Python."""
    with zipfile.ZipFile(archive) as whole:
        for name in whole.namelist():
            if name.endswith(".pyc"):
                with whole.open(name) as module:
                    return module.read(len(importlib.util.MAGIC_NUMBER))
    return b""


def _compiled(archive: Path, folder: Path) -> list[Path]:
    with zipfile.ZipFile(archive) as whole:
        whole.extractall(folder)
    compileall.compile_dir(
        folder,
        quiet=2,
        legacy=True,  # beside its source
        rx=_TESTS,
        # Tracebacks name the archive.
        stripdir=str(folder),
        prependdir=str(archive),
        # The source is in the same archive, and replaced with it.
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    return sorted(folder.rglob("*.pyc"))
