"""Finds a job's function by its name, `module:function`, and what it is given as its config."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from ...core.errors import OptionsError


class Config(dict[str, str]):
    """What is missing is told by the option's name."""

    def __missing__(self, name: str) -> str:
        raise OptionsError([f"The function asks for config['{name}']: give --config {name}=..."])


def add_config(parser: argparse.ArgumentParser) -> None:
    """Declare --config, whose words `pairs` reads."""
    parser.add_argument(
        "--config",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="what the function finds in its config",
    )


def pairs(words: Sequence[str], option: str = "--config") -> dict[str, str]:
    """What an option was given as KEY=VALUE. Raises OptionsError."""
    wrong = [word for word in words if "=" not in word]
    if wrong:
        raise OptionsError([f"{option} takes KEY=VALUE, and '{word}' is none." for word in wrong])
    return dict(word.split("=", 1) for word in words)


def job_function(name: str) -> Callable[..., Any]:
    """What `module:function` names. Raises ValueError, ImportError or AttributeError."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise ValueError(f"'{name}' is not 'module:function', as 'my_app.pipeline:build' is.")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found
