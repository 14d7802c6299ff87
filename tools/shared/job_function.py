"""Finds a job's function by its name, `module:function`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def job_function(name: str) -> Callable[..., Any]:
    """What `module:function` names. Raises ValueError, ImportError or AttributeError."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise ValueError(f"'{name}' is not 'module:function', as 'my_app.pipeline:build' is.")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found
