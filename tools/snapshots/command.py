"""`eo-kafka snapshots list | show | export | verify | delete | restore | start-from`.

Exit codes: 0 done; 1 failed or refused, or `verify` found files that are not whole; 2 wrong usage.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import EoKafkaError
from ...core.options import KAFKA_PREFIX
from ...state.ledger.job import LEDGER, PREFIX, STATE, WEAK_REPLICATION
from ...state.snapshots.checkpoint import open_checkpoint
from ...state.snapshots.export import LATEST
from ...state.snapshots.operators import Operator
from ...state.snapshots.restoring import restore
from ...state.snapshots.search import Found, FoundExport, SnapshotSearch
from ...state.snapshots.writing_back import filling
from ..shared.command_line import add_connection, add_json, connection, print_json, table
from .exporting import delete_snapshot, export_snapshot, verify_snapshot
from .start_from import start_from

SPARK_COMPARES = """\
When the query is started, Spark compares it with the snapshot. The numbers and names of the
stateful operators must be these: one that was dropped, added or moved is refused, and named. The
fields of their keys and values must be of the same number and types. The number of state partitions
is the snapshot's, whatever spark.sql.shuffle.partitions says, and so is the state store's provider.
The sources must be as many, in the same order. All else may change: filters, columns that are
computed, the output topic."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, action in ACTIONS.items():
        declared = actions.add_parser(name, help=action.help, description=action.more)
        declared.add_argument("job", metavar="JOB", help="the job's name (option jobName)")
        for words, settings in action.arguments.items():
            declared.add_argument(*words.split(), **settings)
        add_connection(declared)
        add_json(declared)
        of = "the new job" if name == "start-from" else "the job"
        declared.add_argument("--ledger-topic", help=f"if {of} has option ledgerTopic")
        declared.add_argument("--state-topic", help=f"if {of} has option stateTopic")
        declared.add_argument("--transactional-id-prefix", default=PREFIX.default)


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit code. Raises EoKafkaError."""
    return ACTIONS[arguments.action].do(arguments, _options(arguments))


def _options(arguments: argparse.Namespace) -> dict[str, str]:
    given = {**connection(arguments), PREFIX.name: arguments.transactional_id_prefix}
    if arguments.ledger_topic:
        given[LEDGER.name] = arguments.ledger_topic
    if arguments.state_topic:
        given[STATE.name] = arguments.state_topic
    if getattr(arguments, "allow_weak_replication", False):
        given[WEAK_REPLICATION.name] = "true"
    return given


def _list(arguments: argparse.Namespace, options: Mapping[str, str]) -> int:
    search = SnapshotSearch(arguments.job, options)
    found = search.all()
    if not found and not search.has_ledger:
        raise EoKafkaError(
            f"There is no job '{arguments.job}' on this cluster (no topic "
            f"'{search.ledger_topic}'). 'eo-kafka job list' shows all that are."
        )
    if arguments.json:
        shown = [
            {"name": name, "finished": False} if one is None else _as_json(one)
            for name, one in found.items()
        ]
        print_json({"job": arguments.job, "snapshots": shown})
    elif found:
        rows = [cells(name, one) for name, one in found.items()]
        print(table(TITLES, rows, right="batch files bytes new"))
    else:
        print(f"Job '{arguments.job}' has no snapshots.")
    if found.get(LATEST, True) is None:
        search.latest()  # says what is gone
    return 0


TITLES = ("name", "batch", "made", "files", "bytes", "new")


def cells(name: str, found: Found | None) -> tuple[object, ...]:
    """A snapshot's line, as `TITLES` names its cells."""
    if found is None:
        why = "unfinished: export it again, or delete it"
        return name, "", "lost: its topic is gone" if name == LATEST else why, "", "", ""
    head = found.head
    made = _time(head.made_ms)
    return name, head.batch, made, f"{head.files:,}", f"{head.size:,}", f"{head.sent:,}"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _as_json(found: Found) -> dict[str, Any]:
    head = found.head
    export = {"exportedMs": found.export.made_ms} if isinstance(found, FoundExport) else {}
    return {
        "name": found.name,
        "finished": True,
        "topic": found.topic,
        "batch": head.batch,
        "madeMs": head.made_ms,
        "query": head.query,
        "files": head.files,
        "bytes": head.size,
        "newBytes": head.sent,
        **export,
    }


def _show(arguments: argparse.Namespace, options: Mapping[str, str]) -> int:
    search = SnapshotSearch(arguments.job, options)
    found = search.of(arguments.name)
    manifest = search.manifest(found)
    operators = search.operators(found, manifest)
    offsets = search.offsets(found, manifest)
    if arguments.json:
        shown = {"operators": [vars(one) for one in operators], "offsets": offsets}
        print_json({"job": arguments.job, **_as_json(found), **shown})
        return 0
    head = found.head
    print(f"snapshot   {found.name} of job {arguments.job}, in topic {found.topic}")
    print(f"batch      {head.batch}: a restart runs it first, and writes it if it is not written")
    print(f"query id   {head.query}")
    print(f"made       {_time(head.made_ms)}")
    if isinstance(found, FoundExport):
        print(f"exported   {_time(found.export.made_ms)}")
    print(f"size       {head.size:,} bytes in {head.files:,} files, {head.sent:,} of them new")
    for number, line in enumerate(offsets):
        print(f"source {number}   {line}")
    print("\n" + _operators(operators))
    return 0


def _operators(operators: Sequence[Operator]) -> str:
    if not operators:
        return "No stateful operators."
    rows = [(one.id, one.name, one.partitions, ", ".join(one.stores)) for one in operators]
    return table(("operator", "name", "partitions", "stores"), rows, right="operator partitions")


def _export(arguments: argparse.Namespace, options: Mapping[str, str]) -> int:
    made = export_snapshot(arguments.job, arguments.name, options, progress=not arguments.json)
    head = made.snapshot
    if arguments.json:
        print_json({"job": made.job, "name": made.name, "batch": head.batch, "bytes": head.size})
        return 0
    print(
        f"Batch {head.batch} of job '{made.job}' is exported as '{made.name}': {head.files:,} "
        f"files, {head.size:,} bytes.\nA job that starts from it writes again what this job wrote, "
        "or began, after that batch."
    )
    return 0


def _verify(arguments: argparse.Namespace, options: Mapping[str, str]) -> int:
    broken = verify_snapshot(arguments.job, options, arguments.name, progress=not arguments.json)
    if arguments.json:
        print_json({"job": arguments.job, "name": arguments.name, "broken": broken})
    elif broken:
        print(f"Not whole: {len(broken):,} files.\n  " + "\n  ".join(broken))
    else:
        print(f"Whole: '{arguments.name}' of job '{arguments.job}'.")
    return 1 if broken else 0


def _delete(arguments: argparse.Namespace, options: Mapping[str, str]) -> int:
    delete_snapshot(arguments.job, arguments.name, options)
    if arguments.json:
        print_json({"job": arguments.job, "deleted": arguments.name})
    else:
        print(f"The export '{arguments.name}' of job '{arguments.job}' is deleted.")
    return 0


def _restore(arguments: argparse.Namespace, options: Mapping[str, str]) -> int:
    shown = not arguments.json
    checkpoint = open_checkpoint(arguments.checkpoint)
    with filling(checkpoint):
        was_there = "metadata" in checkpoint.paths()
    head = restore(arguments.checkpoint, arguments.job, options, arguments.snapshot, progress=shown)
    nothing = head is None and (was_there or "metadata" not in checkpoint.paths())
    if arguments.json:
        print_json({"job": arguments.job, "batch": None if head is None else head.batch})
    elif nothing:
        search = SnapshotSearch(arguments.job, options)
        print(f"Job '{arguments.job}' has no snapshot: nothing was written.{_no_ledger(search)}")
    elif head is None:
        print(
            f"Job '{arguments.job}' has no snapshot. Its first batch was interrupted, and "
            f"'{arguments.checkpoint}' holds what is needed to run it as it was. Start the query."
        )
    else:
        print(
            f"'{arguments.checkpoint}' holds batch {head.batch} of job '{arguments.job}': "
            f"{head.files:,} files, {head.size:,} bytes. Start the query."
        )
    return 1 if nothing else 0


def _no_ledger(search: SnapshotSearch) -> str:
    if search.has_ledger:
        return ""
    return (
        f" It has no ledger here either (no topic '{search.ledger_topic}'): is the name right, and "
        "does it have option ledgerTopic (--ledger-topic)? 'eo-kafka job list' shows all jobs."
    )


def _start_from(arguments: argparse.Namespace, options: Mapping[str, str]) -> int:
    target = _target(arguments, options)
    made = start_from(
        arguments.job,
        arguments.name,
        arguments.new_job,
        arguments.checkpoint,
        options,
        target=target,
        progress=not arguments.json,
    )
    search = SnapshotSearch(arguments.job, options)
    found = search.exported(arguments.name)
    operators = search.operators(found, search.manifest(found))
    batch = made.snapshot.batch
    if arguments.json:
        shown = [vars(one) for one in operators]
        print_json({"job": arguments.new_job, "batch": batch, "operators": shown})
        return 0
    print(
        f"'{arguments.checkpoint}' holds the state of job '{made.job}' at batch {batch}. Start the "
        f"query\nfrom it with jobName '{arguments.new_job}': it goes on after batch {batch}, which "
        f"it counts as written.\nKeep the export until 'eo-kafka snapshots list "
        f"{arguments.new_job} ...' shows a snapshot.\n\n{_operators(operators)}\n\n{SPARK_COMPARES}"
    )
    return 0


def _target(arguments: argparse.Namespace, options: Mapping[str, str]) -> Mapping[str, str] | None:
    servers, config = arguments.target_bootstrap_servers, arguments.target_config
    if servers is None and config is None:
        return None
    reached = connection(argparse.Namespace(bootstrap_servers=servers, config=config))
    topics = {name: value for name, value in options.items() if not name.startswith(KAFKA_PREFIX)}
    return {**topics, **reached}


class Action(NamedTuple):
    """A sub-command. `arguments` are those besides what all have."""

    do: Callable[[argparse.Namespace, Mapping[str, str]], int]
    help: str
    arguments: Mapping[str, Mapping[str, Any]] = {}
    more: str | None = None


_EXPORT = {"name": {"metavar": "NAME", "help": "the name of the export"}}
_ANY = {"name": {"metavar": "NAME", "nargs": "?", "default": LATEST, "help": "default: the newest"}}
ACTIONS = {
    "list": Action(_list, "the job's newest snapshot, and its exports"),
    "show": Action(_show, "what is in a snapshot: operators, offsets, size", _ANY),
    "export": Action(
        _export,
        "keep the newest snapshot under a name until it is deleted; the job goes on",
        _EXPORT,
    ),
    "verify": Action(
        _verify,
        "read all of a snapshot, check digests and counts; code 1 if it is not whole",
        _ANY,
    ),
    "delete": Action(_delete, "delete an export", _EXPORT),
    "restore": Action(
        _restore,
        "write the newest snapshot into an empty checkpoint",
        {
            "checkpoint": {"metavar": "CHECKPOINT", "help": "the folder, as a path or URL"},
            "--snapshot": {
                "metavar": "NAME",
                "default": LATEST,
                "help": "an export, if the job wrote nothing since it was made",
            },
        },
    ),
    "start-from": Action(
        _start_from,
        "make checkpoint and ledger of a new job that goes on from an export",
        {
            **_EXPORT,
            "--job": {"dest": "new_job", "required": True, "help": "the new job's name"},
            "--checkpoint": {"required": True, "help": "the new job's; an empty folder"},
            "--target-bootstrap-servers": {
                "metavar": "HOST:PORT,...",
                "help": "if the new job's Kafka is another one",
            },
            "--target-config": {
                "metavar": "FILE",
                "type": Path,
                "help": "client settings for that Kafka",
            },
            "--allow-weak-replication": {
                "action": "store_true",
                "help": "option allowWeakReplication of the new job",
            },
        },
        "What the export's job wrote up to and including the export's batch is not repeated. What "
        "it wrote later, the new job writes too: export with the old job stopped "
        "(eo_kafka.cancel_and_export), or give the new one another output topic.",
    ),
}
