"""`eo-kafka doctor`: checks whether this machine and this Kafka are as exactly-once needs them.

Exit codes: 0 nothing is wrong (there may be warnings); 1 something is, or it could not be found
out; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from ...clients.kafka import topics as kafka_topics
from ...clients.kafka.control_plane import ControlPlane
from ...core.errors import EnvironmentRefused, OptionsError
from ...sinks.options import TOPIC, UPDATE_MODE, SinkOptions
from ...state.ledger import topics
from ...state.ledger.job import JOB_NAME, LEDGER, PREFIX, STATE
from ..shared.command_line import add_connection, add_json, connection, print_json, wrapped
from .cluster_check import check_cluster
from .machine_check import Finding, Level, check_machine
from .table_check import check_table
from .topic_rehearsal import rehearse

CHECKING = (topics.log, kafka_topics.log)  # they warn of what they could not see


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Check this machine and, with --bootstrap-servers or --config, a Kafka cluster. Changes "
        "nothing, unless --write is given."
    )
    parser.add_argument("--topic", help="the output topic (option topic)")
    parser.add_argument("--dead-letter-topic", help="the topic of bad records (deadLetterTopic)")
    parser.add_argument(
        "--job",
        help="the job (option jobName): all topics of its own are checked",
    )
    parser.add_argument("--ledger-topic", help="if the job has option ledgerTopic")
    parser.add_argument("--state-topic", help="if the job has option stateTopic")
    parser.add_argument("--prefix", default=PREFIX.default, help="option transactionalIdPrefix")
    parser.add_argument(
        "--write",
        action="store_true",
        help="also open a transaction on --topic and abort it: checks permissions, compares clocks",
    )
    parser.add_argument(
        "--table-config",
        type=Path,
        metavar="FILE",
        help="a table of PostgreSQL that a job writes: its options 'url', 'table', 'keys' and so "
        "on, a name=value each line; with a cluster also what jobs have left beside it",
    )
    add_connection(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check and print; the exit code. Raises OptionsError."""
    options = _options(arguments)
    findings = check_machine()
    findings.append(Finding(Level.NOTE, "update mode", UPDATE_MODE))
    if options is None:
        text = "not checked: --bootstrap-servers or --config names one"
        findings.append(Finding(Level.NOTE, "Kafka", text))
    else:
        with told_as_findings():
            findings += _cluster(options, arguments.write)
    if arguments.table_config:
        named = {arguments.ledger_topic: arguments.job} if arguments.ledger_topic else {}
        kafka = options.kafka if options else None
        findings += check_table(arguments.table_config, kafka, arguments.job, named)
    broken = any(found.level is Level.PROBLEM for found in findings)
    if arguments.json:
        rows = [
            {"level": found.level.value, "subject": found.subject, "text": found.text}
            for found in findings
        ]
        print_json({"healthy": not broken, "findings": rows})
    else:
        _print(findings)
    return 1 if broken else 0


@contextmanager
def told_as_findings() -> Iterator[None]:
    """What these modules warn of is among the findings: it is not said twice."""
    levels = [logger.level for logger in CHECKING]
    for logger in CHECKING:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(CHECKING, levels, strict=True):
            logger.setLevel(level)


def _options(arguments: argparse.Namespace) -> SinkOptions | None:
    if not arguments.bootstrap_servers and not arguments.config:
        if arguments.topic or arguments.dead_letter_topic or arguments.job or arguments.write:
            needing = "--topic, --dead-letter-topic, --job and --write"
            raise OptionsError([f"{needing} need --bootstrap-servers or --config."])
        return None
    if arguments.write and not arguments.topic:
        raise OptionsError(["--write needs --topic: where is a transaction to be tried?"])
    given = connection(arguments)
    for option, value in (
        (TOPIC, arguments.topic),
        (JOB_NAME, arguments.job),
        (LEDGER, arguments.ledger_topic),
        (STATE, arguments.state_topic),
        (PREFIX, arguments.prefix),
    ):
        given |= {option.name: value} if value else {}
    parsed = SinkOptions.parse(given, streaming=bool(arguments.job))
    return replace(parsed, dead_letter_topic=arguments.dead_letter_topic)


def _cluster(options: SinkOptions, write: bool) -> list[Finding]:
    try:
        findings = check_cluster(options)
        if not write:
            text = "not compared: only --write --topic can (Kafka tells its time nowhere else)"
            return [*findings, Finding(Level.NOTE, "clock", text)]
        with closing(ControlPlane(options.kafka)) as control:
            return [*findings, *rehearse(options, control)]
    except EnvironmentRefused as error:
        return [Finding(Level.PROBLEM, "Kafka", str(error))]


def _print(findings: Sequence[Finding]) -> None:
    subjects = max(len(found.subject) for found in findings)
    for found in findings:
        head = f"{found.level.value:<8} {found.subject:<{subjects}}  "
        print(wrapped(head, found.text))
    problems = sum(found.level is Level.PROBLEM for found in findings)
    warnings = sum(found.level is Level.WARNING for found in findings)
    print(f"\n{problems} problem(s), {warnings} warning(s)")
