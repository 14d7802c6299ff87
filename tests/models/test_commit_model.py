"""Every interleaving of the commit protocol keeps its promises, and each of its rules is needed."""

from __future__ import annotations

from typing import Any

import pytest
import test_model_checkpoint
import test_model_fences
import test_model_markers
import test_model_passes
import test_model_readable
import test_model_stale
import test_model_tokens
import test_one_phase_model
from commit_explorer import explore
from commit_model import Rules, Setting

from eo_kafka.clients.kafka import control_plane
from eo_kafka.clients.kafka.control_requests import Look
from eo_kafka.core.transaction import Decision, DecisionState, Identity
from eo_kafka.errors import Fenced
from eo_kafka.sinks.protocol import preflight, recovery
from eo_kafka.sinks.protocol.finisher import Outcome
from eo_kafka.state.ledger.ledger import Ledger

LOST = "a decided transaction was lost though nothing timed out"
ONE_SPLIT = Setting(splits=("ab",))
TIMEOUT = Setting(timeouts=1, deaths=False)
IN_TURN = TIMEOUT._replace(one_by_one=True)  # it is missed already by drivers that never meet
OTHER_TASKS = IN_TURN._replace(splits=("ab", "all-in-0"))
# rule -> (the setting in which it is missed, what is then seen)
NEEDED = {
    "s1_writes_generation": (ONE_SPLIT, LOST),
    "fence_before_read": (ONE_SPLIT, LOST),
    "plan_of_own_generation": (ONE_SPLIT, "is in the commit log and of its rows visible"),
    "list_then_check": (ONE_SPLIT, LOST),
    "check_before_init": (ONE_SPLIT, LOST),
    "s6_checks_generation": (ONE_SPLIT, LOST),
    "equal_digests": (OTHER_TASKS, "visible twice"),
    "visible_is_left_out": (IN_TURN, "visible twice"),
    "rounds": (IN_TURN, "no way leads to the end"),
    "void": (OTHER_TASKS, "asked for repair where nothing"),
    "done_needs_tokens": (ONE_SPLIT, "is DONE and a participant is not committed"),
    "abort_reads_ledger": (ONE_SPLIT, LOST),
    "abort_by_epoch": (ONE_SPLIT, LOST),
    "commit_by_epoch": (Setting(deaths=False), "visible twice"),
}


def test_two_drivers_and_a_timeout_keep_every_promise() -> None:
    outcome = explore(Setting(timeouts=1), liveness=True)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.finished > 1000
    # What the exploration is for did happen in it.
    for label in (
        "S1 writes DONE",
        "S1 finds 1 lost",
        "S6 DECIDED round 1",
        "the append on its way lands",
    ):
        assert outcome.labels[label], label


def test_a_batch_that_is_lost_as_a_whole_is_replayed_in_any_partitioning() -> None:
    outcome = explore(TIMEOUT._replace(splits=("ab", "all-in-0")), liveness=True)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.labels["S1 writes VOID"]
    assert outcome.labels["S6 asks for repair"], "of one that is lost in part"
    assert outcome.labels["S6 DECIDED round 1"]


def test_two_batches_in_a_row_keep_every_promise() -> None:
    outcome = explore(Setting(batches=2, splits=("ab",), slots=2, deaths=False))

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.finished


@pytest.mark.full
@pytest.mark.parametrize(
    "setting",
    [
        Setting(timeouts=1, splits=("ab", "all-in-0")),
        Setting(timeouts=2, splits=("ab",)),
        Setting(attempts=2, splits=("ab",), deaths=False),
        Setting(batches=2, splits=("ab",), slots=2),
        Setting(batches=2, splits=("ab",), timeouts=1, deaths=False),
    ],
    ids=str,
)
def test_larger_worlds_keep_every_promise(setting: Setting) -> None:
    outcome = explore(setting)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.finished


def test_every_rule_is_tried() -> None:
    subjects = (
        test_one_phase_model,
        test_model_readable,
        test_model_fences,
        test_model_checkpoint,
        test_model_stale,
        test_model_markers,
        test_model_passes,
        test_model_tokens,
    )
    tried = {rule for subject in subjects for rule in subject.NEEDED}
    assert set(NEEDED) | tried == set(Rules._fields)


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_promise_is_broken(rule: str) -> None:
    setting, seen = NEEDED[rule]
    weaker = setting._replace(rules=Rules()._replace(**{rule: False}))

    outcome = explore(weaker, liveness=rule == "rounds")

    assert seen in outcome.fault
    assert outcome.trace


class OvertakenCoordinator:
    """Generation 1; right after it took that, generation 2 has decided batch 1 and not ended it."""

    topic = "ledger"
    identity = Identity("c", 1, 1)
    state_of_batch_0 = DecisionState.DONE

    def __init__(self, *_: object) -> None:
        self.ledger = Ledger()
        self._decided(0, 0, self.state_of_batch_0)
        self._overtaken = False

    def _decided(self, batch: int, generation: int, state: DecisionState) -> None:
        self.ledger.generation = generation
        decision = Decision("main", batch, 0, state, generation, 5, 1, 0, ())
        self.ledger.decisions["main", batch] = decision

    def look_first(self, *, may_be_new: bool) -> tuple[int, int]:
        return 0, 5

    def fence(self) -> None:
        pass

    def read(self) -> Ledger:
        if self._overtaken:
            self._decided(1, 2, DecisionState.DECIDED)
        return self.ledger

    def try_append(self, _records: object, *, barrier: bool = False) -> bool:
        self._overtaken = True
        return True

    def keep(self) -> None:
        pass

    def check_owner(self, _query: object) -> None:
        pass

    def check_generation(self, generation: int) -> None:
        if self.ledger.generation != generation:
            raise Fenced("overtaken")


class Nothing:
    """A control plane and a finisher with nothing to do."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def look(self, **_: object) -> Look:
        return Look({}, [0], {}, 2)

    def finish(self, _decision: object) -> Outcome:
        return Outcome()

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_kwargs: None


@pytest.fixture
def overtaken(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The options of a driver that is."""
    monkeypatch.setattr(recovery, "Coordinator", OvertakenCoordinator)
    monkeypatch.setattr(recovery, "Finisher", Nothing)
    monkeypatch.setattr(preflight, "ensure", lambda _: None)
    monkeypatch.setattr(control_plane, "shared", lambda _: Nothing())
    known = {
        "kafka": {},
        "sink": "main",
        "one_phase": False,
        "on_reset": "stop",
        "outputs": (),
        "topic": "t",
        "target": "t",
    }
    known |= dict.fromkeys(("query_id", "staging", "checkpoint"))
    return type("Options", (), known)()


def test_a_plan_never_shows_what_a_newer_generation_wrote(overtaken: Any) -> None:
    assert recovery.make_plan(overtaken).decisions.keys() == {0}


def test_a_plan_is_not_made_of_a_ledger_that_a_newer_generation_wrote(
    overtaken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where S1 rolled something forward, it reads once more."""
    monkeypatch.setattr(OvertakenCoordinator, "state_of_batch_0", DecisionState.DECIDED)
    with pytest.raises(Fenced):
        recovery.make_plan(overtaken)
