"""`eo-kafka explain`: what a job guarantees, by its weakest link.

Exit codes: 0 told (and as strong as --require asks); 1 it could not be told; 2 wrong usage; 3 the
guarantee is weaker than --require asks.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from ...core.errors import OptionsError
from ..shared.command_line import add_json, job_connection, print_json
from ..shared.job_function import add_config, config_of
from .facts import Guarantee
from .query import Given, read
from .verdict import Explanation

WEAKER = 3
_WORDS = [Guarantee.EXACTLY_ONCE.word, Guarantee.AT_LEAST_ONCE.word]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Read a job's plan and options, and tell what it guarantees. Starts no query and changes "
        "nothing."
    )
    parser.add_argument(
        "function",
        nargs="?",
        metavar="MODULE:FUNCTION",
        help="the function build(spark, config) that returns the DataStreamWriter; it is imported "
        "from this folder, or from where Python finds modules",
    )
    add_config(parser)
    parser.add_argument(
        "--job",
        help="instead of a function: the job whose plan was recorded by "
        "eo_kafka.explain(query, record=True)",
    )
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="NAME",
        help="a Python function that you answer for: the same output for the same input",
    )
    parser.add_argument(
        "--require",
        choices=_WORDS,
        help=f"exit with {WEAKER} if the guarantee is weaker",
    )
    parser.add_argument(
        "--no-cluster", action="store_true", help="do not ask the sink's Kafka for anything"
    )
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help="with --job: the brokers to start from; with a function: its config "
        "'bootstrap_servers'",
    )
    parser.add_argument(
        "--client-config",
        type=Path,
        metavar="FILE",
        help="with --job: client settings, a name=value each line",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Explain and print; the exit code. Raises EoKafkaError."""
    _check(arguments)
    given, told = _of_job(arguments) if arguments.job else _of_function(arguments)
    from .explaining import explained

    found = explained(given, arguments.trust, not arguments.no_cluster)
    if told:
        found = replace(found, warnings=(told, *found.warnings))
    if arguments.json:
        print_json(found.to_dict())
    else:
        sys.stdout.write(str(found))
    return _code(found, arguments.require)


def _check(arguments: argparse.Namespace) -> None:
    if bool(arguments.job) == bool(arguments.function):
        raise OptionsError(["Explain what? Give MODULE:FUNCTION, or --job NAME."])
    if arguments.job and arguments.config:
        raise OptionsError(["--config is for a function: the plan of a --job is recorded."])
    if arguments.function and arguments.client_config:
        raise OptionsError(["--client-config is for --job: a function has its own settings."])


def _code(found: Explanation, required: str | None) -> int:
    if required is None or found.is_at_least(required):
        return 0
    print(
        f"eo-kafka explain: {required} is required, and it is {found.guarantee}.", file=sys.stderr
    )
    return WEAKER


def _of_function(arguments: argparse.Namespace) -> tuple[Given, str]:
    from .build import build, session

    config = config_of(arguments.config)
    if arguments.bootstrap_servers:
        config["bootstrap_servers"] = arguments.bootstrap_servers
    spark = session()
    return read(build(arguments.function, config, spark)), ""


def _of_job(arguments: argparse.Namespace) -> tuple[Given, str]:
    from .recorded import recorded

    options = job_connection(arguments)
    pipeline, made_ms = recorded(arguments.job, options)
    made = datetime.fromtimestamp(made_ms / 1000, timezone.utc)
    told = f"This is the plan as it was recorded at {made:%Y-%m-%d %H:%M:%S} UTC."
    sink = pipeline.sink.options if pipeline.sink else {}
    return Given(pipeline, {**sink, **options}), told
