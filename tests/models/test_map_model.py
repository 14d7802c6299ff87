"""Every interleaving of drivers that apply decided chunks keeps its promises, and each rule is
needed."""

from __future__ import annotations

import map_model
import map_world
import pytest
from commit_explorer import Model, Outcome, walk
from map_model import s1_plan
from map_world import Driver, Rules, Setting, World

LOSS = Setting(losses=1)
DEATH = Setting(deaths=1)
REFUSAL = Setting(refusals=1)
RENEWAL = Setting(renewals=1)
HEAL = Setting(heals=1, beside=False)  # else the fence of a paused driver is gone, too
LANES = HEAL._replace(batches=3, lanes=(1, 0, 0))
ACCEPTED = LANES._replace(accepts=True)
# rule -> (the setting in which it is missed, what is then seen)
NEEDED = {
    "takes_first": (LOSS, "a chunk is applied of a decision that is VOID"),
    "looks_who_holds": (Setting(), "staged rows are gone and no member was lost"),
    "compares_holder": (LOSS, "a chunk is applied of a decision that is VOID"),
    "names_decision": (Setting(), "is in the commit log and not whole in the map"),
    "marker_names_ledger": (RENEWAL, "is in the commit log and not whole in the map"),
    "ahead_names_ledger": (RENEWAL, "an entry is neither what it was nor what it was to be"),
    "one_transaction": (Setting(), "a chunk is applied twice"),
    "locks_marker": (Setting(), "a chunk is applied twice"),
    "lost_lock_refuses": (Setting(), "a chunk is applied twice"),
    "removes_older_only": (Setting(), "staged rows are gone and no member was lost"),
    "writes_ahead": (DEATH, "a chunk is applied twice"),
    "takes_again": (DEATH, "a chunk is applied twice"),
    "finishes_landed": (DEATH, "is in the commit log and not whole in the map"),
    "carries": (DEATH._replace(deaths=2), "is in the commit log and not whole in the map"),
    "compares_done": (HEAL, "is in the commit log and not whole in the map"),
    "each_lane": (LANES, "is in the commit log and not whole in the map"),
    "takes_lacking": (ACCEPTED, "an accepted loss is told again"),
    "counts_done": (HEAL, "is in the commit log and not whole in the map"),
    "compares_count": (HEAL, "is in the commit log and not whole in the map"),
    "leaves_later": (HEAL, "is in the commit log and not whole in the map"),
    "compares_all": (REFUSAL, "a chunk is applied twice"),
}


def explore(setting: Setting, *, liveness: bool = False) -> Outcome:
    of_map = Model(
        World((Driver(s1_plan),)),
        lambda world: map_model.moves(world, setting),
        map_world.fault,
        lambda world: map_world.finished(world, setting),
        lambda world: len(world.drivers) < setting.drivers,
    )
    return walk(of_map, liveness=liveness)


def test_two_drivers_apply_each_chunk_once() -> None:
    outcome = explore(Setting(), liveness=True)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.finished
    for label in ("S7 misses some", "S7 applies a chunk, answer lost"):
        assert outcome.labels[label], label


@pytest.mark.parametrize("merges", [False, True])
def test_what_members_lose_is_written_again_or_stops_the_query(merges: bool) -> None:
    outcome = explore(LOSS._replace(merges=merges), liveness=not merges)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.labels["S7 VOID"]
    assert bool(outcome.labels["S7 finds it torn"]) is not merges


def test_a_member_that_dies_while_it_commits_tears_no_chunk() -> None:
    outcome = explore(DEATH, liveness=True)

    assert outcome.fault == "", "\n".join(outcome.trace)
    for part in ("nothing", "the marker", "the row", "all"):
        assert outcome.labels[f"S7 a member dies and leaves {part}"], part


def test_members_that_refuse_a_part_of_a_commit_tear_no_chunk() -> None:
    outcome = explore(REFUSAL, liveness=True)

    assert outcome.fault == "", "\n".join(outcome.trace)
    for part in ("nothing", "the marker", "the row"):
        assert outcome.labels[f"S7 members refuse a commit but for {part}"], part


def test_what_another_ledger_decided_counts_for_nothing() -> None:
    outcome = explore(RENEWAL)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.finished
    assert outcome.labels["a new ledger, markers are removed"]


def test_no_batch_follows_one_that_a_healed_split_brain_took_back() -> None:
    outcome = explore(HEAL)

    assert outcome.fault == "", "\n".join(outcome.trace)
    for label in ("a split brain heals", "S7 VOID", "S7 finds it torn"):
        assert outcome.labels[label], label


def test_a_loss_in_a_lane_that_newer_batches_do_not_use_is_found() -> None:
    outcome = explore(LANES)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.labels["lane 1 goes back"]


def test_a_loss_that_is_accepted_is_told_once() -> None:
    outcome = explore(ACCEPTED)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.finished
    assert outcome.labels["S7 finds less in another lane"]


@pytest.mark.full
@pytest.mark.parametrize(
    "setting",
    [
        Setting(drivers=3),
        LOSS._replace(drivers=3, batches=1),
        Setting(deaths=2),
        Setting(deaths=2, drivers=3, batches=1),
        Setting(deaths=1, losses=1),
        Setting(refusals=2),
        Setting(refusals=1, deaths=1, batches=1),
        HEAL._replace(drivers=3),
        HEAL._replace(batches=3),
    ],
    ids=str,
)
def test_more_of_everything_changes_nothing(setting: Setting) -> None:
    outcome = explore(setting)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.finished


def test_every_rule_is_tried() -> None:
    assert set(NEEDED) == set(Rules._fields)


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_promise_is_broken(rule: str) -> None:
    setting, seen = NEEDED[rule]

    outcome = explore(setting._replace(rules=Rules()._replace(**{rule: False})))

    assert seen in outcome.fault
    assert outcome.trace
