"""What a query is told whose ledger is another one's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eo_kafka.clients.kafka.transactional_id import TransactionalIds
from eo_kafka.core.transaction import Decision, DecisionState, Identity, Participant
from eo_kafka.errors import ForeignLedger, LedgerError
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.state.ledger.job import of_job
from eo_kafka.state.ledger.ledger import Ledger
from eo_kafka.state.ledger.owner import check_named, check_owner

OPTIONS = SinkOptions.parse(of_job("firsts", {"kafka.bootstrap.servers": "h:1"}), True)


def test_the_way_that_keeps_a_snapshot_is_named_before_those_that_give_it_up() -> None:
    with pytest.raises(ForeignLedger, match="delete the new checkpoint and restore") as told:
        check_owner(OPTIONS, "old", "new")
    ways = (
        "restore firsts CHECKPOINT",
        "snapshots start-from",
        "new 'jobName'",
        "'onReset'",
        "job reset firsts",
    )
    places = [str(told.value).index(way) for way in ways]
    assert places == sorted(places)


def an_id(prefix: str = "eo-kafka", job: str = "firsts") -> str:
    return TransactionalIds(prefix, job).task("main", 0, 1, 0)


def ledger_of(*ids: str) -> Ledger:
    """Of batches 0, 1, ..., each of one task."""
    made = Ledger()
    for batch, name in enumerate(ids):
        part = Participant(0, 0, 1, Identity(name, 1, 0), 1, "")
        decision = Decision("main", batch, 0, DecisionState.DONE, 1, 2, 1, 0, (part,))
        made.decisions["main", batch] = decision
    return made


@pytest.mark.parametrize(
    ("ledger", "open_ids"),
    [
        (ledger_of(), ()),
        (ledger_of(), (an_id(), an_id("older"))),
        (ledger_of(an_id(job="before it was renamed"), an_id("older"), an_id()), ()),
        (ledger_of(an_id("older")), (an_id(),)),
    ],
    ids=["nothing tells", "of two prefixes", "another before", "changed since"],
)
def test_a_command_that_names_the_job_may_end_what_it_has_open(
    ledger: Ledger, open_ids: tuple[str, ...]
) -> None:
    check_named(OPTIONS, ledger, open_ids)


@pytest.mark.parametrize(
    ("ledger", "open_ids"),
    [
        (ledger_of(an_id("team1")), ()),
        (ledger_of(), (an_id("team1"),)),
        (ledger_of(an_id(), an_id("team1")), (an_id("team1"),)),
    ],
    ids=["by its batches", "by what is open", "changed since"],
)
def test_a_command_without_the_jobs_prefix_is_refused_with_the_prefix(
    ledger: Ledger, open_ids: tuple[str, ...]
) -> None:
    with pytest.raises(LedgerError, match="--transactional-id-prefix team1"):
        check_named(OPTIONS, ledger, open_ids)
    check_named(replace(OPTIONS, prefix="team1"), ledger, open_ids)


@pytest.mark.parametrize(
    ("ledger", "open_ids"),
    [
        (ledger_of(an_id(job="firsts-2")), (an_id(),)),
        (ledger_of(), (an_id(job="firsts-2"),)),
    ],
    ids=["by its batches", "by what is open"],
)
def test_a_command_for_another_jobs_ledger_is_refused(
    ledger: Ledger, open_ids: tuple[str, ...]
) -> None:
    with pytest.raises(LedgerError, match="is not the ledger of job 'firsts'"):
        check_named(OPTIONS, ledger, open_ids)
