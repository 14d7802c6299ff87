"""PySpark as it is installed, after `eo-kafka prepare --unpack`.

Kill tests start many drivers, and each of a driver's Python processes would compile PySpark anew:
so prepared, a driver takes a third less CPU time. Made once per machine. Tests that bring a Spark
of their own (the wheel, other versions) have it as it is installed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pyspark

from eo_kafka.tools.prepare import bytecode

INSTALLED = Path(pyspark.__file__).parent


def use() -> None:
    """For this process and its children."""
    home = _path()
    if not home.exists():
        _make(home)
    os.environ["SPARK_HOME"] = str(home)


def _path() -> Path:
    fits = f"unpacked {INSTALLED} {INSTALLED.stat().st_mtime_ns} {pyspark.__version__}"
    name = hashlib.sha256(fits.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"eo-kafka-tests-{os.getuid()}", f"spark-{name}")


def _make(home: Path) -> None:
    unfinished = home.with_suffix(f".{os.getpid()}")
    for archive in as_it_came(unfinished):
        bytecode.unpack(archive)
    with suppress(OSError):  # another run was quicker
        unfinished.rename(home)


def as_it_came(home: Path) -> list[Path]:
    """Make a Spark of links to the installed one, with archives of its own that `eo-kafka prepare`
    has not touched: these archives."""
    library = home / "python" / "lib"
    library.mkdir(mode=0o700, parents=True)
    for path in INSTALLED.iterdir():
        if path.name != "python":
            (home / path.name).symlink_to(path)
    for archive in (INSTALLED / "python" / "lib").glob("*.zip"):
        source = archive.with_name(f"{archive.name}.packed") if archive.is_dir() else archive
        with (
            zipfile.ZipFile(source) as whole,
            zipfile.ZipFile(library / archive.name, "w") as without,
        ):
            for entry in whole.infolist():
                if not entry.filename.endswith(".pyc"):
                    without.writestr(entry, whole.read(entry))
    return sorted(library.glob("*.zip"))
