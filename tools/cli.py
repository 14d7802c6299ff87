"""The command `eo-kafka`: finds the subcommand and runs it.

One line in `COMMANDS` adds a command. Its module is imported only when the command is used (some
live above `core`, and some import heavy clients), and has two functions:

    add_arguments(parser: argparse.ArgumentParser) -> None
    run(arguments: argparse.Namespace) -> int        the exit code; EoKafkaError is printed, code 1
"""

from __future__ import annotations

import argparse
import importlib
import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import NamedTuple, TextIO

from ..core.build import mark
from ..core.errors import EoKafkaError


class Command(NamedTuple):
    """What the user types after `eo-kafka`, one line of help, and the module that does it."""

    words: str
    help: str
    module: str


COMMANDS = (
    Command("new", "write a project of a template, with its test", "eo_kafka.tools.new.command"),
    Command("broker", "run a real Kafka on this machine", "eo_kafka.tools.broker_command"),
    Command(
        "hazelcast", "run a real Hazelcast on this machine", "eo_kafka.tools.hazelcast_command"
    ),
    Command(
        "registry", "run a real schema registry on this machine", "eo_kafka.tools.registry_command"
    ),
    Command("run", "keep a job running: start its driver again", "eo_kafka.tools.run.command"),
    Command("watch", "show jobs again and again", "eo_kafka.tools.jobs.watch"),
    Command("ui", "show jobs as a page, in a browser", "eo_kafka.tools.ui.command"),
    Command("job", "list jobs, ask for something, repair one", "eo_kafka.tools.job_command"),
    Command(
        "snapshots",
        "list, export, verify and restore a job's snapshots",
        "eo_kafka.tools.snapshots.command",
    ),
    Command(
        "txn", "look at transactions, commit or abort them", "eo_kafka.tools.transactions.command"
    ),
    Command("topic", "create, list and describe topics", "eo_kafka.tools.topic_command"),
    Command(
        "prepare",
        "let Spark's Python processes start sooner on this machine",
        "eo_kafka.tools.prepare.command",
    ),
    Command("doctor", "check this machine and a Kafka cluster", "eo_kafka.tools.doctor.command"),
    Command("explain", "tell what a job guarantees, and why", "eo_kafka.tools.explain.command"),
    Command(
        "verify", "compare two topics, naming lost and repeated", "eo_kafka.tools.verify.command"
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (default: the process's arguments) names; the exit code.

    0 done, 1 failed with a sentence on stderr, 2 (as SystemExit) wrong usage.
    """
    _open_what_is_closed()
    code = 0
    try:
        try:
            code = _done(list(sys.argv[1:] if argv is None else argv))
        finally:
            sys.stdout.flush()
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _has_nobody_who_reads(sys.stdout):
            code = 128 + signal.SIGPIPE
        elif _is_refused(sys.stdout):
            print(f"eo-kafka: stdout cannot be written: {error.strerror}.", file=sys.stderr)
            code = code or 1
        else:
            raise
        # what is left goes nowhere, or Python would say so again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _done(words: list[str]) -> int:
    if words == ["--version"]:
        print(f"eo-kafka {mark()}")
        return 0
    for command in COMMANDS:
        name = command.words.split()
        if words[: len(name)] == name:
            return _run(command, words[len(name) :])
    _overview().parse_args(words)  # --help, or what is wrong
    return 2


def _run(command: Command, words: list[str]) -> int:
    module = importlib.import_module(command.module)
    parser = argparse.ArgumentParser(prog=f"eo-kafka {command.words}", description=command.help)
    module.add_arguments(parser)
    try:
        code: int = module.run(parser.parse_args(words))
    except EoKafkaError as error:
        print(f"eo-kafka {command.words}: {error}", file=sys.stderr)
        return 1
    return code


def _open_what_is_closed() -> None:
    """Who started this may have closed a stream (`>&-`): Python has None for it, and the next file
    or socket would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - to the end


def _has_nobody_who_reads(output: TextIO) -> bool:
    """Whether it goes to a program that has read enough, as in `eo-kafka topic list | head -1`."""
    reader = select.poll()
    reader.register(output.fileno(), 0)
    return bool(reader.poll(0))


def _is_refused(output: TextIO) -> bool:
    """Whether what is left for it cannot be written: its disk is full, say."""
    try:
        output.flush()
    except OSError:
        return True
    return False


def _overview() -> argparse.ArgumentParser:
    width = max(len(command.words) for command in COMMANDS)
    lines = (f"  {command.words:<{width}}  {command.help}" for command in COMMANDS)
    parser = argparse.ArgumentParser(
        prog="eo-kafka",
        usage="eo-kafka COMMAND [OPTIONS]",
        description="Exactly-once Kafka for PySpark.\n\ncommands:\n" + "\n".join(lines),
        epilog="'eo-kafka COMMAND --help' tells a command's options.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # none of the words above was given, so that any word is a wrong one
    parser.add_argument(
        "command",
        metavar="COMMAND",
        choices=[one.words for one in COMMANDS],
        help=argparse.SUPPRESS,
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
