"""How a decided batch gets into an IMap (S7), as a model small enough to try every interleaving.

One sink, one lane: batches of two chunks, each of which puts one key. A `World` is what Kafka's
ledger, the members and Spark's checkpoint keep, and the drivers that live. A driver is at one step;
each step takes one look at the world or changes it once, and answers all worlds it may lead to. A
driver that is paused is one whose turn does not come.

What may happen at any moment: a driver dies, a new one starts beside it, the locks of one that is
in the middle of a transaction expire, a commit lands and its answer is lost, the members lose all
that is staged. That only the newest generation appends to the ledger is taken from
tests/commit_model.py, which shows it. What a marker says is the code's own (`Marker`).

Each rule can be switched off (`Rules`); the tests show what then goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from eo_kafka.sinks.map_lanes import Marker

CHUNKS = 2
DECIDED, DONE, VOID = "DECIDED", "DONE", "VOID"


class Rules(NamedTuple):
    """What keeps a chunk from being applied twice, late, or never."""

    takes_first: bool = True  # what is applied and lost is asked once nobody older can apply
    looks_who_holds: bool = True  # before what is gone is taken for lost
    compares_holder: bool = True
    compares_done: bool = True
    names_decision: bool = True  # a marker's count is of one decision
    one_transaction: bool = True  # rows and marker change together
    locks_marker: bool = True
    lost_lock_refuses: bool = True  # the members' part: no commit without the locks
    removes_older_only: bool = True  # S1 leaves what newer generations staged


class Setting(NamedTuple):
    """How much happens in one exploration."""

    drivers: int = 2
    batches: int = 2
    losses: int = 0
    merges: bool = False  # chunks must not be repeated after a loss either
    rules: Rules = Rules()


class Decision(NamedTuple):
    batch: int
    generation: int
    state: str


class Driver(NamedTuple):
    step: Step
    generation: int = 0
    batch: int = -1
    decision: Decision | None = None  # which it carries out
    own: bool = False  # in commit(), and not in S1
    at: int = 0  # the chunk that is next
    rows: bool = False  # whether they were there when it read them
    torn: bool = False  # some of its batch is in the map, and the rest was lost


class World(NamedTuple):
    drivers: tuple[Driver, ...]
    generation: int = 0
    decision: Decision | None = None  # the newest; those before it are DONE
    marker: Marker | None = None
    lock: int | None = None  # the driver whose transaction holds the marker
    staged: frozenset[tuple[int, int, int]] = frozenset()  # (generation, batch, chunk)
    applied: tuple[tuple[int, int], ...] = ()  # (batch, chunk), as the map's journal has them
    commit_log: int = -1
    losses: int = 0
    again: bool = False  # a batch that was lost in part was written again: it may repeat rows
    fault: str = ""


Moves = Iterator[tuple[str, World]]
Step = Callable[[World, int, Setting], Moves]


def moves(world: World, setting: Setting) -> Moves:
    """Everything that may happen next."""
    if len(world.drivers) < setting.drivers:
        yield "a new driver starts", world._replace(drivers=(*world.drivers, Driver(s1_plan)))
    if world.losses < setting.losses and world.staged:
        lost = world._replace(staged=frozenset(), losses=world.losses + 1)
        yield "members are lost with all that is staged", lost
    if world.lock is not None:
        yield f"the locks of driver {world.lock} expire", world._replace(lock=None)
    for index, driver in enumerate(world.drivers):
        if driver.step is not gone:
            yield f"driver {index} dies", die(world, index)
        for label, after in driver.step(world, index, setting):
            yield f"driver {index}: {label}", after


def fault(world: World) -> str:
    """Which promise this world breaks, or ""."""
    for batch in range(world.commit_log + 1):
        if any((batch, chunk) not in world.applied for chunk in range(CHUNKS)):
            return f"batch {batch} is in the commit log and not whole in the map"
    for chunk in range(CHUNKS):
        batches = [batch for batch, of in world.applied if of == chunk]
        if batches != sorted(batches):
            return "an older entry is back"
        if len(set(batches)) < len(batches) and not world.again:
            return "a chunk is applied twice"
    return world.fault


def finished(world: World, setting: Setting) -> bool:
    """Spark's commit log holds every batch."""
    return world.commit_log == setting.batches - 1


# --- what a driver does


def _set(world: World, index: int, **changes: object) -> World:
    drivers = list(world.drivers)
    drivers[index] = drivers[index]._replace(**changes)  # type: ignore[arg-type]
    return world._replace(drivers=tuple(drivers))


def die(world: World, index: int) -> World:
    """Dead, or its query has failed: the members let go of its locks with its connection."""
    drivers = list(world.drivers)
    drivers[index] = Driver(gone)
    lock = None if world.lock == index else world.lock
    return world._replace(drivers=tuple(drivers), lock=lock)


def gone(world: World, index: int, setting: Setting) -> Moves:
    yield from ()


def s1_plan(world: World, index: int, setting: Setting) -> Moves:
    """Write the next generation, read the ledger."""
    batch = world.commit_log + 1
    if batch == setting.batches:
        return
    decision, generation = world.decision, world.generation + 1
    unfinished = decision is not None and decision.state == DECIDED
    driver = Driver(
        _s7(setting) if unfinished else s1_remove,
        generation,
        batch,
        decision if unfinished else None,
    )
    planned = _set(world._replace(generation=generation), index, **driver._asdict())
    yield f"S1 generation {generation}", planned


def s1_remove(world: World, index: int, setting: Setting) -> Moves:
    """What earlier generations staged and nothing decided."""
    mine = world.drivers[index].generation
    left = frozenset(
        key for key in world.staged if key[0] >= mine and setting.rules.removes_older_only
    )
    yield "S1 removes what is left", _set(world._replace(staged=left), index, step=s1_look)


def s1_look(world: World, index: int, setting: Setting) -> Moves:
    """A plan never shows what a newer generation wrote."""
    driver, known = world.drivers[index], world.decision
    if world.generation > driver.generation:
        yield "S1 sees a newer generation", die(world, index)
    elif known is not None and (known.batch, known.state) == (driver.batch, DONE):
        yield "the batch is DONE", _set(world, index, step=write_commit_log)
    else:
        yield "S1 plan", _set(world, index, step=s5_stage)


def s5_stage(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    keys = frozenset((driver.generation, driver.batch, chunk) for chunk in range(CHUNKS))
    staged = world._replace(staged=world.staged | keys)
    yield "S5 staged", _set(staged, index, step=s6_decide)


def s6_decide(world: World, index: int, setting: Setting) -> Moves:
    """Every chunk is there, the generation is ours: the batch is decided."""
    driver = world.drivers[index]
    decision = Decision(driver.batch, driver.generation, DECIDED)
    if world.generation > driver.generation or _missing(world, decision, 0):
        yield "S6 does not decide", die(world, index)
        return
    again = world.again or driver.torn
    decided = world._replace(decision=decision, again=again)
    yield "S6 DECIDED", _set(decided, index, decision=decision, own=True, step=_s7(setting))


def _s7(setting: Setting) -> Step:
    return s7_take if setting.rules.takes_first else s7_lost


def s7_take(world: World, index: int, setting: Setting) -> Moves:
    """The marker, in a transaction of its own: shut out every earlier driver from the lane."""
    driver, marker = world.drivers[index], world.marker or Marker()
    if world.lock is not None and setting.rules.locks_marker:
        return  # it waits
    if _shut_out(marker, driver, setting):
        yield "S7 is fenced", die(world, index)
        return
    decision = _required(driver.decision).generation
    taken = marker.taken(driver.generation, decision)
    if taken is None:
        yield "S7 finds a newer decision", die(world, index)
        return
    if not setting.rules.names_decision:
        taken = Marker(taken.holder, taken.decision, marker.done)
    step = s7_lost if setting.rules.takes_first else s7_read
    yield "S7 takes the lane", _set(world._replace(marker=taken), index, at=taken.done, step=step)


def s7_lost(world: World, index: int, setting: Setting) -> Moves:
    """Is all there that is not applied?"""
    driver, decision = world.drivers[index], _required(world.drivers[index].decision)
    marker = world.marker or Marker()
    done = marker.done if marker.decision == decision.generation else 0
    done = driver.at if setting.rules.takes_first else done
    step = s7_read if setting.rules.takes_first else s7_take
    if not _missing(world, decision, done):
        yield "S7 finds all", _set(world, index, step=step)
    elif setting.rules.looks_who_holds:
        yield "S7 misses some", _set(world, index, step=s7_who, at=done)
    else:
        yield from _judge_loss(world, index, setting, done)


def s7_who(world: World, index: int, setting: Setting) -> Moves:
    """A newer driver that has finished the batch has removed its chunks, too."""
    driver = world.drivers[index]
    if _shut_out(world.marker or Marker(), driver, setting):
        yield "S7 is fenced", die(world, index)
    else:
        yield from _judge_loss(world, index, setting, driver.at)


def _judge_loss(world: World, index: int, setting: Setting, done: int) -> Moves:
    driver = world.drivers[index]
    decision = _required(driver.decision)
    if not world.losses:
        yield "S7 misses", world._replace(fault="staged rows are gone and no member was lost")
    elif driver.own or (setting.merges and done):
        yield "S7 stops, rows are lost", die(world, index)
    elif done:
        yield "S7 finds it torn", _set(world, index, torn=True, decision=None, step=s1_remove)
    elif world.generation > driver.generation:
        yield "S7 may not write VOID", die(world, index)
    else:
        void = world._replace(decision=decision._replace(state=VOID))
        yield "S7 VOID", _set(void, index, decision=None, step=s1_remove)


def s7_read(world: World, index: int, setting: Setting) -> Moves:
    """The next chunk's rows, before the transaction."""
    driver = world.drivers[index]
    if driver.at >= CHUNKS:
        yield "S7 all applied", _set(world, index, step=s8_done)
        return
    rows = not _missing(world, _required(driver.decision), driver.at, driver.at + 1)
    yield "S7 reads a chunk", _set(world, index, rows=rows, step=s7_begin)


def s7_begin(world: World, index: int, setting: Setting) -> Moves:
    """A transaction: lock the marker, compare it."""
    driver, marker = world.drivers[index], world.marker or Marker()
    decision = _required(driver.decision)
    if world.lock is not None and setting.rules.locks_marker:
        return
    if _shut_out(marker, driver, setting):
        yield "S7 is fenced", die(world, index)
    elif marker.decision != decision.generation and setting.rules.names_decision:
        yield "S7 finds another decision", die(world, index)
    elif marker.done > driver.at and setting.rules.compares_done:
        yield "S7 has landed", _set(world, index, at=driver.at + 1, step=s7_read)
    elif not driver.rows:
        yield "S7 finds a chunk gone", die(world, index)
    elif setting.rules.one_transaction:
        lock = index if setting.rules.locks_marker else None
        yield "S7 locks", _set(world._replace(lock=lock), index, step=s7_commit)
    else:
        put = _put(world, driver)._replace(lock=index)
        yield "S7 puts without the marker", _set(put, index, step=s7_commit)


def s7_commit(world: World, index: int, setting: Setting) -> Moves:
    """The members commit, unless the locks are gone; the answer may be lost."""
    driver = world.drivers[index]
    if world.lock != index and setting.rules.locks_marker and setting.rules.lost_lock_refuses:
        yield "S7 is refused", _set(world, index, step=s7_begin)
        return
    landed = _put(world, driver) if setting.rules.one_transaction else world
    marker = Marker(driver.generation, _required(driver.decision).generation, driver.at + 1)
    lock = None if world.lock == index else world.lock
    landed = landed._replace(marker=marker, lock=lock)
    yield "S7 applies a chunk", _set(landed, index, at=driver.at + 1, step=s7_read)
    yield "S7 applies a chunk, answer lost", _set(landed, index, step=s7_begin)


def s8_done(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    if world.generation > driver.generation:
        yield "S8 sees a newer generation", die(world, index)
        return
    decision = _required(driver.decision)
    done = world._replace(decision=decision._replace(state=DONE))
    yield "S8 DONE", _set(done, index, step=s8_forget)


def s8_forget(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    whose = _required(driver.decision)
    left = frozenset(key for key in world.staged if key[:2] != (whose.generation, whose.batch))
    step = write_commit_log if driver.own else s1_remove
    yield "S8 removes", _set(world._replace(staged=left), index, decision=None, step=step)


def write_commit_log(world: World, index: int, setting: Setting) -> Moves:
    log = max(world.commit_log, world.drivers[index].batch)
    yield f"commit log {log}", _set(world._replace(commit_log=log), index, step=s1_plan)


# --- small parts


def _shut_out(marker: Marker, driver: Driver, setting: Setting) -> bool:
    return setting.rules.compares_holder and marker.holder > driver.generation


def _put(world: World, driver: Driver) -> World:
    decision = _required(driver.decision)
    put = world._replace(applied=(*world.applied, (decision.batch, driver.at)))
    if world.decision is None or world.decision[:2] != decision[:2]:
        return put  # a newer batch is decided: `fault` judges the order
    if world.decision.state == VOID:
        return put._replace(fault="a chunk is applied of a decision that is VOID")
    return put


def _missing(world: World, decision: Decision, first: int, last: int = CHUNKS) -> bool:
    whose = (decision.generation, decision.batch)
    return any((*whose, chunk) not in world.staged for chunk in range(first, last))


def _required(decision: Decision | None) -> Decision:
    if decision is None:
        raise ValueError("the model is wrong: a step without its decision")
    return decision
