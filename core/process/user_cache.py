"""The folder where what took long to make or to fetch is kept for this user."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/eo-kafka`, otherwise `~/.cache/eo-kafka`. Raises OSError where there is
    neither: the user of a container may have no name, and then it has no home without HOME."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        raise FileNotFoundError("this user has no home directory") from None
    return Path(base, "eo-kafka")
