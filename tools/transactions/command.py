"""`eo-kafka txn list | show | commit | abort`: the operator's commands for transactions.

Exit codes: 0 fine; 1 failed, or something that was asked for was refused or left out; 2 wrong
usage; 3 `list` found transactions, or a ledger, that need somebody's attention.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ...core.errors import EoKafkaError, LedgerError, OptionsError
from ...core.options import time_span_ms
from ...core.transaction import TransactionState
from ...state.ledger.job import PREFIX
from ...state.ledger.owner import is_of
from ..shared.command_line import (
    WIDTH,
    add_connection,
    add_json,
    connection,
    on_terminal,
    print_json,
)
from .acting import end_found, options_for
from .ending import Asked, Outcome
from .report import as_json, details, ledger_says, listing
from .search import TransactionSearch
from .staged_tables import Beside, end_tables, look_beside, table_as_json, target_of
from .staged_tables import as_json as beside_as_json
from .staged_tables import listing as beside_listing
from .verdict import OPEN_STATES, Judged, Standing

ATTENTION = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser(
        "list",
        help="open transactions and what the ledgers say; exit code 3 if some need attention",
    )
    listing.add_argument("--all", action="store_true", help="also those that have ended")
    listing.add_argument("--topic", help="all that are open on this topic, also other programs'")
    show = actions.add_parser("show", help="all that is known about transactions")
    commit = actions.add_parser("commit", help="commit what a ledger decided to commit")
    abort = actions.add_parser("abort", help="abort what no ledger decided to commit")
    abort.add_argument(
        "--yes",
        action="store_true",
        help="also where it stops a running query, which loses nothing",
    )
    for ending in (commit, abort):
        ending.add_argument("--dry-run", action="store_true", help="only say what would be done")
        ending.add_argument(
            "--force", action="store_true", help="although rows may be lost or repeated"
        )
    for action in (listing, abort):
        action.add_argument(
            "--older-than",
            type=_time_span_ms,
            metavar="TIME",
            help="only those that have been open for longer, such as 10m or '2 hours', by the "
            "clocks of this machine and the broker",
        )
    listing.add_argument(
        "--table-config",
        type=Path,
        metavar="FILE",
        help="also what jobs have beside a table of PostgreSQL: its options 'url', 'table' and "
        "'stagingSchema', a name=value each line",
    )
    abort.add_argument(
        "--table-config",
        type=Path,
        metavar="FILE",
        help="with --job: also end the job's staging tables and prepared transactions beside this "
        "table that no decision needs",
    )
    for action in (show, commit, abort):
        action.add_argument("ids", nargs="*", metavar="ID", help="transactional ids")
    for ending in (commit, abort):
        ending.add_argument(
            "--topic", help="those that hang on this topic: write the ends that are missing there"
        )
    for action in actions.choices.values():
        action.add_argument("--job", help="the transactions of this job (option jobName)")
        action.add_argument("--query-id", help="the transactions of the job of this query")
        action.add_argument(
            "--prefix",
            help=f"option transactionalIdPrefix; default for a job: {PREFIX.default}",
        )
        action.add_argument("--ledger-topic", help="if the job has option ledgerTopic")
        add_connection(action)
        add_json(action)


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit code. Raises EoKafkaError."""
    if arguments.ledger_topic and not arguments.job:
        raise OptionsError(["--ledger-topic needs --job, whose ledger it is."])
    of_table: Path | None = getattr(arguments, "table_config", None)
    if of_table and arguments.action == "abort" and (not arguments.job or arguments.ids):
        raise OptionsError(["--table-config needs --job, whose staging tables are to go."])
    target = target_of(of_table) if of_table else None
    settings = options_for(connection(arguments), None).kafka
    named = {arguments.ledger_topic: arguments.job} if arguments.ledger_topic else {}
    with closing(TransactionSearch(settings, named)) as search:
        than_ms = getattr(arguments, "older_than", None)
        found = _older(_find(search, arguments), than_ms, arguments.action)
        if arguments.action in ("list", "show"):
            beside = look_beside(search, target, arguments.job, than_ms) if target else None
            return _print_found(found, arguments, beside, search.left_out)
        shown: dict[str, Any] = {"dryRun": arguments.dry_run}
        try:
            code = _end(search, found, arguments, shown)
            if target is not None:
                # After the transactions: closing the ledger for them made older tables nobody's
                beside = look_beside(search, target, arguments.job, than_ms)
                code = max(code, _end_tables(search, beside, arguments, shown))
        finally:
            if arguments.json and len(shown) > 1:
                print_json(shown)
        return code


def _time_span_ms(text: str) -> int:
    try:
        return time_span_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' {error}") from None


def _older(found: list[Judged], than_ms: int | None, action: str) -> list[Judged]:
    """Those that have been open for longer. Of one that hangs, or has ended, nobody knows for how
    long: `list` shows it if somebody must act."""
    if than_ms is None:
        return found
    now_ms = int(time.time() * 1000)

    def is_told(one: Judged) -> bool:
        ageless = one.hung or one.not_all or not one.is_open
        return action == "list" and bool(ageless and one.needs_attention(now_ms))

    return [one for one in found if one.open_for_ms(now_ms) > than_ms or is_told(one)]


def _find(search: TransactionSearch, arguments: argparse.Namespace) -> list[Judged]:
    ids: list[str] = getattr(arguments, "ids", [])
    topic: str | None = getattr(arguments, "topic", None)
    if sum(map(bool, (ids, topic, arguments.job or arguments.query_id))) > 1 and not (
        ids and (arguments.job or topic) and not (topic and arguments.job)
        # the job says which ledger; of a topic, these
    ):
        raise OptionsError(["Give transactional ids, or a topic, or a job, not several of them."])
    if topic and arguments.action != "list":
        hung = [one for one in search.on_topic(topic) if one.hung or one.not_all]
        return [one for one in hung if not ids or one.described.transactional_id in ids]
    if ids:
        for name in ids:
            if arguments.job and not is_of(name, arguments.job):
                raise OptionsError([f"'{name}' is not one of job '{arguments.job}'."])
        return search.named(ids)
    if topic:
        return search.on_topic(topic)
    some = arguments.job or arguments.query_id or arguments.prefix
    if arguments.action != "list" and not (some or getattr(arguments, "older_than", None)):
        raise OptionsError(["Which transactions? Give their ids, or --job, --query-id, --prefix."])
    states: frozenset[TransactionState] = OPEN_STATES
    if arguments.action == "show" or getattr(arguments, "all", False):
        states = frozenset()
    # an older transaction must have been listed before the ledger is read
    pattern = re.escape(f"{arguments.prefix or PREFIX.default}.")
    listed = search.ids(pattern, states)
    jobs = _jobs_asked_for(search, arguments)
    for job, why in search.hidden_jobs(arguments.prefix or PREFIX.default, jobs).items():
        _leave_out(search, job, why)
    jobs -= search.left_out.keys()
    if arguments.job or arguments.query_id:
        listed = [name for name in listed if any(is_of(name, job) for job in jobs)]
    listed = [name for name in listed if not any(is_of(name, job) for job in search.left_out)]
    if jobs and arguments.job and not listed and arguments.job not in search.ledgers().values():
        raise EoKafkaError(
            f"Job '{arguments.job}' has no ledger and no transactions under prefix "
            f"'{arguments.prefix or PREFIX.default}': is the name right (option jobName, else the "
            "query's name)? If it has option ledgerTopic, give --ledger-topic."
        )
    found = search.judge(listed, jobs)
    begins = re.compile(pattern)
    return [one for one in found if begins.match(one.described.transactional_id)]


def _jobs_asked_for(search: TransactionSearch, arguments: argparse.Namespace) -> set[str]:
    """The jobs. Those whose ledgers cannot be read are left out: they are named, and hide nobody
    else's transactions."""
    if arguments.job:  # a batch save() or a deleted ledger has transactions all the same
        return {arguments.job}
    owners: dict[str, str | None] = {}
    for topic, job in search.ledgers().items():
        try:
            owners[job] = search.read_ledger(topic, job).ledger.owner
        except LedgerError as damaged:
            _leave_out(search, job, str(damaged))
    if not arguments.query_id:
        return set(owners)
    owned = {job for job, owner in owners.items() if owner == arguments.query_id}
    if not owned:
        unread = f", {len(search.left_out)} could not be read" if search.left_out else ""
        raise EoKafkaError(
            f"No ledger belongs to query {arguments.query_id} ({len(owners)} were looked at"
            f"{unread}; one that is named by option ledgerTopic is found by --job and "
            "--ledger-topic only)."
        )
    return owned


def _leave_out(search: TransactionSearch, job: str, why: str) -> None:
    search.left_out[job] = why
    print(f"Job '{job}' is left out: {why}", file=sys.stderr)


def _none_found(arguments: argparse.Namespace, left_out: Collection[str]) -> str:
    """Which were looked for: others may hold up a topic's readers."""
    what = "No open transactions"
    if getattr(arguments, "older_than", None) is not None:
        what = "No transactions that have been open for longer"
    what += " are seen" if left_out else ""
    if topic := getattr(arguments, "topic", None):
        return f"{what} on topic '{topic}'."
    if arguments.job or arguments.query_id:
        return f"{what} of {arguments.job or arguments.query_id}."
    prefix = arguments.prefix or PREFIX.default
    return f"{what} under prefix '{prefix}'. Other programs': --topic TOPIC."


def _print_found(
    found: Sequence[Judged],
    arguments: argparse.Namespace,
    beside: Beside | None,
    left_out: Mapping[str, str],
) -> int:
    now_ms = int(time.time() * 1000)
    alarming = bool(left_out) or any(one.needs_attention(now_ms) for one in found)
    alarming |= beside is not None and any(one.attention for one in beside.tables)
    if arguments.json:
        tables = beside_as_json(beside) if beside else {}
        shown = [as_json(one, now_ms) for one in found]
        print_json({"transactions": shown, "leftOut": dict(left_out), **tables})
    elif arguments.action == "list":
        print(listing(found, now_ms) if found else _none_found(arguments, left_out))
        print(f"\n{beside_listing(beside)}" if beside else "", end="\n" if beside else "")
    else:
        print("\n\n".join(details(one, now_ms) for one in found) or "No transactions.")
    return ATTENTION if alarming and arguments.action == "list" else 0


def _end(
    search: TransactionSearch,
    found: list[Judged],
    arguments: argparse.Namespace,
    shown: dict[str, Any],
) -> int:
    """The exit code; for --json, what became of each is added to `shown`."""
    asked = Asked(
        commit=arguments.action == "commit",
        yes=getattr(arguments, "yes", False),
        force=arguments.force,
        dry_run=arguments.dry_run,
    )
    some = found if asked.commit or arguments.ids else [one for one in found if one.is_open]
    outcomes = end_found(search, some, asked, connection(arguments))
    if arguments.json:
        now_ms = int(time.time() * 1000)
        shown["transactions"] = [
            {**as_json(one.judged, now_ms), "done": one.done, "outcome": one.said}
            for one in outcomes
        ]
    else:
        _print_outcomes(outcomes, asked)
    return 0 if all(one.done for one in outcomes) and not search.left_out else 1


def _end_tables(
    search: TransactionSearch,
    beside: Beside,
    arguments: argparse.Namespace,
    shown: dict[str, Any],
) -> int:
    """As `_end`."""
    outcomes = end_tables(
        search,
        beside,
        lambda topic: options_for(
            connection(arguments), arguments.job, topic, arguments.prefix or ""
        ),
        yes=arguments.yes,
        dry_run=arguments.dry_run,
    )
    if arguments.json:
        shown["stagingTables"] = [
            {**table_as_json(one), "done": done, "outcome": said} for one, done, said in outcomes
        ]
        return 0 if all(done for _, done, _ in outcomes) else 1
    for one, _, said in outcomes:
        text = f"{one.standing}: {said}"
        print(one.found.name)
        print(textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  "))
    if not outcomes:
        print("No staging tables or prepared transactions.")
    return 0 if all(done for _, done, _ in outcomes) else 1


def _print_outcomes(outcomes: Sequence[Outcome], asked: Asked) -> None:
    if not outcomes:
        print("No open transactions.")
    for one in outcomes:
        text = f"{ledger_says(one.judged)}: {one.said}"
        print(on_terminal(one.judged.described.transactional_id))
        print(textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  "))
    jobs = sorted({one.judged.job.job for one in outcomes if one.judged.job and one.done})
    if asked.dry_run:
        print("\nDry run: nothing was changed.")
    elif jobs and any(one.judged.standing is Standing.DECIDED for one in outcomes):
        print(
            f"\nThe ledger of {', '.join(jobs)} says DECIDED until the query is started again.\n"
            "It then looks at the tokens and goes on."
        )
