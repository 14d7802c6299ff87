"""`eo-kafka watch`: a cluster's jobs, or one with its newest batches, again every few seconds.

It shows what `job list` and `job history` say, reads only, and fences nobody.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

from ...core.errors import EnvironmentRefused, EoKafkaError, OptionsError
from ..run.policy import seconds_of
from ..shared.command_line import add_connection, add_json, print_json
from . import report
from .command import LEFT_OUT, settings_of
from .standing import Standing, State
from .survey import Onlooking

HOME, TO_LINES_END, TO_PAGES_END = "\x1b[H", "\x1b[K", "\x1b[J"  # over the last one, no flicker
BATCHES = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("job", nargs="?", help="show this one with its newest batches")
    parser.add_argument(
        "--every", default="2s", metavar="TIME", help="look again after so long; default: 2s"
    )
    parser.add_argument("--once", action="store_true", help="look once, and end")
    add_connection(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Until it is interrupted. With --once: code 3 if a ledger cannot be read, as `job list`, and
    raises EoKafkaError, also where the job has no ledger."""
    problems: list[str] = []
    every_s = seconds_of("--every", arguments.every, problems)
    if arguments.json and not arguments.once:
        problems.append("--json needs --once: it is one JSON object.")
    if problems:
        raise OptionsError(problems)
    onlooking = Onlooking(settings_of(arguments))
    if arguments.once:
        return _once(arguments, onlooking)
    return _until_interrupted(lambda: _show(_said(onlooking, arguments.job)), every_s)


def _until_interrupted(look: Callable[[], None], every_s: float) -> int:
    interrupted = False  # no threading.Event: the handler would wait for a lock it interrupted

    def interrupt(signum: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        while not interrupted:
            began = time.monotonic()
            look()
            if not interrupted:
                time.sleep(max(0.0, every_s - (time.monotonic() - began)))
    except BaseException:
        # Client libraries in C make an error of their own of a KeyboardInterrupt, or drop it:
        # confluent-kafka's AdminClient raises "TypeError: expected configuration property name".
        if not interrupted:
            raise
    return 0


def _once(arguments: argparse.Namespace, onlooking: Onlooking) -> int:
    found, now_ms = _look(onlooking, arguments.job), int(time.time() * 1000)
    if arguments.json:
        print_json({"jobs": [_as_json(one, now_ms, arguments.job) for one in found]})
    else:
        print(_text(found, now_ms, arguments.job))
    return LEFT_OUT if any(one.state is State.UNREADABLE for one in found) else 0


def _said(onlooking: Onlooking, job: str | None) -> str:
    """A cluster that does not answer may do so at the next look."""
    try:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        return _text(_look(onlooking, job), int(time.time() * 1000), job, width)
    except EoKafkaError as error:
        return f"{error}"


def _look(onlooking: Onlooking, job: str | None) -> list[Standing]:
    found = onlooking.look(job)
    if job is not None and not found:
        raise EnvironmentRefused(
            f"No ledger of job '{job}' is seen here: 'eo-kafka job list' names those that are."
        )
    return found


def _text(found: list[Standing], now_ms: int, job: str | None, width: int | None = None) -> str:
    lines = [time.strftime("%H:%M:%S", time.localtime(now_ms / 1000)), ""]
    lines.append(report.listing(found, now_ms, width) if found else "No job has a ledger here.")
    for one in found if job is not None else ():
        if one.tail is not None and one.newest is not None:
            lines += ["", report.history(one.tail, BATCHES, now_ms)]
    return "\n".join(lines)


def _as_json(one: Standing, now_ms: int, job: str | None) -> dict[str, Any]:
    shown = report.as_json(one, now_ms)
    if job is not None and one.tail is not None:
        shown["batches"] = [report.batch(b, one.tail) for b in report.newest(one.tail, BATCHES)]
    return shown


def _rows(line: str, width: int) -> list[str]:
    """A sentence goes on in the next row; a table's line, which has gaps, does not."""
    inner = line.lstrip()
    if len(line) <= width or "  " in inner:
        return [line[:width]]
    indent = " " * (len(line) - len(inner))
    return textwrap.wrap(inner, width, initial_indent=indent, subsequent_indent=indent)


def _show(text: str) -> None:
    """On a terminal in place of the last one, and no more than it has room for."""
    if sys.stdout.isatty():
        width, height = shutil.get_terminal_size()
        lines = [row for line in text.splitlines() for row in _rows(line, width)][: height - 1]
        text = HOME + "".join(f"{line}{TO_LINES_END}\n" for line in lines) + TO_PAGES_END
    else:
        text += "\n\n"
    print(text, end="", flush=True)
