"""Walks all worlds of the commit protocol's model and judges each of them.

Beside the steps of drivers and tasks (commit_model.py), this file knows what may happen to them at
any moment, and what must never be seen.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import commit_model
import model_checkpoint
import model_fences
import model_markers
import model_passes
import model_stale
import model_sweep
import model_tasks
import model_tokens
from commit_model import Driver, Moves, Rules, Setting, Txn, World

from eo_kafka.core.transaction import DecisionState, without_token

COMMIT_STEPS = (
    commit_model.s6_fence,
    commit_model.s6_check,
    commit_model.s6_decide,
    commit_model.s7_end,
    commit_model.s7_tokens,
    commit_model.s8_done,
)

_SUBJECTS = (
    model_fences,
    model_tasks,
    model_sweep,
    model_checkpoint,
    model_stale,
    model_passes,
    model_tokens,
)

W = TypeVar("W", bound=Hashable)


@dataclass(frozen=True)
class Model(Generic[W]):
    """What is explored: where it starts, what may happen next, and how a world is judged.
    `may_wait`: somebody may still start who brings it to its end."""

    first: W
    moves: Callable[[W], Iterable[tuple[str, W]]]
    fault: Callable[[W], str]
    finished: Callable[[W], bool]
    may_wait: Callable[[W], bool]


@dataclass
class Outcome:
    """What an exploration found. `fault` is "" if no world broke a promise; `trace` leads to it."""

    worlds: int
    finished: int  # worlds in which Spark's commit log holds every batch
    fault: str = ""
    trace: list[str] = field(default_factory=list)
    labels: Counter[str] = field(default_factory=Counter)  # moves seen, by their words


def start(setting: Setting) -> World:
    """One driver, an empty ledger."""
    if setting.records:
        return model_checkpoint.first_world()
    return model_fences.first_world(setting)


def moves(world: World, setting: Setting) -> Moves:
    """Everything that may happen next."""
    yield from _chaos(world, setting)
    for subject in _SUBJECTS:
        yield from subject.chaos(world, setting)
    for index, driver in enumerate(world.drivers):
        for label, after in driver.step(world, index, setting):
            yield f"driver {index}: {label}", after
    for task in world.tasks:
        for label, after in task.step(world, task, setting):
            name = f"task of driver {task.driver}, partition {task.partition}.{task.attempt}"
            yield f"{name}: {label}", after


def _moves(world: World, setting: Setting) -> Moves:
    if not setting.lost_markers:
        return moves(world, setting)
    return model_markers.in_all_ways(world, moves(world, setting), setting)


def _chaos(world: World, setting: Setting) -> Moves:
    all_gone = all(driver.step is commit_model.gone for driver in world.drivers)
    if len(world.drivers) < setting.drivers and (all_gone or not setting.one_by_one):
        first = setting.start_step or commit_model.start_batch
        drivers = (*world.drivers, Driver(step=first))
        yield "a new driver starts", world._replace(drivers=drivers)
    if world.timeouts < setting.timeouts:
        for name, txn in world.txns:
            if txn.is_open:
                yield f"{name} times out", _time_out(world, name, txn)
    if world.on_its_way is not None and world.on_its_way[0] == world.holder:
        landed = commit_model.append(world, world.on_its_way[1])
        yield "the append on its way lands", landed._replace(on_its_way=None)
    for index, driver in enumerate(world.drivers):
        if driver.step is commit_model.gone or not setting.deaths:
            continue
        left = _left_behind(world, driver, setting)
        yield f"driver {index} dies", commit_model.die(left, index)
        if driver.step in COMMIT_STEPS and driver.plan is not None:
            yield f"driver {index}: commit is killed", commit_model.fail(left, index, setting)


def _time_out(world: World, name: str, txn: Txn) -> World:
    world = commit_model.ended_from_outside(world, name)
    ended = commit_model.set_txn(world, name, Txn(txn.epoch + 1))
    return ended._replace(timeouts=world.timeouts + 1)


def _left_behind(world: World, driver: Driver, setting: Setting) -> World:
    """Whoever dies while it appends a decision may leave its commit on the way; that is sent once
    its records are known to have landed right after what was read."""
    if driver.step is not commit_model.s6_decide or driver.mine != world.holder:
        return world
    if driver.behind and setting.rules.append_where_read_ended:
        return world
    return world._replace(
        on_its_way=(commit_model.required(driver.mine), commit_model.required(driver.decision))
    )


def fault(world: World, setting: Setting) -> str:
    """Which promise this world breaks, or ""."""
    return (
        world.fault
        or _duplicate_row_visible(world)
        or (
            model_passes.written_over(world)
            if setting.passes
            else _committed_batch_not_visible(world)
        )
        or _done_without_its_participants(world)
        or model_tasks.held_up(world, setting)
        or model_fences.foreign_holder(world)
        or model_markers.hides(world)
    )


def _duplicate_row_visible(world: World) -> str:
    repeated = [row for row, times in Counter(world.visible).items() if times > 1]
    return f"visible twice: {repeated}" if repeated else ""


def _committed_batch_not_visible(world: World) -> str:
    """What Spark's commit log holds is visible, all of it, once; or was, until its topic went."""
    if world.input:
        return model_checkpoint.missing_records(world)
    for batch in range(world.commit_log + 1):
        rows = sorted({row for of, row in (*world.visible, *world.deleted) if of == batch})
        if rows != list(commit_model.ROWS):
            return f"batch {batch} is in the commit log and of its rows visible: {rows}"
    return ""


def _done_without_its_participants(world: World) -> str:
    tokens = [*world.tokens, *world.lost_tokens]
    for decision in world.decisions:
        if decision.state is DecisionState.DONE and without_token(decision, tokens):
            return f"batch {decision.batch} is DONE and a participant is not committed"
    return ""


def explore(setting: Setting, *, liveness: bool = False) -> Outcome:
    """Visit every world that `setting` allows, until one breaks a promise.

    `liveness`: also, from every world in which one more driver may start, some way must lead to
    the end. (That it is taken is for whoever starts drivers.)
    """
    of_commit = Model(
        start(setting),
        lambda world: _moves(world, setting),
        lambda world: fault(world, setting),
        lambda world: _is_finished(world, setting),
        lambda world: len(world.drivers) < setting.drivers,
    )
    return walk(of_commit, liveness=liveness)


def _is_finished(world: World, setting: Setting) -> bool:
    if setting.records:
        return model_checkpoint.is_finished(world, setting)
    return world.commit_log == setting.batches - 1


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Worlds are tuples that never refer to each other in a circle: to look for circles among
    hundreds of thousands of them, again and again, is a fifth of the CPU time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@nothing_collected()
def walk(model: Model[W], *, liveness: bool = False) -> Outcome:
    """The same of any model."""
    first = model.first
    numbers = {first: 0}
    came_from: list[tuple[int, str]] = [(0, "")]
    before: list[list[int]] = [[]]
    outcome = Outcome(worlds=1, finished=0)
    queue = deque([first])
    while queue:
        world = queue.popleft()
        number = numbers[world]
        outcome.finished += model.finished(world)
        for label, after in model.moves(world):
            known = numbers.setdefault(after, len(came_from))
            if known == len(came_from):
                came_from.append((number, label))
                before.append([])
                outcome.labels[label.split(": ")[-1]] += 1
                outcome.fault = model.fault(after)
                if outcome.fault:
                    outcome.trace = _trace(came_from, known)
                    outcome.worlds = len(numbers)
                    return outcome
                queue.append(after)
            if liveness:
                before[known].append(number)
    outcome.worlds = len(numbers)
    if liveness:
        _check_liveness(model, numbers, before, came_from, outcome)
    return outcome


def _check_liveness(
    model: Model[W],
    numbers: dict[W, int],
    before: list[list[int]],
    came_from: list[tuple[int, str]],
    outcome: Outcome,
) -> None:
    done = [n for world, n in numbers.items() if model.finished(world)]
    can_finish = set(done)
    while done:
        for earlier in before[done.pop()]:
            if earlier not in can_finish:
                can_finish.add(earlier)
                done.append(earlier)
    for world, number in numbers.items():
        if number not in can_finish and model.may_wait(world):
            outcome.fault = "a driver may start, and no way leads to the end"
            outcome.trace = _trace(came_from, number)
            return


def _trace(came_from: list[tuple[int, str]], number: int) -> list[str]:
    labels = []
    while number:
        number, label = came_from[number]
        labels.append(label)
    return labels[::-1]


def assert_kept(setting: Setting, *, liveness: bool = False) -> Outcome:
    """Every world keeps every promise, and some come to the end. Returns what was found."""
    outcome = explore(setting, liveness=liveness)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.finished
    return outcome


def assert_needed(rule: str, setting: Setting, seen: str, *, liveness: bool = False) -> None:
    """Without the rule a promise is broken: `seen` is part of what is said then."""
    without = setting._replace(rules=Rules()._replace(**{rule: False}))
    outcome = explore(without, liveness=liveness)

    assert seen in outcome.fault
    assert outcome.trace
