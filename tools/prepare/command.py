"""`eo-kafka prepare`: lets Spark's Python processes start sooner on this machine, or in this image.

Exit codes: 0 done, or nothing to do; 1 failed; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import time

from ...core import compiled, librdkafka
from . import bytecode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Run it once where a driver or executors run, or in their image, with the Python that\n"
        "PYSPARK_PYTHON names, as the user of the workers.\n\n"
        "- Adds bytecode to Spark's pyspark.zip. Spark starts half a dozen Python processes for a\n"
        "  query; without bytecode each compiles PySpark anew, for half a second of CPU.\n"
        "- Compiles the loops that otherwise the first query on a machine compiles."
    )


def run(arguments: argparse.Namespace) -> int:
    """Do both."""
    del arguments
    version = platform.python_version()
    for archive in bytecode.archives():
        began = time.monotonic()
        if bytecode.has_bytecode(archive):
            print(f"{archive}: has bytecode already")
            continue
        modules = bytecode.add(archive)
        took = time.monotonic() - began
        print(
            f"{archive}: bytecode of {modules} modules added, for Python {version} ({took:.0f} s)"
        )
    reason = librdkafka.available()
    if reason is not None:
        print(f"compiled loops: cannot be used here, which is slow ({reason})")
        return 0
    from .loops import USES

    began = time.monotonic()
    for name, use in USES.items():
        if name != "avro" or importlib.util.find_spec("fastavro"):
            use()
    print(f"compiled loops: in {compiled.cache_folder()} ({time.monotonic() - began:.0f} s)")
    return 0
