"""The directory that all Python processes of a driver are told, and that is this driver's alone."""

from __future__ import annotations

import os
import sys

_DIRECTORIES = "SPARK_LOCAL_DIRS"  # Spark's word for it, before the first of several a comma


def driver_directory() -> str:
    """Where it is; empty if it is not told. In the processes that Spark starts it is the driver's,
    and Spark removes it when the driver ends; elsewhere it may be what an administrator set."""
    found = os.environ.get(_DIRECTORIES, "").split(",")[0]
    return found if os.path.isdir(found) else ""


def is_sparks() -> bool:
    """Whether Spark started this process, which is none of the user's programs then."""
    started_as = getattr(sys.modules.get("__main__"), "__spec__", None)
    return started_as is not None and started_as.name.startswith("pyspark.")
