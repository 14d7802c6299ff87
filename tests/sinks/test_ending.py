"""Transactions are ended until each has a final answer; what that means is the caller's."""

from __future__ import annotations

import time
from collections.abc import Iterable
from unittest.mock import Mock

import pytest

from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.core import patience
from eo_kafka.core.process import driver_directory
from eo_kafka.core.transaction import Decision, DecisionState, EndTxnAnswer, Identity, Participant
from eo_kafka.errors import EnvironmentRefused, LedgerError, OutcomeUnknown, ParticipantsLost
from eo_kafka.sinks.protocol import batch, finisher
from eo_kafka.sinks.transactions import stragglers

IDS = [Identity(name, 1, 0) for name in ("a", "b")]
ENDED, RETRY, LOOK, REFUSED = EndTxnAnswer


class Answers(ControlPlane):
    """A cluster that answers, round by round, what it is told to; the last round for ever."""

    def __init__(self, *rounds: dict[str, str]) -> None:
        self.servers = "servers"
        self._settings = {"bootstrap.servers": self.servers}
        self.rounds = list(rounds)
        self.asked: list[list[str]] = []

    def end(self, identities: Iterable[Identity], commit: bool, version: int) -> dict[str, str]:
        names = [one.transactional_id for one in identities]
        self.asked.append(names)
        answers = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        return {name: answers[name] for name in names}


def test_only_what_has_no_final_answer_is_asked_again():
    cluster = Answers(
        {"a": "NONE", "b": "NETWORK"}, {"b": "CONCURRENT_TRANSACTIONS"}, {"b": "INVALID_TXN_STATE"}
    )
    found = cluster.end_all(IDS, True, 5, timeout_s=60)
    assert found == {"a": (ENDED, "NONE"), "b": (LOOK, "INVALID_TXN_STATE")}
    assert cluster.asked == [["a", "b"], ["b"], ["b"]]


def test_a_refusal_is_final_and_the_others_are_still_ended():
    cluster = Answers({"a": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "b": "NETWORK"}, {"b": "NONE"})
    found = cluster.end_all(IDS, True, 5, timeout_s=60)
    assert [meaning for meaning, _ in found.values()] == [REFUSED, ENDED]


def test_what_has_no_answer_in_time_is_told():
    cluster = Answers({"a": "NONE", "b": "NETWORK"})
    assert cluster.end_all(IDS, True, 5, timeout_s=0)["b"] == (RETRY, "NETWORK")
    assert Answers({}).end_all([], True, 5, timeout_s=0) == {}


@pytest.mark.parametrize(
    ("answer", "is_waited_for"),
    [
        ("NETWORK", True),
        ("COORDINATOR_LOAD_IN_PROGRESS", True),
        ("COORDINATOR_NOT_AVAILABLE", True),
        ("NOT_COORDINATOR", True),
        ("CONCURRENT_TRANSACTIONS", False),
    ],
)
def test_a_coordinator_that_comes_back_is_waited_for_as_one_that_is_away(
    answer: str, is_waited_for: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may load for minutes."""
    monkeypatch.setattr(patience, "OUTAGE_S", 1.5)
    monkeypatch.setattr(driver_directory, "_seen", set())
    patience.served("servers")
    began = time.monotonic()
    assert Answers({"a": answer}).end_all(IDS[:1], True, 5, 0.2) == {"a": (RETRY, answer)}
    assert (time.monotonic() - began > 1) is is_waited_for


def abort(cluster: Answers) -> None:
    stragglers.end_all(cluster, IDS, 5)


def save(cluster: Answers) -> None:
    batch._commit_all(cluster, IDS, 5)


def finish(cluster: Answers) -> None:
    parts = [Participant(n, 0, 1, identity, 1, "d") for n, identity in enumerate(IDS)]
    decision = Decision("main", 7, 0, DecisionState.DECIDED, 1, 5, 1, 0, tuple(parts))
    finisher.Finisher(Mock(), cluster, Mock())._end_all(decision)


@pytest.mark.parametrize(
    ("act", "answer", "error", "sentence"),
    [
        (abort, "GROUP_AUTHORIZATION_FAILED", EnvironmentRefused, "refuses to abort 'b'"),
        (abort, "NETWORK", OutcomeUnknown, "1 open transactions .* no answer to their abort"),
        (save, "INVALID_TXN_STATE", ParticipantsLost, "not commit 'b'.* committed 1 of 2"),
        (save, "GROUP_AUTHORIZATION_FAILED", EnvironmentRefused, "not commit 'b'.* 1 of 2"),
        (save, "NETWORK", OutcomeUnknown, "1 of 2 transactions got no final answer"),
        (
            finish,
            "GROUP_AUTHORIZATION_FAILED",
            EnvironmentRefused,
            r"commit 1 trans.*: b: GROUP_AU",
        ),
        (finish, "NETWORK", OutcomeUnknown, "Batch 7 is decided, but 1 of its transactions"),
    ],
)
def test_what_the_answers_mean(monkeypatch, act, answer, error, sentence):
    for module in (batch, finisher, stragglers):
        monkeypatch.setattr(module, "END_TIMEOUT_S", 0.0)
    with pytest.raises(error, match=sentence):
        act(Answers({"a": "NONE", "b": answer}))


@pytest.mark.parametrize("act", [abort, finish])
def test_one_that_had_ended_is_settled_by_its_token(act):
    act(Answers({"a": "NONE", "b": "INVALID_TXN_STATE"}))


def test_topics_of_which_no_id_was_recorded_are_never_gone() -> None:
    """Ledgers and tokens of eo-kafka before: brokers that know no ids were written down as "None".
    Later the topic has one, and its rows are there all the same."""
    unknown, known, other = ("out", "None"), ("more", "id"), ("more", "made again")

    def gone(accept: bool, *topics: tuple[str, str]) -> bool:
        cluster = Mock(agreed_topic_ids=lambda _: {"out": "new", "more": "id"})
        mine = finisher.Finisher(Mock(), cluster, Mock(), by_hand=accept)
        part = Participant(0, 0, 1, IDS[0], 1, "d", topics)
        return bool(mine.gone([part], 7, cluster.agreed_topic_ids(())))

    assert not gone(False, unknown)
    assert not gone(False, unknown, known)
    assert gone(False, other)
    assert not gone(True, unknown, other)  # the rows in the first may be there
    with pytest.raises(LedgerError, match=r"topics \['more'\] were deleted"):
        gone(False, unknown, other)
