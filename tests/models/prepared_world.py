"""What PostgreSQL, Kafka's ledger and Spark's checkpoint hold in the model of
prepared_model.py, and the rules that can be switched off in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

DECIDED, DONE, VOID = "DECIDED", "DONE", "VOID"


class Rules(NamedTuple):
    """What keeps a prepared transaction from being lost, committed twice, or left over."""

    marks: bool = True  # "does not exist" says nothing: a row of the transaction's own does
    looks_at_gate: bool = True  # a task, once it can be seen, whether it may write still
    ends_holders: bool = True  # who closes a gate, or takes over, ends those who came before
    closes_gate: bool = True  # S6, before it looks at what is prepared
    spares_decided: bool = True  # a sweep, also one that a person asks for
    spares_lacking: bool = True  # the same, of what is DONE and the marker does not show
    follows: bool = True  # S7, only on a table that shows what was there before the batch
    spares_newer: bool = True  # a sweep
    takes_first: bool = True  # who judges what is lost has shut out every older driver
    looks_who_holds: bool = True  # a driver, before each COMMIT PREPARED, once it can be seen
    sees_removed: bool = True  # a row that is always beside the marks: are they all there?
    marker_names_passed: bool = True  # which partitions a torn batch lacks


class Setting(NamedTuple):
    """How much happens in one exploration."""

    drivers: int = 2
    batches: int = 1
    partitions: int = 2
    attempts: int = 1  # of a task
    losses: int = 0  # prepared transactions that a replica lacks
    sweeps: int = 0  # that a person asks for
    removals: int = 0  # of all marks, by a person
    fail_overs: int = 0  # to a replica that lags behind
    one_by_one: bool = False  # a driver starts only when those before it are dead
    rules: Rules = Rules()


class Gid(NamedTuple):
    """A prepared transaction's name, and the batch that its rows are of."""

    generation: int
    batch: int
    partition: int
    attempt: int


class Decision(NamedTuple):
    batch: int
    round: int
    generation: int
    state: str
    parts: frozenset[Gid]  # of its newest round
    before: frozenset[Gid] = frozenset()  # of earlier ones, which are committed


class Marker(NamedTuple):
    """What the table says of itself."""

    holder: int = 0
    batch: int = -1
    decided: int = 0
    passed: frozenset[int] = frozenset()

    def shows(self, decision: Decision) -> bool:
        return (self.batch, self.decided) == (decision.batch, decision.generation)


class Driver(NamedTuple):
    step: Step
    generation: int = 0
    batch: int = -1
    round: int = 0
    torn: frozenset[int] | None = None  # the partitions that a replay writes
    before: frozenset[Gid] = frozenset()
    reports: frozenset[Gid] = frozenset()
    decision: Decision | None = None  # which it carries out
    own: bool = False  # in commit(), and not in S1
    seen: frozenset[Gid] = frozenset()  # what it has found so far
    again: bool = False  # it has looked twice
    passed: frozenset[int] = frozenset()
    holds: bool = False  # its connection has the lock by which it is found


class Task(NamedTuple):
    step: Callable[[World, Task, Setting], Moves]
    driver: int
    gid: Gid
    holds: bool = False


class Server(NamedTuple):
    """What a replica has that lags behind: fields of `World`, of an earlier moment."""

    prepared: frozenset[Gid]
    marks: frozenset[Gid]
    marker: Marker
    gate: int
    swept: int
    applied: tuple[tuple[int, int], ...]


class World(NamedTuple):
    drivers: tuple[Driver, ...]
    tasks: frozenset[Task] = frozenset()
    begun: frozenset[Gid] = frozenset()  # attempts that were ever started
    generation: int = 0
    decision: Decision | None = None  # the newest
    earlier: Decision | None = None  # of the batch before
    prepared: frozenset[Gid] = frozenset()
    marks: frozenset[Gid] = frozenset()
    kept: bool = True  # the row that goes with them if somebody removes them
    marker: Marker = Marker()
    gate: int = -1  # the generation whose tasks may write
    swept: int = -1  # up to which generation nobody may prepare any more
    applied: tuple[tuple[int, int], ...] = ()  # (batch, partition), sorted
    commit_log: int = -1
    losses: int = 0
    sweeps: int = 0
    replica: Server | None = None
    fail_overs: int = 0
    fault: str = ""


Moves = Iterator[tuple[str, World]]
Step = Callable[[World, int, Setting], Moves]


def changed(world: World, index: int, **changes: object) -> World:
    drivers = list(world.drivers)
    drivers[index] = drivers[index]._replace(**changes)  # type: ignore[arg-type]
    return world._replace(drivers=tuple(drivers))


def gone(world: World, index: int, setting: Setting) -> Moves:
    yield from ()


def die(world: World, index: int) -> World:
    """Dead, or its query has failed. Its tasks may live on, and report to nobody."""
    drivers = list(world.drivers)
    drivers[index] = Driver(gone)
    return world._replace(drivers=tuple(drivers))


def committed(world: World, gid: Gid) -> World:
    """The rows of a prepared transaction are there, with its mark."""
    return world._replace(
        prepared=world.prepared - {gid},
        marks=world.marks | {gid},
        applied=tuple(sorted([*world.applied, (gid.batch, gid.partition)])),
    )


def failed_over(world: World, server: Server) -> World:
    """The replica is the server now. Connections have ended: who had the lock begins again."""
    for index, driver in enumerate(world.drivers):
        if driver.holds:
            world = die(world, index)
    left = frozenset(task for task in world.tasks if not task.holds)
    left_over = world._replace(tasks=left, replica=None, fail_overs=world.fail_overs + 1)
    return left_over._replace(**server._asdict())


def lacking(world: World) -> Decision | None:
    """What is DONE and, by the marker, not in the table: the oldest such decision."""
    for decision in (world.earlier, world.decision):
        if (
            decision is not None
            and decision.state == DONE
            and world.marker.batch <= decision.batch
            and not world.marker.shows(decision)
        ):
            return decision
    return None


def follows(marker: Marker, decision: Decision) -> bool:
    """Whether the table shows the decision, or what was there before it."""
    before = decision.batch if decision.before else decision.batch - 1
    return marker.shows(decision) or marker.batch == before


def required(decision: Decision | None) -> Decision:
    if decision is None:
        raise ValueError("the model is wrong: a step without its decision")
    return decision
