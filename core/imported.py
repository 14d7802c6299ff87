"""What an option names as `module:function` or `module:class`. Driver and executors."""

from __future__ import annotations

import importlib
import socket
from typing import Any

from .errors import cut


def imported(name: str, what: str) -> Any:
    """It, imported here; `what` it is, a function or a class. Raises ValueError."""
    module, separator, attribute = name.partition(":")
    if not (separator and module and attribute.isidentifier()):
        raise ValueError(f"must be 'module:{what}'")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the user's module does when it is imported
        raise ValueError(
            f"cannot be imported on host {socket.gethostname()} "
            f"({type(error).__name__}: {cut(error)})"
        ) from None
    if not callable(found):
        raise ValueError(f"is no {what}")
    return found
