"""`eo-kafka run`: a job's driver, started again when it died, unless that would not help.

Exit codes: 0 the job ended in order, or was asked to end and did; 1 gave up; 2 wrong usage; 3 an
error needs a person; 4 a newer driver has the job; 5 it was asked to end, and did not in order;
6 it was cancelled.
"""

from __future__ import annotations

import argparse
import errno
import json
import logging
import os
import random
import shlex
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ...core.errors import EnvironmentRefused, OptionsError
from ...core.process.log_lines import show_from
from ...core.progress import TERMINAL_VARIABLE, terminal_width
from ..shared.job_function import add_config, config_of, pairs
from .control_options import Controlled, add_control, orders_of, read_control
from .driver import Driver
from .guard import LEASE_S
from .health import Answer, address, probes, served
from .metrics import check_installed, exposed
from .policy import DEFAULT, HOW, Policy, Restarts, parse, seconds_of
from .status import COMMAND, DriverWords
from .supervisor import ExitCode, Supervisor

METRICS = "metrics.prom"  # beside the status
WRONG = ("cluster",)  # of --deploy-mode: the driver would be elsewhere


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Run a job's driver, and start it again when it died. An error that another start would "
        "not mend is told, and ends this. Options stand before a script's name: what stands "
        "behind it is the script's."
    )
    _add_options(parser)
    parser.add_argument(
        "job",
        metavar="MODULE:FUNCTION | SCRIPT",
        help="the function build(spark, config) that returns the DataStreamWriter, or a script",
    )
    parser.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="...", help="a script's own arguments"
    )
    parser.set_defaults(prog=parser.prog)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_control(parser)
    parser.add_argument(
        "--conf",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="settings of the function's Spark, such as spark.master=local[4]",
    )
    parser.add_argument(
        "--submit",
        "--spark-submit-args",
        metavar='"ARGS"',
        help="start it by spark-submit with these arguments: --submit='--master yarn'",
    )
    parser.add_argument(
        "--restart", default=DEFAULT, metavar="POLICY", help=f"{HOW}; default: {DEFAULT}"
    )
    parser.add_argument(
        "--give-up-after",
        metavar="N[/TIME]",
        help="give up at the Nth failure within TIME ('10/1h'), or in a row; default: never",
    )
    parser.add_argument(
        "--grace",
        default="60s",
        metavar="TIME",
        help="how long the running batch may take when SIGTERM or SIGINT came; default: 60s",
    )
    parser.add_argument("--once", action="store_true", help="end when the input is through")
    parser.add_argument(
        "--health",
        metavar="[HOST:]PORT",
        help="answer /live and /ready there; default host: loopback",
    )
    parser.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        help="answer /metrics there, for Prometheus (docs/metrics.md); default host: loopback",
    )
    parser.add_argument(
        "--stuck-after",
        default="10m",
        metavar="TIME",
        help="call a query stuck that has input and has ended no batch for so long; default: 10m",
    )


@dataclass(frozen=True)
class Wanted:
    """What was asked for, checked. `function` or `script` is empty."""

    function: str
    script: tuple[str, ...]
    config: dict[str, str]
    conf: dict[str, str]
    submit: tuple[str, ...] | None  # the command, and its arguments
    policy: Policy
    grace_s: float
    once: bool
    health: tuple[str, int] | None
    metrics: tuple[str, int] | None
    stuck_after_s: float
    control: Controlled | None  # by --job


def run(arguments: argparse.Namespace) -> int:
    """Run the job to its end; the exit code."""
    try:
        wanted = checked(arguments)
        with tempfile.TemporaryDirectory(prefix="eo-kafka-run-") as folder:
            return _supervised(wanted, Path(folder))
    except OptionsError as error:
        for problem in error.problems:
            print(f"{arguments.prog}: {problem}", file=sys.stderr)
        return ExitCode.USAGE
    except EnvironmentRefused as error:  # of the control topic
        print(f"{arguments.prog}: {error}", file=sys.stderr)
        return ExitCode.GAVE_UP if error.retriable else ExitCode.PERSON


def _supervised(wanted: Wanted, folder: Path) -> ExitCode:
    show_from(logging.INFO)

    def start() -> Driver:
        return _started(wanted, folder)

    restarts = Restarts(wanted.policy, random.random)
    supervisor = Supervisor(start, restarts, wanted.grace_s, wanted.stuck_after_s)
    for number in (signal.SIGTERM, signal.SIGINT):  # before all that takes time
        signal.signal(number, supervisor.ask_to_end)
    try:
        supervisor.obey(orders_of(wanted.control))
    except EnvironmentRefused:
        if supervisor.is_asked:
            return ExitCode.IN_ORDER
        raise
    of_health, of_metrics = probes(supervisor.view), dict[str, Answer]()
    if wanted.metrics:
        of_metrics = {"metrics": exposed(supervisor.view, folder / METRICS)}
    with (
        served("--health", wanted.health, of_health),
        served("--metrics", wanted.metrics, of_metrics),
    ):
        return supervisor.run()


def _started(wanted: Wanted, folder: Path) -> Driver:
    variables = {
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        TERMINAL_VARIABLE: str(terminal_width()),
    }
    program = list(wanted.script)
    _make_again(folder)
    bare = {} if wanted.submit else {"spark.ui.showConsoleProgress": "false"}  # it is a log
    status = None
    if wanted.function:
        status = folder / "status.json"
        metrics = folder / METRICS
        for of_last_run in (status, metrics):
            of_last_run.unlink(missing_ok=True)
        words = DriverWords(
            wanted.function,
            wanted.config,
            {**bare, **wanted.conf},
            wanted.once,
            wanted.grace_s,
            str(status),
            wanted.control.job if wanted.control else "",
            str(metrics) if wanted.metrics else "",
        )
        told = folder / "driver.json"  # no argument: others can see those, and it may hold secrets
        told.write_text(json.dumps(asdict(words)))
        program = ["-c", COMMAND, str(told)]
        if wanted.submit is not None:
            script = folder / "driver.py"
            script.write_text(f"{COMMAND}\n")
            program = [str(script), str(told)]
        found = [os.getcwd(), os.environ.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, found))
    first = [sys.executable] if wanted.submit is None else list(wanted.submit)
    lease_s = LEASE_S if wanted.control else 0.0
    return Driver([*first, *program], variables, status, lease_s)


def _make_again(folder: Path) -> None:
    """A supervisor stands by or is suspended for weeks, and what is old in /tmp is cleaned away.
    What is made there instead by another user gets no secrets of ours. Raises OSError."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise PermissionError(errno.EPERM, f"'{folder}' is not this supervisor's any more")


def checked(arguments: argparse.Namespace) -> Wanted:
    """Raises OptionsError with all that is wrong."""
    is_function = ":" in arguments.job and not Path(arguments.job).exists()
    if is_function and arguments.rest:  # a function has no arguments: these are ours
        parser = argparse.ArgumentParser(prog=arguments.prog, usage="see --help")
        _add_options(parser)
        parser.parse_args(arguments.rest, arguments)
    problems: list[str] = []
    policy, config, conf, submit = Policy(), {}, {}, None
    with _collected(problems):
        policy = parse(arguments.restart, arguments.give_up_after)
    with _collected(problems):
        config = config_of(arguments.config)
    with _collected(problems):
        conf = pairs(arguments.conf, "--conf")
    with _collected(problems):
        submit = _submit(arguments.submit)
    if not is_function:
        problems += _problems_of_script(arguments)
    grace_s = seconds_of("--grace", arguments.grace, problems)
    stuck_after_s = seconds_of("--stuck-after", arguments.stuck_after, problems)
    health = address("--health", arguments.health, problems) if arguments.health else None
    metrics = None
    if arguments.metrics:
        metrics = address("--metrics", arguments.metrics, problems)
        with _collected(problems):
            check_installed()
    control = None
    with _collected(problems):
        control = read_control(arguments)
    if problems:
        raise OptionsError(problems)
    return Wanted(
        function=arguments.job if is_function else "",
        script=() if is_function else (arguments.job, *arguments.rest),
        config=config,
        conf=conf,
        submit=submit,
        policy=policy,
        grace_s=grace_s,
        once=arguments.once,
        health=health,
        metrics=metrics,
        stuck_after_s=stuck_after_s,
        control=control,
    )


@contextmanager
def _collected(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except OptionsError as error:
        problems += error.problems


def _problems_of_script(arguments: argparse.Namespace) -> list[str]:
    problems = []
    if not Path(arguments.job).is_file():
        problems.append(f"'{arguments.job}' is neither MODULE:FUNCTION nor a file that is there.")
    for option, given in (
        ("--config", arguments.config),
        ("--conf", arguments.conf),
        ("--once", arguments.once),
    ):
        if given:
            problems.append(f"{option} is for MODULE:FUNCTION: a script has its own arguments.")
    return problems


def _submit(text: str | None) -> tuple[str, ...] | None:
    """Raises OptionsError."""
    if text is None:
        return None
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise OptionsError([f"--submit cannot be read: {error}."]) from None
    if any(word in WRONG or word.endswith("=cluster") for word in words):
        raise OptionsError(
            ["--submit with the deploy mode 'cluster': the driver would run elsewhere, unwatched."]
        )
    home = os.environ.get("SPARK_HOME")
    places = [str(Path(home, "bin"))] if home else []
    places += [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    found = shutil.which("spark-submit", path=os.pathsep.join(places))
    if found is None:
        raise OptionsError(["--submit: there is no spark-submit in SPARK_HOME or on the PATH."])
    return (found, *words)
