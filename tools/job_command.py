"""`eo-kafka job`: the operator's commands for a job's ledger, and for its supervisor."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ..clients.kafka import control_plane
from ..core.errors import CheckpointError, EoKafkaError, ForeignLedger, LedgerError
from ..core.transaction import Decision, DecisionState, Participant
from ..sinks.batches.committable import Torn, WritePlan
from ..sinks.files import options as files_options
from ..sinks.maps.applied import MARKERS
from ..sinks.maps.two_phase_options import read_target
from ..sinks.options import BATCH_WRITES, SinkOptions
from ..sinks.protocol.on_reset import forgotten
from ..sinks.protocol.recovery import make_plan, settle
from ..sinks.tables import options as table_options
from ..sinks.targets import options as target_options
from ..state.ledger import records
from ..state.ledger import topics as ledger_topic
from ..state.ledger.appender import Record
from ..state.ledger.coordinator import Coordinator, Write
from ..state.ledger.ledger import DECISION_PARTITION, Ledger
from ..state.ledger.owner import check_named
from ..state.ledger.succession import SUCCESSION_KEY, Succession, encode_succession
from ..state.snapshots.checkpoint import Checkpoint, open_checkpoint
from ..state.snapshots.query_id import read_query_id
from ..state.snapshots.redo import can_be_planned, plan_again, redo
from .jobs.command import (
    add_actions,
    run_asking,
    run_delete,
    run_history,
    run_list,
    run_metrics,
)
from .shared.command_line import add_connection, add_json, connection, read_settings, table

OF_ALL = {
    "list": run_list,
    "history": run_history,
    "metrics": run_metrics,
    "delete": run_delete,
    **dict.fromkeys(("suspend", "resume", "restart", "cancel"), run_asking),
}
_OWN = {"target": target_options, "path": files_options}  # by an option that only one has


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_actions(actions)
    show = actions.add_parser("show", help="print what the ledger says; changes nothing")
    add_json(show)
    reset = actions.add_parser(
        "reset",
        help="give the ledger up to a new query: finish what is decided, abort what is not, "
        "forget the owner and the batches",
    )
    repair = actions.add_parser("repair", help="go on after a batch that was partly lost")
    repair.add_argument("--batch", type=int, required=True, help="the batch the error named")
    repair.add_argument(
        "--accept-loss", action="store_true", required=True, help="the missing rows stay missing"
    )
    redo = actions.add_parser(
        "redo",
        help="bring a checkpoint that is older than the ledger, as of a restored disk, to where "
        "the job is; for queries without state. Stop the query first: one that runs dies of it",
    )
    for action in (reset, repair, redo):
        action.add_argument(
            "--map-config",
            type=Path,
            metavar="FILE",
            help="of a job that writes an IMap with commit=two-phase: its options 'map', "
            "'hazelcast.*' and, if it merges, 'onConflict' and 'mergeFunction', a name=value each "
            "line",
        )
        action.add_argument(
            "--table-config",
            type=Path,
            metavar="FILE",
            help="of a job that writes a table: its options 'url', 'table', 'stagingSchema' and "
            "'keys'; of one that writes files: 'path'; of one that writes a target of your own: "
            "'target' and 'target.*'; a name=value each line",
        )
    for action in (show, reset, repair, redo):
        action.add_argument("job", help="the job's name (option jobName)")
        add_connection(action)
        action.add_argument("--ledger-topic", help="if the job has option ledgerTopic")
        action.add_argument("--transactional-id-prefix", default="eo-kafka")
    redo.add_argument("checkpoint", help="the query's checkpointLocation")


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit code. Raises EoKafkaError."""
    if arguments.action in OF_ALL:
        return OF_ALL[arguments.action](arguments)
    options = _options(arguments)
    ledger_topic.check_exists(options)
    actions: dict[str, Callable[[SinkOptions, argparse.Namespace], None]] = {
        "show": _show,
        "reset": _reset,
        "repair": _repair,
        "redo": _redo,
    }
    if arguments.action != "show":
        control = control_plane.shared(options.kafka)
        check_named(control, options, Coordinator(options, control).read(fenced=False))
    actions[arguments.action](options, arguments)
    return 0


def _options(arguments: argparse.Namespace) -> SinkOptions:
    given = {
        **connection(arguments),
        "jobName": arguments.job,
        "transactionalIdPrefix": arguments.transactional_id_prefix,
    }
    if arguments.ledger_topic:
        given["ledgerTopic"] = arguments.ledger_topic
    options = SinkOptions.parse(given, streaming=True)
    of_map = getattr(arguments, "map_config", None)
    if of_map is not None:
        return replace(options, staging=read_target(read_settings(of_map, "--map-config")))
    of_table = getattr(arguments, "table_config", None)
    if of_table is not None:
        settings = read_settings(of_table, "--table-config")
        own = next((of for name, of in _OWN.items() if name in settings), table_options)
        return replace(options, staging=own.read_target(settings))
    return options


def _show(options: SinkOptions, arguments: argparse.Namespace) -> None:
    coordinator = Coordinator(options, control_plane.shared(options.kafka))
    ledger = coordinator.read(fenced=False)  # this only looks
    batches = sorted(ledger.of_sink(options.sink).values(), key=lambda found: found.batch)
    if arguments.json:
        shown = [json.loads(records.encode_decision(found)) for found in batches]
        print(
            json.dumps({"owner": ledger.owner, "generation": ledger.generation, "batches": shown})
        )
        return
    print(f"ledger      {coordinator.topic}")
    print(f"query id    {ledger.owner or '(none yet)'}")
    print(f"generation  {ledger.generation}\n")
    titles = ("batch", "round", "state", "tasks", "rows")
    print(table(titles, [_row(found) for found in batches[-20:]], right="batch round tasks rows"))


def _row(found: Decision) -> tuple[object, ...]:
    return found.batch, found.round, found.state.value, len(found.participants), f"{found.rows:,}"


def _reset(options: SinkOptions, _arguments: argparse.Namespace) -> None:
    plan = make_plan(options, by_hand=True)
    _refuse_torn(plan, options)
    control = control_plane.shared(options.kafka)
    coordinator = Coordinator(options, control)
    before = coordinator.read(fenced=False)
    maps, given_up = _maps(before, options), _given_up(before)
    # As after a deletion, which the next start would find: that it was looked at is written down.
    is_cut = control.end_offset(coordinator.topic, DECISION_PARTITION, None) > 0
    looked_at = [(SUCCESSION_KEY, encode_succession(Succession(replaced=("",))))] if is_cut else []
    coordinator.write(
        plan.generation,
        lambda ledger: Write(
            [
                (records.OWNER_KEY, None),
                *(_given_up(ledger) or looked_at),
                *forgotten(options, ledger),
            ]
        ),
    )
    who = "the next query that writes to it will own it."
    if given_up:
        who = "the next new query will own it. One with an old checkpoint is refused."
    print(f"Ledger '{coordinator.topic}' is free: {who}")
    if maps and options.staging is None:
        print(
            f"The job wrote map {', '.join(maps)} of Hazelcast. What it staged there and never "
            f"decided is still in map '__eo_kafka.{options.job}.staged': the next batch of the "
            "same job removes it, or this command with --map-config, or destroy that map. "
            f"The keys '{options.job}/...' of map '{MARKERS}' are to stay, unless the ledger is "
            "deleted."
        )


def _given_up(ledger: Ledger) -> list[Record]:
    """Who is never to write it again. Of a query that goes on by its checkpoint, Spark may run a
    batch that is written once more, and the ledger would not know it. What is written by name and
    number of a batch, without a query, may be written anew."""
    owner = ledger.owner or ""
    mine = (owner,) if owner and not owner.startswith(BATCH_WRITES) else ()
    replaced = (*ledger.succession.replaced, *mine)
    if not replaced:
        return []
    return [(SUCCESSION_KEY, encode_succession(Succession(replaced=replaced)))]


def _refuse_torn(plan: WritePlan, options: SinkOptions) -> None:
    if plan.torn is not None:
        batch = plan.torn.decision.batch
        raise LedgerError(
            f"Batch {batch} is partly lost: 'eo-kafka job repair {options.job} --batch {batch} "
            "--accept-loss' first. Nothing was changed."
        )


def _maps(ledger: Ledger, options: SinkOptions) -> list[str]:
    """The IMaps that the batches in the ledger went to."""
    parts = (
        part
        for found in ledger.of_sink(options.sink).values()
        if found.target.startswith("map ") or not found.target
        for part in found.participants
    )
    return sorted({f"'{part.staged.place}'" for part in parts if part.staged})


def _repair(options: SinkOptions, arguments: argparse.Namespace) -> None:
    coordinator, batch = Coordinator(options, control_plane.shared(options.kafka)), arguments.batch
    ledger = coordinator.read(fenced=False)
    written = ledger.of_sink(options.sink)
    # Of tasks that commit by themselves, the ledger does not know those of the batch to come
    is_known = ledger.one_phase_from is None or batch <= max(written, default=-1)
    if is_known and _is_void(written.get(batch), batch):
        return  # and a query that runs goes on
    plan = make_plan(options, by_hand=True)
    torn = plan.torn_at(batch)
    if torn is not None:
        found, left = replace(torn.decision, participants=torn.committed), _what_is_left(torn)
        if not torn.decided:  # the replay may end elsewhere, and is skipped all the same
            found = replace(found, offsets=())
    elif _is_void(plan.decisions.get(batch), batch):
        return
    coordinator.fence()
    ledger = coordinator.read_since(plan.generation)
    coordinator.check_generation(plan.generation)
    if torn is None:
        found = ledger.decisions[options.sink, batch]  # with all that the plan leaves out
        left = "and counts as written, whatever a replay of it brings."
    done = replace(found, state=DecisionState.DONE, accepted=True)
    settle(coordinator, plan.generation, done)
    print(f"Batch {batch} is DONE {left} Start the query again.")


def _is_void(found: Decision | None, batch: int) -> bool:
    """Of a batch that is not torn; says so if it is. Raises EoKafkaError if nobody knows of it."""
    if found is None:
        raise EoKafkaError(f"Batch {batch} needs no repair: it is not decided.")
    if found.state is DecisionState.VOID:
        print(f"Batch {batch} is VOID: it is written anew. Start the query again.")
    return found.state is DecisionState.VOID


def _redo(options: SinkOptions, arguments: argparse.Namespace) -> None:
    coordinator = Coordinator(options, control_plane.shared(options.kafka))
    ledger = coordinator.read(fenced=False)
    checkpoint = open_checkpoint(arguments.checkpoint)
    _check_there(checkpoint, ledger, options)
    query = read_query_id(arguments.checkpoint)
    begun = ledger.interrupted(options.sink)
    if query is None or (query != ledger.owner and not (begun and ledger.owner is None)):
        raise ForeignLedger(
            f"Checkpoint '{checkpoint.url}' is of query {query or '(none)'}, and ledger "
            f"'{coordinator.topic}' of query {ledger.owner}. Nothing was changed."
        )
    if ledger.unfinished():
        plan = make_plan(options, by_hand=True)
        _refuse_torn(plan, options)
        ledger = coordinator.read(fenced=False)
    decided = ledger.of_sink(options.sink)
    # Where a batch began, the one before it ended: of that one the ledger may know no more.
    written = {
        batch - 1: decided[batch].starts for batch in decided if batch and decided[batch].starts
    }
    written |= {batch: found.offsets for batch, found in decided.items() if found.offsets}
    newest = max((b for b in decided if decided[b].state is DecisionState.DONE), default=None)
    if newest is None and begun is None:
        raise EoKafkaError(f"Job '{options.job}' has written no batch: there is nothing to redo.")
    told = f"Job '{options.job}' has written no batch."
    if newest is not None:
        told = f"Checkpoint '{checkpoint.url}' is as new as the ledger: batch {newest}."
        known = {batch: lines for batch, lines in written.items() if batch <= newest}
        if done := redo(checkpoint, known, newest):
            told = (
                f"Checkpoint '{checkpoint.url}' was brought to batch {newest}, the last one "
                f"written: batches {done[0]} to {done[-1]} stand in it now as they were written. "
                "Start the query again: it goes on behind them."
            )
    if begun is not None and can_be_planned(begun) and plan_again(checkpoint, begun):
        told += f" Batch {begun.batch}, which was interrupted, gets the records that it had."
    print(told)


def _check_there(checkpoint: Checkpoint, ledger: Ledger, options: SinkOptions) -> None:
    if "metadata" in checkpoint.paths():
        return
    where = ""
    if ledger.checkpoint:
        where = f" That of job '{options.job}' is '{ledger.checkpoint}', as its ledger says."
    raise CheckpointError(
        f"'{checkpoint.url}' holds no checkpoint: no file 'metadata'. Nothing was changed. Is this "
        f"the query's checkpointLocation, and can this machine see it?{where} If it was lost, "
        f"there is nothing to redo: 'eo-kafka snapshots restore {options.job} CHECKPOINT "
        "--bootstrap-servers ...' brings it back if the job has snapshots; without, a query that "
        "keeps no state goes on where the job is by option 'onReset' ('continue')."
    )


def _what_is_left(torn: Torn) -> str:
    here = f"with the {_rows(torn.committed)}"
    if not torn.decided:  # its tasks never reported: nobody knows what else there was
        return f"{here}. What its other partitions would have held stays missing."
    return f"{here}, without the {_rows(torn.missing)}."


def _rows(parts: Sequence[Participant]) -> str:
    return f"{sum(part.rows for part in parts):,} rows of partitions {[p.partition for p in parts]}"
