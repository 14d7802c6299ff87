"""`eo-kafka job list | history | metrics | delete`, of all jobs of a cluster by their ledgers, and
`suspend | resume | restart | cancel`, which ask a job's supervisor."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping

from ...clients.kafka.cluster import connect
from ...clients.kafka.topics import TIMEOUT_S
from ...core.errors import EnvironmentRefused, LedgerError, OptionsError
from ...state.ledger.job import read_job
from ...state.snapshots.export import topic_of
from ..control.asking import ask
from ..control.words import Do
from ..run.policy import seconds_of
from ..shared.command_line import add_connection, add_json, connection, print_json
from . import metrics, report
from .deletion import delete
from .standing import State
from .survey import survey
from .tails import read_tails

LEFT_OUT = 3  # exit code: something could not be read
_HISTORY = 20


def add_actions(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the sub-commands and their options."""
    listing = actions.add_parser(
        "list", help="every job of the cluster by its ledger; exit code 3 if one cannot be read"
    )
    listing.add_argument("--job", help="the job of --ledger-topic")
    history = actions.add_parser("history", help="a job's newest batches, by its ledger")
    history.add_argument(
        "--limit", type=int, default=_HISTORY, metavar="N", help=f"default: {_HISTORY}"
    )
    deleting = actions.add_parser(
        "delete",
        help="delete the ledger and all else of a job that runs no more: its guarantee starts anew",
    )
    deleting.add_argument("--yes", action="store_true", help="do it; else only say what is done")
    deleting.add_argument(
        "--exports", action="store_true", help="also its exported snapshots and its views"
    )
    deleting.add_argument("--state-topic", help="if the job has option stateTopic")
    deleting.add_argument(
        "--quiet-for",
        default="2m",
        metavar="TIME",
        help="refuse if the ledger was written later than so long ago; default: 2m",
    )
    exporting = actions.add_parser(
        "metrics", help="answer /metrics with all jobs of the cluster, for Prometheus"
    )
    exporting.add_argument(
        "--listen", required=True, metavar="[HOST:]PORT", help="default host: loopback"
    )
    add_connection(exporting)
    for action in (history, deleting):
        action.add_argument("job", help="the job's name (option jobName)")
    for action in (listing, history, deleting):
        add_connection(action)
        add_json(action)
        action.add_argument("--ledger-topic", help="if the job has option ledgerTopic")
    deleting.add_argument("--transactional-id-prefix", default="eo-kafka")
    _add_asking(actions)


ASKED = {
    Do.SUSPEND: "end the job's driver in order, and start none until 'resume'",
    Do.RESUME: "let the job's supervisor run it again, also after 'cancel'",
    Do.RESTART: "end the job's driver in order, and start it again",
    Do.CANCEL: "end the job and its supervisor for good",
}


def _add_asking(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for do, told in ASKED.items():
        asking = actions.add_parser(
            do.value,
            help=told,
            description=f"{told[0].upper()}{told[1:]}. Asks 'eo-kafka run "
            "--job JOB', wherever it runs, and waits for its answer.",
        )
        asking.add_argument("job", help="the job's name (option jobName)")
        if do is not Do.RESUME:
            asking.add_argument(
                "--with-snapshot",
                metavar="NAME",
                default="",
                help="export the state that it ends with under this name",
            )
        asking.add_argument(
            "--timeout",
            default="3m",
            metavar="TIME",
            help="how long to wait for the answer; default: 3m",
        )
        add_connection(asking)
        add_json(asking)


def run_asking(arguments: argparse.Namespace) -> int:
    """Ask the job's supervisor; 0 if it has done what was asked for."""
    problems: list[str] = []
    timeout_s = seconds_of("--timeout", arguments.timeout, problems)
    if problems:
        raise OptionsError(problems)
    snapshot = getattr(arguments, "with_snapshot", "")
    if snapshot:
        topic_of(arguments.job, snapshot)  # whether it may have this name
    job = read_job(arguments.job, connection(arguments))

    def hear(said: str) -> None:
        print(said, file=sys.stderr)

    told = ask(job, Do(arguments.action), snapshot, timeout_s, hear)
    if arguments.json:
        shown = {"ok": told.ok, "said": told.said, "host": told.host, "stands": told.stands}
        print_json({"job": arguments.job, **shown})
    else:
        print(f"{told.host}: {told.said}", file=sys.stdout if told.ok else sys.stderr)
    return 0 if told.ok else 1


def run_list(arguments: argparse.Namespace) -> int:
    """Every job. Code 3 if one cannot be read, or what it has open not be seen."""
    if bool(arguments.job) != bool(arguments.ledger_topic):
        raise OptionsError(["--job and --ledger-topic need each other: whose ledger is it?"])
    named = {arguments.ledger_topic: arguments.job} if arguments.job else {}
    found = survey(settings_of(arguments), named)
    now_ms = int(time.time() * 1000)
    if arguments.json:
        print_json({"jobs": [report.as_json(one, now_ms) for one in found]})
    elif found:
        print(report.listing(found, now_ms))
    else:
        print("No job has a ledger here that this principal may describe.")
    left_out = [one for one in found if one.state is State.UNREADABLE or one.open_count is None]
    return LEFT_OUT if left_out else 0


def run_metrics(arguments: argparse.Namespace) -> int:
    """Answer until it is ended."""
    metrics.serve(settings_of(arguments), arguments.listen)
    return 0


def settings_of(arguments: argparse.Namespace) -> Mapping[str, str]:
    """Of the client that looks."""
    return read_job("any", connection(arguments)).kafka


def run_history(arguments: argparse.Namespace) -> int:
    """The newest batches of one job."""
    if arguments.limit < 1:
        raise OptionsError(["--limit takes a number of batches, 1 or more."])
    given = connection(arguments)
    if arguments.ledger_topic:
        given["ledgerTopic"] = arguments.ledger_topic
    options = read_job(arguments.job, given)
    job, topic = options.job_and_ledger
    admin, _ = connect(options.kafka, TIMEOUT_S)
    if topic not in admin.list_topics(timeout=TIMEOUT_S).topics:
        servers = options.kafka.get("bootstrap.servers", "")
        raise EnvironmentRefused(f"Job '{job}' has no ledger at {servers}: no topic '{topic}'.")
    tail = read_tails(options.kafka, admin, [topic], count=None)[topic]
    if tail.problem:
        raise LedgerError(tail.problem)
    now_ms = int(time.time() * 1000)
    if arguments.json:
        shown = [report.batch(one, tail) for one in report.newest(tail, arguments.limit)]
        print_json({"job": job, "ledgerTopic": topic, "batches": shown})
    else:
        print(report.history(tail, arguments.limit, now_ms))
    return 0


def run_delete(arguments: argparse.Namespace) -> int:
    """Delete what a job left."""
    given = {**connection(arguments), "transactionalIdPrefix": arguments.transactional_id_prefix}
    for option, value in (
        ("ledgerTopic", arguments.ledger_topic),
        ("stateTopic", arguments.state_topic),
    ):
        given |= {option: value} if value else {}
    done = delete(
        read_job(arguments.job, given),
        quiet_for=arguments.quiet_for,
        also_exports=arguments.exports,
        yes=arguments.yes,
    )
    if arguments.json:
        print_json({"job": arguments.job, "deleted": done.deleted, "kept": done.kept})
    else:
        print(done.said)
    return 0 if arguments.yes else 1
