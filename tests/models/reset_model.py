"""The model of `onReset`: queries that take one ledger from each other, drivers that die at any
step, and old drivers that live on. Explored to the end, as commit_model.py is.

A query has one batch here, of one record: number 0, or the next one where its readers went on. What
the coordinator's fence does is as there: an append lands only if nobody has fenced since the
appender did, and who has fenced reads all of the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Rules(NamedTuple):
    """Each False is a protocol that the model must find at fault."""

    settles_first: bool = True  # what was decided is finished before the ledger changes hands
    checks_generation: bool = True  # before the reset's write
    remembers_replaced: bool = True
    names_owner: bool = True  # in the reset's write, and not with the first decision
    forgets_batches: bool = True
    checks_readers: bool = True  # where the sink begins anew
    checks_continues: bool = True  # where it goes on


RIGHT = Rules()


class Modes(NamedTuple):
    """What a query's `onReset` is: of its readers, and of its sink."""

    readers: str = "new-job"
    sink: str = "new-job"
    same_job: bool = True  # or the readers name another one, whose ledger ends after record 0


class Plan(NamedTuple):
    """Batch 0, as the query's checkpoint has it before its sink looks at the ledger."""

    query: str
    begins: int
    went_on: bool  # the mark in its offset


class Driver(NamedTuple):
    query: str
    step: str = "plan"
    generation: int = 0
    skips: str = ""  # whose batch its plan has as written: tasks run through it


class World(NamedTuple):
    drivers: tuple[Driver, ...]
    deaths: int
    generation: int = 0
    holder: int = -1  # who has the coordinator's id
    owner: str = ""
    replaced: tuple[str, ...] = ()
    # Of each batch 0: whose it is, its generation, and whether it is DONE
    decision: tuple[str, int, bool] | None = None
    visible: tuple[tuple[str, int], ...] = ()  # rows: of which query, of which generation
    committed: tuple[str, ...] = ()  # Spark's commit logs
    resets: tuple[str, ...] = ()  # by whom
    modes: tuple[tuple[str, Modes], ...] = ()
    plans: tuple[Plan, ...] = ()
    continued_from: int = 0
    job_resets: int = 0  # that are left: a user empties the ledger when its owner has ended
    fault: str = ""

    def modes_of(self, query: str) -> Modes:
        return dict(self.modes).get(query, Modes())

    def plan_of(self, query: str) -> Plan | None:
        return next((plan for plan in self.plans if plan.query == query), None)

    def end(self) -> int:
        """Where the ledger says that the query before ended; 0 if it says nothing."""
        plan = self.plan_of(self.decision[0]) if self.decision else None
        return plan.begins + 1 if plan else self.continued_from


Moves = Iterator[World]


def moves(world: World, rules: Rules) -> Moves:
    """What can happen next."""
    for index, driver in enumerate(world.drivers):
        if driver.step == "gone":
            continue
        yield from _STEPS[driver.step](world, index, driver, rules)
        if world.deaths:  # and it is started again, by its checkpoint
            again = Driver(driver.query)
            yield _set(world._replace(deaths=world.deaths - 1), index, again)
    owners = {world.owner, *world.replaced}
    ended = all(driver.step == "gone" for driver in world.drivers if driver.query in owners)
    if world.job_resets and world.owner in world.committed and ended:
        emptied = World(world.drivers, world.deaths, world.generation + 1, modes=world.modes)
        yield emptied._replace(
            visible=world.visible,
            committed=world.committed,
            plans=world.plans,
            job_resets=world.job_resets - 1,
        )


def _set(world: World, index: int, driver: Driver) -> World:
    drivers = list(world.drivers)
    drivers[index] = driver
    return world._replace(drivers=tuple(drivers))


def _to(world: World, index: int, step: str, **changes: object) -> World:
    changed = world.drivers[index]._replace(step=step, **changes)  # type: ignore[arg-type]
    return _set(world, index, changed)


def _refused(world: World, driver: Driver, rules: Rules) -> bool:
    if rules.remembers_replaced and driver.query in world.replaced:
        return True
    if world.owner == driver.query:
        return False
    mode, plan = world.modes_of(driver.query).sink, world.plan_of(driver.query)
    if world.owner and mode == "stop":
        return True
    begins_anew = not world.owner or mode == "new-job"
    return rules.checks_readers and begins_anew and plan is not None and plan.went_on


def _plan(world: World, index: int, driver: Driver, rules: Rules) -> Moves:
    """The readers, before the sink; a checkpoint keeps what they found first."""
    if world.plan_of(driver.query) is None:
        modes, begins = world.modes_of(driver.query), 0
        if modes.readers == "continue":
            begins = world.end() if modes.same_job else 1
        plan = Plan(driver.query, begins, went_on=begins > 0)
        world = world._replace(plans=tuple(sorted((*world.plans, plan))))
    yield _to(world, index, "look")


def _look(world: World, index: int, driver: Driver, rules: Rules) -> Moves:
    if driver.query in world.committed or _refused(world, driver, rules):
        yield _to(world, index, "gone")
    else:
        yield _to(world._replace(holder=index), index, "generation")


def _generation(world: World, index: int, driver: Driver, rules: Rules) -> Moves:
    if world.holder != index:
        yield _to(world, index, "look")
    elif _refused(world, driver, rules):
        yield _to(world, index, "gone")
    else:
        generation = world.generation + 1
        world = world._replace(generation=generation)
        yield _to(world, index, "settle", generation=generation)


def _settle(world: World, index: int, driver: Driver, rules: Rules) -> Moves:
    is_new = bool(world.owner) and world.owner != driver.query
    after = "reset" if is_new else "write"
    if world.generation > driver.generation:  # it reads once more what was settled
        yield _to(world, index, "gone")
        return
    if world.decision is None:
        yield _to(world, index, after)
        return
    query, generation, is_done = world.decision
    if is_done or (is_new and not rules.settles_first):
        yield _to(world, index, after, skips=query)
        return
    world = _commit(world, query, generation)
    if world.holder != index:
        yield _to(world, index, "fence to settle")
    else:
        world = world._replace(decision=(query, generation, True))
        yield _to(world, index, after, skips=query)


def _fence(world: World, index: int, driver: Driver, rules: Rules) -> Moves:
    if world.generation > driver.generation and (
        rules.checks_generation or driver.step != "fence to reset"
    ):
        yield _to(world, index, "gone")  # it looks before it fences, and reads after
    else:
        step = driver.step.removeprefix("fence to ")
        yield _to(world._replace(holder=index), index, step)


def _reset(world: World, index: int, driver: Driver, rules: Rules) -> Moves:
    if world.holder != index:
        yield _to(world, index, "fence to reset")
        return
    if world.decision is not None and not world.decision[2]:
        world = world._replace(fault="a decided batch is forgotten")
    goes_on, end = world.modes_of(driver.query).sink == "continue", world.end()
    if goes_on and rules.checks_continues and not _starts_there(world, driver.query, end):
        yield _to(world, index, "gone")
        return
    replaced = (*world.replaced, world.owner)
    if driver.query in world.resets and world.owner != driver.query:
        world = world._replace(fault="a query resets twice")
    if driver.query in world.replaced:
        world = world._replace(fault="an old query has taken the ledger back")
    skips = {"skips": ""} if rules.forgets_batches else {}
    yield _to(
        world._replace(
            owner=driver.query if rules.names_owner else world.owner,
            replaced=replaced,
            decision=None if rules.forgets_batches else world.decision,
            resets=(*world.resets, driver.query),
            continued_from=end if goes_on else 0,
        ),
        index,
        "write",
        **skips,
    )


def _starts_there(world: World, query: str, end: int) -> bool:
    plan = world.plan_of(query)
    return plan is not None and plan.begins == end > 0 and world.modes_of(query).same_job


def _write(world: World, index: int, driver: Driver, rules: Rules) -> Moves:
    """The task: it runs through a batch that is written."""
    if not driver.skips:
        yield _to(world, index, "fence to decide")
        return
    if driver.skips != driver.query:
        world = world._replace(fault="a query skips what another has written")
    yield _to(world._replace(committed=(*world.committed, driver.query)), index, "gone")


def _decide(world: World, index: int, driver: Driver, rules: Rules) -> Moves:
    if world.holder != index:
        yield _to(world, index, "fence to decide")
    elif world.generation > driver.generation or world.owner not in ("", driver.query):
        yield _to(world, index, "gone")
    else:
        plan = world.plan_of(driver.query)
        if world.decision is None and plan is not None and plan.begins != world.continued_from:
            lost = plan.begins > world.continued_from
            fault = "what was before is missing" if lost else "what was before is there twice"
            world = world._replace(fault=fault)
        decision = (driver.query, driver.generation, False)
        yield _to(world._replace(decision=decision, owner=driver.query), index, "finish")


def _finish(world: World, index: int, driver: Driver, rules: Rules) -> Moves:
    world = _commit(world, driver.query, driver.generation)
    if world.holder != index:
        yield _to(world, index, "fence to done")
    else:
        yield from _done(world, index, driver, rules)


def _done(world: World, index: int, driver: Driver, rules: Rules) -> Moves:
    if world.holder != index:
        yield _to(world, index, "fence to done")
        return
    world = world._replace(
        decision=(driver.query, driver.generation, True),
        committed=(*world.committed, driver.query),
    )
    yield _to(world, index, "gone")


def _commit(world: World, query: str, generation: int) -> World:
    """EndTxn: once for a transaction, whoever asks."""
    if (query, generation) in world.visible:
        return world
    if any(query == known for known, _ in world.visible):
        world = world._replace(fault=f"the batch of {query} is visible twice")
    return world._replace(visible=tuple(sorted({*world.visible, (query, generation)})))


_STEPS = {
    "plan": _plan,
    "look": _look,
    "generation": _generation,
    "settle": _settle,
    "fence to settle": _fence,
    "reset": _reset,
    "fence to reset": _fence,
    "write": _write,
    "fence to decide": _fence,
    "decide": _decide,
    "finish": _finish,
    "fence to done": _fence,
    "done": _done,
}


def explore(
    queries: str,
    deaths: int,
    rules: Rules = RIGHT,
    job_resets: int = 0,
    **modes: Modes,
) -> tuple[int, str]:
    """How many worlds there are, and the first fault; a driver for each letter. `modes`: of a query
    that is not told `new-job`."""
    drivers = tuple(Driver(query) for query in queries)
    start = World(drivers, deaths, modes=tuple(modes.items()), job_resets=job_resets)
    seen, left = {start}, [start]
    while left:
        world = left.pop()
        if world.fault or (found := _lost(world)):
            return len(seen), world.fault or found
        for after in moves(world, rules):
            if after not in seen:
                seen.add(after)
                left.append(after)
    return len(seen), ""


def _lost(world: World) -> str:
    """A batch that Spark has committed, or the ledger calls DONE, is visible."""
    written = {query for query, _ in world.visible}
    done = {world.decision[0]} if world.decision and world.decision[2] else set()
    missing = {*world.committed, *done} - written
    return f"the batch of {sorted(missing)} is lost" if missing else ""
