"""`eo-kafka new TEMPLATE FOLDER`: writes a project that runs, with its test.

Exit codes: 0 done; 1 refused, and nothing was written; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from ...core.errors import EoKafkaError
from ..shared.command_line import table
from . import project

_ASKED = {
    "production_servers": "Kafka in production, as HOST:PORT,... (empty: later, in config.toml)",
    "production_checkpoint": "Where its checkpoint is kept, as s3a://... (empty: later)",
}


class _List(argparse.Action):
    """Needs no other argument, as --help does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(table(("template", "question"), [*project.questions().items()]))
        parser.exit()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("template", help="one of those that --list names")
    parser.add_argument("folder", type=Path, help="a new one, or an empty one")
    parser.add_argument(
        "--list", action=_List, nargs=0, help="name the templates, and write nothing"
    )
    parser.add_argument(
        "--name", help="of the job, after which topics are named; default: the folder's"
    )
    parser.add_argument(
        "--dev-servers",
        metavar="HOST:PORT",
        default=project.DEV_SERVERS,
        help=f"Kafka to try it on; default: {project.DEV_SERVERS}",
    )
    parser.add_argument(
        "--production-servers",
        metavar="HOST:PORT,...",
        help="Kafka in production; asked for in a terminal, else to be filled in later",
    )
    parser.add_argument(
        "--production-checkpoint",
        metavar="URL",
        help="where the checkpoint is kept in production; asked for in a terminal, as above",
    )


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit code. Raises EoKafkaError."""
    template, folder = project.checked(arguments.template), arguments.folder
    project.check_place(folder, arguments.name)  # before anybody is asked
    answers = {asked: getattr(arguments, asked) or _answer(asked) for asked in _ASKED}
    production = {
        "bootstrap_servers": answers["production_servers"],
        "checkpoint": answers["production_checkpoint"],
    }
    name = project.make(template, folder, arguments.name, production, arguments.dev_servers)
    print(f"'{folder}' is a project for job '{name}'. Its README.md says how to try it:\n")
    steps = project.steps(template, arguments.dev_servers)
    lines = (f"cd {shlex.quote(str(folder))}", *steps, "pytest")
    print("\n".join(f"  {one}" for one in lines))
    return 0


def _answer(asked: str) -> str:
    """What somebody at a terminal says; nothing where nobody is."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return ""
    try:
        return input(f"{_ASKED[asked]}: ").strip()
    except (EOFError, KeyboardInterrupt):
        print()
        raise EoKafkaError("Nobody answered. Nothing was written.") from None
