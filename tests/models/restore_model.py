"""Drivers that lose their checkpoints and restore them, while others go on from copies: a model.

Two drivers of one job. Each has a checkpoint (Spark's offset log, and how much of it is committed),
may die anywhere, lose the checkpoint, restore it from the newest snapshot, or find itself on an
older copy of its own. A micro-batch takes one or two of the input's records, as it happens. What
must hold in every state: no record is in the output twice, and every record before a driver's
committed position is in it.

The commit itself is one step here; what happens within it is `commit_model.py`'s business. But with
`commit=idempotent` it has two: a task's rows are visible before the batch is decided. Such a batch
is *torn* when the driver dies between the two. Only the same records again can complete it, and a
checkpoint that was lost does not say which they were: the ledger must.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

RECORDS = 4


@dataclass(frozen=True)
class Rules:
    """What can be switched off, to see that it is needed."""

    same_batch_check: bool = True  # a skipped batch must be the one that was decided
    generation_check: bool = True  # who decides must have the ledger's newest generation
    torn_must_be_equal: bool = True  # what completes a torn batch must be that batch
    begun_before_tasks: bool = True  # S1 records where the batch ends that is about to run
    begun_of_torn_stays: bool = True  # and leaves what it finds there of a torn one
    unknown_is_recorded: bool = True  # and says so where it cannot see it


@dataclass(frozen=True)
class Setting:
    """Which worlds are explored."""

    generations: int
    every_batch: bool = True  # has a snapshot; otherwise one is taken now and then
    one_phase: bool = False  # a task's rows are visible before the decision
    unseen: bool = False  # S1 may be unable to see where the batch ends


@dataclass(frozen=True)
class Ledger:
    """Ends of the decided batches, by number; and the newest snapshot's batch. With `one_phase`
    also two batches as (number, end): the one that S1 saw last, and the one that is torn."""

    generation: int = 0
    ends: tuple[int, ...] = ()
    snapshot: int | None = None
    begun: tuple[int, int | None] | None = None
    torn: tuple[int, int] | None = None


@dataclass(frozen=True)
class Driver:
    """`log` holds the ends of the batches in the checkpoint, None if there is no checkpoint. The
    first `committed` of them are committed. `plan` is (generation, batches known to be DONE)."""

    log: tuple[int, ...] | None = ()
    committed: int = 0
    plan: tuple[int, int] | None = None
    copy: tuple[tuple[int, ...], int] | None = None  # of the checkpoint, kept by somebody


@dataclass(frozen=True)
class World:
    """Everything. `output` counts each record."""

    ledger: Ledger = Ledger()
    drivers: tuple[Driver, ...] = (Driver(), Driver(log=None))
    output: tuple[int, ...] = (0,) * RECORDS

    def problem(self, setting: Setting) -> str | None:
        """What is wrong with this state."""
        if max(self.output) > 1:
            return "duplicate"
        torn, begun = self.ledger.torn, self.ledger.begun
        if torn is not None and begun != torn:
            if begun is not None and begun[0] == torn[0] and begun[1] is not None:
                return "a false plan is believed"
            if not setting.unseen:
                return "nobody knows what was torn"
        for driver in self.drivers:
            if driver.log and driver.committed:
                position = driver.log[driver.committed - 1]
                if not all(self.output[:position]):
                    return "lost"
        return None


def steps(world: World, rules: Rules, setting: Setting) -> Iterator[World]:
    """All that may happen next."""
    for number, driver in enumerate(world.drivers):
        for ledger, changed, output in _moves(world, driver, rules, setting):
            drivers = list(world.drivers)
            drivers[number] = changed
            yield World(ledger, tuple(drivers), output)


def _moves(
    world: World, driver: Driver, rules: Rules, setting: Setting
) -> Iterator[tuple[Ledger, Driver, tuple[int, ...]]]:
    ledger, output = world.ledger, world.output
    if driver.log is None:
        if ledger.snapshot is not None:
            # The batch of the snapshot is in the log, uncommitted.
            log = ledger.ends[: ledger.snapshot + 1]
            yield ledger, replace(driver, log=log, committed=ledger.snapshot), output
        return
    yield ledger, replace(driver, log=None, committed=0, plan=None), output
    if driver.copy is None:
        yield ledger, replace(driver, copy=(driver.log, driver.committed)), output
    else:
        log, committed = driver.copy
        yield ledger, replace(driver, log=log, committed=committed, plan=None), output
    if driver.plan is not None:
        yield ledger, replace(driver, plan=None), output  # it died
        yield from _commit(world, driver, rules, setting)
        return
    for log in _logs(driver):
        generation = ledger.generation + 1
        mine = replace(driver, log=log, plan=(generation, len(ledger.ends)))
        for end in {log[-1], None} if setting.unseen else {log[-1]}:
            begun = _begun(ledger, log, end, rules) if setting.one_phase else None
            yield replace(ledger, generation=generation, begun=begun), mine, output


def _begun(
    ledger: Ledger, log: tuple[int, ...], end: int | None, rules: Rules
) -> tuple[int, int | None] | None:
    """S1: the next batch, if the driver is about to run that; where there is a torn one, that."""
    kept = ledger.torn is not None and rules.begun_of_torn_stays
    is_next = len(log) == len(ledger.ends) + 1
    unsaid = end is None and not rules.unknown_is_recorded
    if kept or not is_next or unsaid or not rules.begun_before_tasks:
        return ledger.begun
    return (len(ledger.ends), end)


def _logs(driver: Driver) -> Iterator[tuple[int, ...]]:
    """The offset log when the next batch's tasks start: it is there already, or it is chosen."""
    assert driver.log is not None
    if len(driver.log) > driver.committed:
        yield driver.log
        return
    start = driver.log[-1] if driver.log else 0
    for end in range(start + 1, min(start + 2, RECORDS) + 1):
        yield (*driver.log, end)


def _commit(
    world: World, driver: Driver, rules: Rules, setting: Setting
) -> Iterator[tuple[Ledger, Driver, tuple[int, ...]]]:
    assert driver.log is not None
    assert driver.plan is not None
    ledger, (generation, known), batch = world.ledger, driver.plan, driver.committed
    done = replace(driver, committed=batch + 1, plan=None)
    stopped = replace(driver, plan=None)
    if batch < known:
        same = ledger.ends[batch] == driver.log[batch] or not rules.same_batch_check
        yield ledger, done if same else stopped, world.output
        return
    if ledger.generation != generation and rules.generation_check:
        yield ledger, stopped, world.output
        return
    if batch > len(ledger.ends):
        yield ledger, stopped, world.output  # older than the ledger remembers, or a gap
        return
    mine = (batch, driver.log[batch])
    start, end = driver.log[batch - 1] if batch else 0, driver.log[batch]
    if ledger.torn is not None:
        if ledger.torn != mine and rules.torn_must_be_equal:
            yield ledger, stopped, world.output
            return
        end -= 1  # its last record is visible
    elif setting.one_phase:
        visible = _written(world.output, end - 1, end)
        yield replace(ledger, torn=mine), stopped, visible  # it died when a task had committed
    output = _written(world.output, start, end)
    ends = (*ledger.ends[:batch], driver.log[batch])
    for snapshot in {batch} if setting.every_batch else {batch, ledger.snapshot}:
        decided = replace(ledger, ends=ends, snapshot=snapshot, torn=None)
        yield decided, done, output
        yield decided, stopped, output  # it died before Spark's commit log


def _written(output: tuple[int, ...], start: int, end: int) -> tuple[int, ...]:
    return tuple(count + (start <= record < end) for record, count in enumerate(output))


def explore(rules: Rules, setting: Setting) -> tuple[int, str | None]:
    """How many states there are, and the first problem found."""
    seen = {World()}
    queue = deque(seen)
    while queue:
        for world in steps(queue.popleft(), rules, setting):
            if world in seen or world.ledger.generation > setting.generations:
                continue
            if problem := world.problem(setting):
                return len(seen), problem
            seen.add(world)
            queue.append(world)
    return len(seen), None
