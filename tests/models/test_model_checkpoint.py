"""A checkpoint that goes back loses and repeats no record. Each rule for it is needed."""

from __future__ import annotations

import pytest
from commit_explorer import assert_kept, assert_needed, explore
from commit_model import Setting
from model_checkpoint import ROLLBACK
from one_phase_model import ONE_PHASE

TIMEOUT = ROLLBACK._replace(timeouts=1, records=3)
UNKNOWN = ROLLBACK._replace(known_source=False)  # one whose offsets do not say which records
TWO_COPIES = ROLLBACK._replace(one_by_one=False, drivers=2, batches=1)
REPARTITION = ROLLBACK._replace(repartitions=1)
# The same, of tasks that commit by themselves.
TORN = REPARTITION._replace(
    first_step=ONE_PHASE.first_step,
    find_torn=ONE_PHASE.find_torn,
    attempt_slots=ONE_PHASE.attempt_slots,
)
NOT_VISIBLE = "is in the commit log and records"
# rule -> (the settings in which it is missed, what is then seen)
NEEDED = {
    "identity_checked": ((ROLLBACK, UNKNOWN), NOT_VISIBLE),
    "offsets_as_planned": ((TWO_COPIES,), NOT_VISIBLE),
    "forgotten_is_refused": ((ROLLBACK._replace(kept=1), REPARTITION), "visible twice"),
    "begins_where_ended": ((REPARTITION, TORN), "visible twice"),
    "torn_batch_first": ((TORN,), "visible twice"),
}
ANOTHER = "is another batch than the one that is DONE"


@pytest.mark.parametrize("setting", [ROLLBACK, UNKNOWN, TIMEOUT], ids=["", "digests", "torn"])
def test_no_record_is_lost_and_a_command_goes_on(setting: Setting) -> None:
    # Where a decision is torn, more drivers stop than may start here.
    outcome = explore(setting, liveness=not setting.timeouts)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.labels[ANOTHER]
    assert outcome.labels["all skipped"]  # the same batch again is no reason to stop
    assert outcome.labels["a person has the checkpoint follow the ledger"]


def test_a_batch_that_the_ledger_has_forgotten_is_not_written_again() -> None:
    outcome = explore(ROLLBACK._replace(kept=1))

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.labels["the ledger does not remember this batch"]


@pytest.mark.parametrize("setting", [REPARTITION, TORN], ids=["two-phase", "idempotent"])
def test_with_a_checkpoint_of_before_a_repartition_nothing_is_repeated(setting: Setting) -> None:
    outcome = explore(setting)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.labels["the state is repartitioned"]
    assert outcome.labels["the ledger does not remember this batch"]
    assert outcome.labels["it begins where the newest one has not ended"]
    assert outcome.labels["another batch is partly committed"] or setting is REPARTITION


@pytest.mark.full
@pytest.mark.parametrize(
    "setting",
    [
        TWO_COPIES,
        TORN._replace(rollbacks=2, repartitions=2, records=3),
        TIMEOUT._replace(rollbacks=2, splits=("ab", "ba")),
        ROLLBACK._replace(deaths=True, drivers=2, batches=2),
    ],
    ids=["another copy of the disk", "repartitioned twice", "twice", "drivers die"],
)
def test_larger_worlds_keep_every_promise(setting: Setting) -> None:
    assert_kept(setting)


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_promise_is_broken(rule: str) -> None:
    settings, seen = NEEDED[rule]
    for setting in settings:
        assert_needed(rule, setting, seen)
