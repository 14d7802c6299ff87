"""The directory that all Python processes of a driver are told, and that is this driver's alone."""

from __future__ import annotations

import os

_DIRECTORIES = "SPARK_LOCAL_DIRS"  # Spark's word for it, before the first of several a comma


def driver_directory() -> str:
    """Where it is; empty outside of Spark's processes. Spark removes it when the driver ends."""
    found = os.environ.get(_DIRECTORIES, "").split(",")[0]
    return found if os.path.isdir(found) else ""
