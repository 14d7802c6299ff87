"""What an operator may do with a transaction, as the ledger says: every standing, no broker."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from eo_kafka.clients.kafka.lost_markers import Missing, Open
from eo_kafka.clients.kafka.transactional_id import TransactionalIds, parse_id
from eo_kafka.core.transaction import (
    Decision,
    DecisionState,
    Described,
    Identity,
    Participant,
    Token,
    TransactionState,
    without_token,
)
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.state.ledger import records
from eo_kafka.state.ledger.ledger import Ledger
from eo_kafka.tools.transactions import command, verdict
from eo_kafka.tools.transactions import search as search_module
from eo_kafka.tools.transactions.ending import Asked, refusal
from eo_kafka.tools.transactions.report import details, listing
from eo_kafka.tools.transactions.search import TransactionSearch
from eo_kafka.tools.transactions.verdict import JobLedger, Judged, Standing, TokenState, judge

IDS = TransactionalIds("eo.kafka", "shout")
NOW = 1_000_000
COMMIT, ABORT = Asked(commit=True), Asked(commit=False)


def described(
    name: str, epoch: int = 0, state=TransactionState.ONGOING, age_ms: int = 1000
) -> Described:
    return Described(name, state, 7, epoch, 60_000, NOW - age_ms)


def ledger(
    state: DecisionState | None, tokens: tuple[Token, ...] = (), stable: bool = True
) -> JobLedger:
    """Generation 6, with batch 3 of generation 5 in `state`: task 0 under epoch 0."""
    found = Ledger(generation=6)
    if state is not None:
        identity = Identity(IDS.task("main", 0, 5, 0), 7, 0)
        part = Participant(0, 0, 5, identity, 10, "digest")
        decision = Decision("main", 3, 0, state, 5, 5, 1, 0, (part,))
        found.decisions[("main", 3)] = decision
    return JobLedger("ledger", "shout", found, tokens, stable)


DECIDED_ID = IDS.task("main", 0, 5, 0)
TOKEN = Token("main", 0, 3, 0, 5, 10, "digest")


@pytest.mark.parametrize(
    ("judged", "standing", "may_commit", "may_abort", "may_abort_with_yes"),
    [
        (
            judge(described(DECIDED_ID), ledger(DecisionState.DECIDED)),
            Standing.DECIDED, True, False, False,
        ),
        (  # the same id, one transaction later
            judge(described(DECIDED_ID, epoch=1), ledger(DecisionState.DECIDED)),
            Standing.OLDER, False, True, True,
        ),
        (judge(described(DECIDED_ID), ledger(None)), Standing.OLDER, False, True, True),
        (
            judge(described(IDS.task("main", 0, 6, 0)), ledger(None)),
            Standing.CURRENT, False, False, True,
        ),
        (
            judge(described(IDS.coordinator), ledger(None)),
            Standing.COORDINATOR, False, False, True,
        ),
        (judge(described(DECIDED_ID), None), Standing.NO_LEDGER, False, False, False),
        (judge(described("billing-1"), None), Standing.FOREIGN, False, False, False),
        (
            judge(described(DECIDED_ID), ledger(DecisionState.VOID)),
            Standing.SETTLED, False, False, False,
        ),
    ],
    ids=lambda value: value.standing.name if isinstance(value, Judged) else None,
)  # fmt: skip
def test_each_standing_may_be_ended_one_way_only(
    judged, standing, may_commit, may_abort, may_abort_with_yes
):
    assert judged.standing is standing
    assert (refusal(judged, COMMIT) is None) is may_commit
    assert (refusal(judged, ABORT) is None) is may_abort
    assert (refusal(judged, Asked(commit=False, yes=True)) is None) is may_abort_with_yes
    for commit in (True, False):
        assert refusal(judged, Asked(commit, force=True)) is None


@pytest.mark.parametrize(
    "found",
    [
        judge(described(IDS.task("main", 0, 5, 0)), JobLedger("ledger", "shout", Ledger())),
        judge(
            described(IDS.task("main", 0, 3, 0)),
            JobLedger("ledger", "shout", Ledger(generation=2)),
        ),
        judge(
            replace(
                described(IDS.task("main", 0, 5, 0)),
                partitions=frozenset({("out", 0), ("__eo_kafka.shout.ledger", 1)}),
            ),
            ledger(None),
        ),
    ],
    ids=["empty", "went back", "token elsewhere"],
)
def test_a_ledger_that_cannot_be_the_transactions_says_nothing_of_it(found):
    """Emptied, or another job's: by it, a decided transaction would be nobody's, and aborted."""
    assert found.standing is Standing.NO_LEDGER
    assert "no ledger was found" in refusal(found, Asked(commit=False, yes=True))


class Search(TransactionSearch):
    """Of a cluster with the job's ledger of before, and other topics."""

    def __init__(self, found: list[Described]) -> None:
        self._settings, self.found = {}, found
        self.looked: list[str] = []

    def describe(self, ids):
        return {one.transactional_id: one for one in self.found}

    def ledgers(self):
        return {"__eo_kafka.shout.ledger": "shout"}

    def read_ledger(self, topic, job):
        return JobLedger(topic, job, Ledger(generation=4711))

    def end_offset(self, topic, partition, committed):
        assert (partition, committed) == (0, True)
        return 9


@pytest.mark.parametrize(
    ("topics", "standing", "looked"),
    [
        ({("out", 0), ("team.orders-ledger", 1)}, Standing.NO_LEDGER, ["team.orders-ledger"]),
        ({("out", 0), ("unseen", 1)}, Standing.NO_LEDGER, ["unseen"]),
        ({("out", 0), ("prices", 1)}, Standing.OLDER, ["prices"]),
        ({("prices", 0), ("prices", 1)}, Standing.OLDER, []),
        ({("prices", 1), ("__eo_kafka.shout.ledger", 1)}, Standing.OLDER, []),
    ],
)
def test_a_ledger_of_another_name_is_known_by_what_is_in_it(topics, standing, looked, monkeypatch):
    """The job has got option ledgerTopic since: by its ledger of before, what it decides is stale,
    and aborted."""

    def read_records(_settings, topic, partition, start, end, at_once):
        search.looked.append(topic)
        if topic == "unseen":
            raise EnvironmentRefused("No Read on it.")
        keys = {"team.orders-ledger": b"owner", "prices": b"AMD"}
        yield 4, keys[topic], records.encode_owner("a query")
        raise AssertionError("the first is enough")

    monkeypatch.setattr(search_module, "read_records", read_records)
    one = replace(described(IDS.task("main", 0, 2, 0)), partitions=frozenset(topics))
    quiet = described(IDS.task("main", 1, 2, 0))  # of the same driver; it has no token yet
    search = Search([one, quiet])
    found = search.judge([one.transactional_id, quiet.transactional_id])
    assert [one.standing for one in found] == [standing, standing]
    assert search.looked == looked


@pytest.mark.parametrize(
    ("state", "commit"),
    [(TransactionState.PREPARE_COMMIT, False), (TransactionState.PREPARE_ABORT, True)],
)
def test_what_the_coordinator_has_begun_cannot_be_turned_round_even_by_force(state, commit):
    judged = judge(described(DECIDED_ID, 1, state), ledger(DecisionState.DECIDED))
    assert judged.standing is Standing.DECIDED, "EndTxn 5 raises the epoch while it ends it"
    assert "cannot be undone" in refusal(judged, Asked(commit, force=True))


@pytest.mark.parametrize(
    ("state", "tokens", "stable", "token"),
    [
        (TransactionState.ONGOING, (), False, TokenState.OPEN),
        (TransactionState.COMPLETE_COMMIT, (TOKEN,), True, TokenState.VISIBLE),
        (TransactionState.COMPLETE_COMMIT, (), False, TokenState.HIDDEN),
        (TransactionState.COMPLETE_ABORT, (), False, TokenState.NOT_VISIBLE),
        (TransactionState.EMPTY, (), True, TokenState.NOT_VISIBLE),
        (TransactionState.COMPLETE_COMMIT, (), True, TokenState.VISIBLE),
    ],
)
def test_the_token_says_what_became_of_a_decided_transaction(state, tokens, stable, token):
    judged = judge(
        described(DECIDED_ID, state=state), ledger(DecisionState.DECIDED, tokens, stable)
    )
    assert judged.token is token
    assert (judged.needs_attention(NOW) is not None) is (
        token in (TokenState.OPEN, TokenState.NOT_VISIBLE)
    )


@pytest.mark.parametrize(
    ("state", "token"),
    [
        (TransactionState.COMPLETE_COMMIT, TokenState.VISIBLE),
        (TransactionState.COMPLETE_ABORT, TokenState.NOT_VISIBLE),
        (TransactionState.EMPTY, TokenState.LOST),
    ],
)
def test_a_token_that_is_lost_says_nothing(state, token):
    job = replace(ledger(DecisionState.DECIDED), tokens_lost=True)
    judged = judge(described(DECIDED_ID, state=state), job)
    assert judged.token is token
    assert ("lost tokens" in (judged.needs_attention(NOW) or "")) is (token is TokenState.LOST)


@pytest.mark.parametrize(
    ("age_ms", "reason"),
    [(1000, None), (31_000, "half its timeout"), (130_000, "has not aborted it")],
)
def test_an_undecided_transaction_needs_somebody_when_it_is_old(age_ms, reason):
    judged = judge(described(IDS.task("main", 0, 6, 0), age_ms=age_ms), ledger(None))
    found = judged.needs_attention(NOW)
    assert found is None if reason is None else reason in found


HUNG = Open("out", 0, 7, 0, 0, 0)


def ended(commit: bool) -> Missing:
    return Missing(HUNG, "name", 0, commit)


@pytest.mark.parametrize(
    ("ours", "how", "advice", "commit", "abort"),
    [
        (True, ended(True), "it was committed", "yes", "no"),
        (True, ended(False), "it was aborted", "no", "yes"),
        (True, None, "docs/troubleshooting.md", "force", "force"),
        (False, ended(True), "txn commit --topic out --force", "force", "no"),
        (False, ended(False), "txn abort --topic out --force", "no", "force"),
        (False, None, "never times out", "force", "force"),
    ],
)
def test_a_hung_transaction_ends_as_it_did_only(ours, how, advice, commit, abort):
    name = DECIDED_ID if ours else "billing"
    gone = Described(name, TransactionState.MISSING, 7, 0)
    judged = replace(judge(gone, None), hung=(HUNG,), ended=how)
    assert judged.is_open
    assert advice in judged.needs_attention(NOW)
    for may, commits in ((commit, True), (abort, False)):
        refused = [refusal(judged, Asked(commits, force=force)) for force in (False, True)]
        assert [one is None for one in refused] == [may == "yes", may != "no"]


def test_a_listing_of_older_ones_keeps_those_without_an_age_that_need_somebody():
    gone = Described("(unknown)", TransactionState.MISSING, 7, 0)
    hung = Judged(gone, Standing.FOREIGN, hung=(HUNG,))
    ended = described(DECIDED_ID, state=TransactionState.COMPLETE_ABORT)
    aborted, done = (
        judge(ended, ledger(one)) for one in (DecisionState.DECIDED, DecisionState.DONE)
    )
    young = replace(described(DECIDED_ID), start_ms=int(time.time() * 1000))
    found = [hung, aborted, done, judge(young, ledger(DecisionState.DECIDED))]
    assert command._older(found, 600_000, "list") == [hung, aborted]
    assert command._older(found, 600_000, "abort") == []


def test_ids_are_parsed_as_they_are_built():
    parts = parse_id(IDS.task("main", 12, 6, 11))
    assert (parts.prefix, parts.task.partition) == ("eo.kafka", 12)
    assert (parts.task.generation_slot, parts.task.attempt_slot) == (2, 3)
    assert parts.is_of("shout") and not parts.is_of("shouted")
    assert parts.task.is_of("main") and not parts.task.is_of("other")
    assert parse_id(IDS.coordinator).task is None
    for strange in ("", "billing-1", "eo-kafka.c", IDS.coordinator + "x", "." + "0" * 12 + ".c"):
        assert parse_id(strange) is None


def test_a_listing_looks_at_all_tokens_once(monkeypatch):
    """A look for each transaction took minutes for a batch of thousands of tasks."""
    looks = []
    monkeypatch.setattr(
        verdict, "without_token", lambda *asked: looks.append(asked) or without_token(*asked)
    )
    tasks = range(200)
    parts = tuple(
        Participant(n, 0, 5, Identity(IDS.task("main", n, 5, 0), 7, 0), 10, "digest") for n in tasks
    )
    found = Ledger(generation=6)
    found.decisions[("main", 3)] = Decision("main", 3, 0, DecisionState.DECIDED, 5, 5, 1, 0, parts)
    job = JobLedger("ledger", "shout", found, (TOKEN,))
    ended = TransactionState.COMPLETE_ABORT
    judged = [judge(described(one.identity.transactional_id, 1, ended), job) for one in parts]
    assert [one.token for one in judged] == [TokenState.VISIBLE] + [TokenState.NOT_VISIBLE] * 199
    assert len(looks) == 1


def test_an_id_that_others_chose_moves_no_cursor():
    one = Judged(described("x\n\x1b[2Keo-kafka.orders"), Standing.FOREIGN)
    for said in (listing([one], 0), details(one, 0)):
        assert r"'x\n\x1b[2Keo-kafka.orders'" in said and "\x1b" not in said
