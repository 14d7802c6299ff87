"""What a query is told whose ledger is another one's, and who is believed to have written it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.clients.kafka.transactional_id import TransactionalIds
from eo_kafka.core.transaction import Decision, DecisionState, Identity, Participant
from eo_kafka.errors import ForeignLedger, LedgerError
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.state.ledger import owner
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


def coordinator(prefix: str = "eo-kafka", job: str = "firsts") -> str:
    return TransactionalIds(prefix, job).coordinator


@pytest.mark.parametrize(
    ("told", "ledger", "refused"),
    [
        # Nobody tells
        ("", ledger_of(), ""),
        # Kafka tells who wrote last, whatever batches say
        (coordinator(), ledger_of(), ""),
        (coordinator(), ledger_of(an_id("older")), ""),
        (coordinator(), ledger_of(an_id(job="before it was renamed")), ""),
        (coordinator("team1"), ledger_of(), "--transactional-id-prefix team1"),
        (coordinator("team1"), ledger_of(an_id()), "--transactional-id-prefix team1"),
        (coordinator(job="renamed"), ledger_of(an_id()), "not the ledger of job 'firsts'"),
        (coordinator("team1", "renamed"), ledger_of(), "not the ledger of job 'firsts'"),
        # It does not: the newest batch does
        ("", ledger_of(an_id("older"), an_id()), ""),
        ("", ledger_of(an_id(job="before it was renamed"), an_id()), ""),
        ("", ledger_of(an_id(), an_id("team1")), "--transactional-id-prefix team1"),
        ("", ledger_of(an_id(), an_id(job="renamed")), "not the ledger of job 'firsts'"),
        # Another program's id is nobody's
        ("payments-7", ledger_of(), ""),
        ("payments-7", ledger_of(an_id("team1")), "--transactional-id-prefix team1"),
    ],
)
def test_a_command_by_hand_is_for_the_job_that_wrote_the_ledger_last(
    monkeypatch: pytest.MonkeyPatch, told: str, ledger: Ledger, refused: str
) -> None:
    monkeypatch.setattr(owner, "last_writer", lambda *_: told)
    control = cast(ControlPlane, None)
    if not refused:
        check_named(control, OPTIONS, ledger)
        return
    with pytest.raises(LedgerError, match=refused):
        check_named(control, OPTIONS, ledger)
    is_job = "prefix" in refused
    assert bool(owner.anothers(control, "ledger", "firsts", ledger)) is not is_job
    if is_job:
        check_named(control, replace(OPTIONS, prefix="team1"), ledger)
