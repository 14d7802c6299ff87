"""What `eo-kafka txn abort` ends: by a ledger that is certain, each transaction by its own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from eo_kafka.core.transaction import (
    Decision,
    DecisionState,
    Described,
    EndTxnAnswer,
    Identity,
    Participant,
    TransactionState,
)
from eo_kafka.errors import OutcomeUnknown
from eo_kafka.state.ledger.ledger import Ledger
from eo_kafka.tools.transactions import command, ending
from eo_kafka.tools.transactions.ending import Asked, Outcome, end
from eo_kafka.tools.transactions.verdict import JobLedger, Judged, Standing

JOB = JobLedger("ledger", "shout", Ledger(generation=6))
NO, YES = Asked(commit=False), Asked(commit=False, yes=True)


def found(name: str, standing: Standing = Standing.CURRENT) -> Judged:
    described = Described(name, TransactionState.ONGOING, 7, 0)
    if standing is not Standing.DECIDED:
        return Judged(described, standing, None, JOB)
    part = Participant(0, 0, 6, Identity(name, 7, 0), 1, "digest")
    decision = Decision("main", 3, 0, DecisionState.DECIDED, 6, 5, 1, 0, (part,))
    return Judged(described, standing, None, JOB, decision, part)


class Cluster:
    """Ends what it is told to."""

    def __init__(self) -> None:
        self.aborted: list[str] = []

    def end_txn_version(self) -> int:
        return 5

    def end_all(self, identities, commit, _version, _timeout):
        assert not commit
        self.aborted += [one.transactional_id for one in identities]
        return {one.transactional_id: (EndTxnAnswer.ENDED, "NONE") for one in identities}


@pytest.fixture
def steps(monkeypatch) -> list[str]:
    """What was asked of the ledger, in order."""
    done: list[str] = []

    def close(*_):
        done.append("close")
        return {"ledger": Ledger(generation=7)}

    def read(*_):
        done.append("read")
        return Ledger(generation=6)

    monkeypatch.setattr(ending, "close_to_drivers", close)
    monkeypatch.setattr(ending, "read_acknowledged", read)
    return done


def abort(asked: Asked, first: Sequence[Judged], *again: Sequence[Judged]) -> tuple[Cluster, list]:
    looks = iter(again)
    cluster = Cluster()
    outcomes = end(cluster, first, asked, lambda _: None, lambda *_: next(looks))
    return cluster, [(one.judged.described.transactional_id, one.done) for one in outcomes]


def test_a_second_look_is_matched_by_id(steps):
    """Coordinators answer in no order: one moved between the looks."""
    now = [found("a"), found("c", Standing.DECIDED), found("b")]
    cluster, outcomes = abort(YES, [found("a"), found("b"), found("c")], now)
    assert cluster.aborted == ["a", "b"]
    assert outcomes == [("a", True), ("b", True), ("c", False)]


def test_what_seems_stale_is_judged_by_all_that_stands_in_the_ledger(steps):
    first = [found(name, Standing.OLDER) for name in ("stale", "newer", "decided")]
    now = [found("decided", Standing.DECIDED), found("newer"), first[0]]
    cluster, outcomes = abort(NO, first, now)
    assert (cluster.aborted, steps) == (["stale"], ["read"])
    assert outcomes == [("stale", True), ("newer", False), ("decided", False)]


def test_a_newer_drivers_is_aborted_with_yes_after_the_ledger_was_closed(steps):
    first = [found(name, Standing.OLDER) for name in ("stale", "newer", "late")]
    now = [found("late"), found("newer"), first[0]]
    closed = [found("late", Standing.DECIDED), found("newer")]
    cluster, outcomes = abort(YES, first, now, closed)
    assert (cluster.aborted, steps) == (["stale", "newer"], ["read", "close"])
    assert outcomes == [("stale", True), ("newer", True), ("late", False)]


def test_nothing_stale_is_ended_by_a_ledger_that_acknowledges_nothing(steps, monkeypatch):
    def refused(*_):
        raise OutcomeUnknown("ledger 'ledger' took no record")

    monkeypatch.setattr(ending, "read_acknowledged", refused)
    cluster, outcomes = abort(YES, [found("stale", Standing.OLDER), found("a")], [found("a")])
    assert (cluster.aborted, steps) == (["a"], ["close"])
    assert outcomes == [("stale", False), ("a", True)]


def test_another_transaction_of_the_id_is_not_ended(steps):
    first = found("stale", Standing.OLDER)
    other = found("stale", Standing.CURRENT)
    other = replace(other, described=replace(other.described, epoch=1))
    ended: list[Identity] = []
    cluster = Cluster()
    cluster.end_all = lambda identities, *_: (
        ended.extend(identities) or {"stale": (EndTxnAnswer.LOOK, "INVALID_PRODUCER_EPOCH")}
    )
    (outcome,) = end(cluster, [first], YES, lambda _: None, lambda *_: [other])
    assert (ended, outcome.done) == ([first.described.identity], False)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("gone", [True, False])
def test_tables_are_looked_at_whatever_became_of_the_transactions(monkeypatch, capsys, done, gone):
    """One document says both; the worse of both is the exit code."""
    monkeypatch.setattr(
        command, "TransactionSearch", lambda *_: SimpleNamespace(close=list, left_out={})
    )
    monkeypatch.setattr(command, "target_of", lambda _: "a table")
    monkeypatch.setattr(command, "_find", lambda *_: [])
    outcome = Outcome(found("a"), done, "said")
    monkeypatch.setattr(command, "end_found", lambda *_: [outcome])
    monkeypatch.setattr(command, "look_beside", lambda *_: "beside")
    monkeypatch.setattr(command, "end_tables", lambda *_, **__: [("it", gone, "said")])
    monkeypatch.setattr(command, "table_as_json", lambda one: {"table": one})
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = "abort --job shout --table-config x --json --bootstrap-servers b:1"
    code = command.run(parser.parse_args(words.split()))
    said = json.loads(capsys.readouterr().out)
    assert code == (0 if done and gone else 1)
    assert said["dryRun"] is False
    assert [one["done"] for one in said["transactions"]] == [done]
    assert said["stagingTables"] == [{"table": "it", "done": gone, "outcome": "said"}]
