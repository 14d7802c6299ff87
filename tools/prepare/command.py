"""`eo-kafka prepare`: lets Spark's Python processes start sooner on this machine, or in this image.

Exit codes: 0 done, or nothing to do; 1 failed; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import time

from ...core import librdkafka, loops
from ...core.errors import EnvironmentRefused
from ...core.progress import bar
from . import bytecode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Run it once where a driver or executors run, or in their image, with the Python that\n"
        "PYSPARK_PYTHON names.\n\n"
        "- Compiles the loops that otherwise the first query on a machine compiles. They are kept\n"
        "  for the user that runs it: run it as the user of the workers.\n"
        "- Adds bytecode to Spark's pyspark.zip. Spark starts half a dozen Python processes for a\n"
        "  query; without bytecode each compiles PySpark anew, for half a second of CPU. It needs\n"
        "  the right to write there: if root installed PySpark, run it as root, too."
    )
    parser.add_argument(
        "--unpack",
        action="store_true",
        help="put folders in the place of Spark's archives, which saves each process another 0.2 s "
        "of CPU, in Python up to 3.12. Not where this Spark submits to YARN, which ships the "
        "archives; and stop applications before. To go back, put the archives that are kept "
        "beside (NAME.packed) in the folders' place",
    )


def run(arguments: argparse.Namespace) -> int:
    """Do both: the loops first, which need no right to change Spark."""
    _compile_loops()
    archives = bytecode.archives()
    if not archives:
        print("PySpark: no archives of a Spark are found here")
    for archive in archives:
        began = time.monotonic()
        if arguments.unpack and not archive.is_dir():
            modules, done = bytecode.unpack(archive), "is a folder now,"
        elif bytecode.has_bytecode(archive):
            print(f"{archive}: has bytecode already")
            continue
        else:
            modules, done = bytecode.add(archive), "got"
        took = f"for Python {platform.python_version()} ({time.monotonic() - began:.0f} s)"
        print(f"{archive}: {done} bytecode of {modules} modules, {took}")
    return 0


def _compile_loops() -> None:
    reason = librdkafka.available()
    if reason is not None:
        print(f"compiled loops: cannot be used here, which is slow ({reason})")
        return
    from .loops import USES

    began = time.monotonic()
    with bar("Compiling loops", unit=" parts") as told:
        for done, (name, use) in enumerate(USES.items()):
            told(done, len(USES))
            if name != "avro" or importlib.util.find_spec("fastavro"):
                use()
        told(len(USES), len(USES))
    if loops.why_not_kept:
        raise EnvironmentRefused("Compiled loops were not kept: see the warning.")
    print(f"compiled loops: in {loops.cache_folder()} ({time.monotonic() - began:.0f} s)")
