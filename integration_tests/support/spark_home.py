"""PySpark as it is installed, without its zip archive.

Spark's JVM puts `pyspark.zip` first on the path of each Python process that it starts, and Python
keeps no bytecode of what is in an archive: each process compiles PySpark again, which takes half a
second of CPU. Where the archive is missing, they import the same files from the installed package.
Tests that bring a Spark of their own (the wheel, other versions) start it with the archive.
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
    home = Path(tempfile.gettempdir(), f"eo-kafka-tests-{os.getuid()}", _name())
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in INSTALLED.iterdir():
        if path.name != "python":
            with suppress(FileExistsError):
                (home / path.name).symlink_to(path)
    os.environ["SPARK_HOME"] = str(home)


def _name() -> str:
    digest = hashlib.sha256(f"{INSTALLED} {pyspark.__version__}".encode())
    return f"spark-{digest.hexdigest()[:16]}"
