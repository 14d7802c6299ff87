"""PySpark as it is installed, with folders in place of the archives that its processes import from.

Kill tests start many drivers. Each of a driver's Python processes would compile PySpark anew, and
Python 3.10 and 3.11 read an archive's directory again for each of its packages, 100 ms of CPU a
process. Folders of the same names take a quarter of a driver's CPU time away. Made once per
machine. Tests that bring a Spark of their own (the wheel, other versions) have it as it is
installed, archives and all.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pyspark

INSTALLED = Path(pyspark.__file__).parent


def use() -> None:
    """For this process and its children."""
    home = _path()
    if not home.exists():
        _make(home)
    os.environ["SPARK_HOME"] = str(home)


def _path() -> Path:
    fits = f"folders {INSTALLED} {INSTALLED.stat().st_mtime_ns} {pyspark.__version__}"
    name = hashlib.sha256(fits.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"eo-kafka-tests-{os.getuid()}", f"spark-{name}")


def _make(home: Path) -> None:
    unfinished = home.with_suffix(f".{os.getpid()}")
    library = unfinished / "python" / "lib"
    library.mkdir(mode=0o700, parents=True)
    for path in INSTALLED.iterdir():
        if path.name != "python":
            (unfinished / path.name).symlink_to(path)
    for archive in (INSTALLED / "python" / "lib").glob("*.zip"):
        package = archive.name.split("-")[0].removesuffix(".zip")  # pyspark.zip, py4j-VERSION.zip
        folder = library / archive.name
        folder.mkdir()
        (folder / package).symlink_to(INSTALLED.with_name(package))
    with suppress(OSError):  # another run was quicker
        unfinished.rename(home)
