"""What the commands share: connection arguments, JSON output, tables."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import OptionsError
from ...core.options import KAFKA_PREFIX

WIDTH = 100
_SERVERS = "bootstrap.servers"


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Declare --bootstrap-servers and --config."""
    parser.add_argument(
        "--bootstrap-servers", metavar="HOST:PORT,...", help="the brokers to start from"
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="client settings, a name=value each line, as the options 'kafka.<name>'",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Declare --json."""
    parser.add_argument("--json", action="store_true", help="as one JSON object, for scripts")


def connection(arguments: argparse.Namespace) -> dict[str, str]:
    """The options `kafka.*` that the arguments give. Raises as `connection_to`."""
    return connection_to(arguments.bootstrap_servers, arguments.config)


def job_connection(arguments: argparse.Namespace) -> dict[str, str]:
    """The same of --bootstrap-servers and --client-config, where --job needs them and --config is
    a function's."""
    return connection_to(
        *(arguments.bootstrap_servers, arguments.client_config, "--client-config"),
        "Which Kafka is the job's? --job needs --bootstrap-servers, or a --client-config",
    )


def connection_to(
    servers: str | None,
    config: Path | None,
    argument: str = "--config",
    which: str = "Which Kafka? Give --bootstrap-servers, or a --config file",
) -> dict[str, str]:
    """The options `kafka.*` of `servers` and the file that `argument` names; the first win.

    Raises OptionsError, which asks `which` if there are no servers; no value of the file is in it,
    since it may be a secret.
    """
    settings = read_settings(config, argument) if config else {}
    settings = {name.removeprefix(KAFKA_PREFIX): value for name, value in settings.items()}
    if servers:
        settings[_SERVERS] = servers
    if not settings.get(_SERVERS, "").strip():
        raise OptionsError([f"{which} with {_SERVERS}=."])
    return {f"{KAFKA_PREFIX}{name}": value for name, value in settings.items()}


def read_settings(path: Path, argument: str) -> dict[str, str]:
    """A file with a name=value each line, which `argument` names. Raises OptionsError."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OptionsError([f"{argument} {path} cannot be read: {reason}."]) from None
    settings = {}
    for number, line in enumerate(lines, 1):
        name, separator, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not separator:
            raise OptionsError([f"Line {number} of {path} has no '=': a name=value is expected."])
        settings[name.strip()] = value.strip()
    return settings


def print_json(shown: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    json.dump(shown, sys.stdout, indent=2)
    sys.stdout.write("\n")


def on_terminal(text: str) -> str:
    """As it may stand on a terminal. Others choose some names (transactional ids), which may hold
    what moves the cursor: such a one is quoted, as Python writes it."""
    return text if text.isprintable() else repr(text)


def table(titles: Sequence[str], rows: Sequence[Sequence[object]], right: str = "") -> str:
    """Columns two spaces apart, as wide as their widest cell. `right` names the titles, between
    blanks, whose columns are aligned to the right."""
    cells = [[on_terminal(str(cell)) for cell in row] for row in (titles, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(titles))]
    aligned: list[Callable[[str, int], str]] = [
        str.rjust if title in right.split() else str.ljust for title in titles
    ]
    return "\n".join(
        "  ".join(
            align(cell, width) for align, cell, width in zip(aligned, row, widths, strict=True)
        ).rstrip()
        for row in cells
    )


def wrapped(head: str, text: str) -> str:
    """At most WIDTH wide, all of `text` to the right of `head`; what can be copied stays whole."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )


def duration(seconds: float) -> str:
    """Seconds for people: `3.2 s`, `14 min`, `5 h`, `9 d`; with a minus sign where it is past."""
    size, sign = abs(seconds), "-" if seconds < 0 else ""
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if size >= 2 * unit:
            return f"{sign}{size / unit:.0f} {name}"
    return f"{sign}{size:.1f} s"
