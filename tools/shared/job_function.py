"""Finds a job's function by its name, `module:function`, and what it is given as its config."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ...core.errors import OptionsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Config(dict[str, str]):
    """What is missing is told by the option's name."""

    def __missing__(self, name: str) -> str:
        raise OptionsError([f"The function asks for config['{name}']: give --config {name}=..."])


def add_config(parser: argparse.ArgumentParser) -> None:
    """Declare --config, whose words `config_of` reads."""
    parser.add_argument(
        "--config",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE | FILE.toml",
        help="what the function finds in its config; of a key that is there twice, the last",
    )


def config_of(words: Sequence[str]) -> dict[str, str]:
    """What --config was given: KEY=VALUE, or a TOML file. Raises OptionsError."""
    found: dict[str, str] = {}
    problems: list[str] = []
    for word in words:
        key, equals, value = word.partition("=")
        if word.endswith(".toml") and (not equals or Path(word).is_file()):
            try:
                found.update(_of_file(word))
            except OptionsError as error:
                problems += error.problems
        elif equals:
            found[key] = value
        else:
            problems.append(f"--config takes KEY=VALUE or FILE.toml, and '{word}' is neither.")
    if problems:
        raise OptionsError(problems)
    return found


def _of_file(name: str) -> dict[str, str]:
    try:
        return dict(_flat(tomllib.loads(Path(name).read_text("utf-8"))))
    except OSError as error:
        raise OptionsError([f"--config {name}: {error.strerror}."]) from None
    except ValueError as error:  # TOML's own tells where, and at most a character
        raise OptionsError([f"--config {name} is not TOML: {error}."]) from None


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """`[kafka]` with `acks` in it is `kafka.acks`. Raises OptionsError."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        elif isinstance(value, list):
            raise OptionsError([f"--config: '{above}{name}' is a list: give text or a number."])
        else:
            yield f"{above}{name}", str(value).lower() if isinstance(value, bool) else str(value)


def pairs(words: Sequence[str], option: str) -> dict[str, str]:
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
    try:
        found: Callable[..., Any] = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # it is there, and imports another one that is not
        raise ImportError(
            f"No module named '{error.name}' in {os.getcwd()}, nor where Python looks for them. "
            f"Start the command in the folder of '{error.name}', or install it."
        ) from None
    return found
