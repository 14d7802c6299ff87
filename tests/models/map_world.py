"""What the members, Kafka's ledger and Spark's checkpoint hold in the model of map_model.py,
and the rules that can be switched off in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from eo_kafka.sinks.maps.applied import Marker

CHUNKS = 2
DECIDED, DONE, VOID = "DECIDED", "DONE", "VOID"


class Rules(NamedTuple):
    """What keeps a chunk from being applied twice, late, or never."""

    takes_first: bool = True  # what is applied and lost is asked once nobody older can apply
    looks_who_holds: bool = True  # before what is gone is taken for lost
    compares_holder: bool = True
    names_decision: bool = True  # a marker's count is of one decision
    marker_names_ledger: bool = True  # and of one ledger's, whose generations another one has, too
    ahead_names_ledger: bool = True  # so is what was written ahead
    one_transaction: bool = True  # rows and marker change together
    locks_marker: bool = True
    lost_lock_refuses: bool = True  # the members' part: no commit without the locks
    removes_older_only: bool = True  # S1 leaves what newer generations staged
    writes_ahead: bool = True  # what a transaction changes, before it commits
    takes_again: bool = True  # who does not know what became of a commit
    finishes_landed: bool = True  # also a chunk that its marker says is applied
    carries: bool = True  # who takes a lane writes its predecessor's record as its own
    compares_done: bool = True  # a marker with what is DONE by the ledger
    each_lane: bool = True  # not only the lane of the newest batch
    takes_lacking: bool = True  # also lanes it has no chunks in, where a loss is accepted
    counts_done: bool = True  # by chunks, too
    compares_count: bool = True  # and with what this driver has applied
    leaves_later: bool = True  # what was written ahead of a chunk that is not the marker's next
    compares_all: bool = True  # and not only when a member has died: those that live refuse parts


class Setting(NamedTuple):
    """How much happens in one exploration."""

    drivers: int = 2
    batches: int = 2
    losses: int = 0
    deaths: int = 0  # of members in the middle of a commit
    refusals: int = 0  # of some of a commit's changes, by members that live on
    renewals: int = 0  # of the ledger and the map, by hand, while nothing runs
    heals: int = 0  # of a split brain, on the side that loses its entries
    accepts: bool = False  # a loss that is told: failOnDataLoss=false until a batch is DONE
    lanes: tuple[int, ...] = ()  # of each batch, 0 or 1; more than one only where none is beside
    beside: bool = True  # a driver may start beside one that lives
    merges: bool = False  # chunks must not be repeated after a loss either
    rules: Rules = Rules()

    def lane(self, batch: int) -> int:
        """That a batch has its chunks in."""
        return self.lanes[batch] if self.lanes else 0


class Decision(NamedTuple):
    batch: int
    generation: int
    state: str
    ledger: int = 0

    def digest(self, *, names_ledger: bool) -> str:
        """What tells it from others of its generation."""
        return f"of ledger {self.ledger}" if names_ledger else ""


class Ahead(NamedTuple):
    """What a chunk's transaction was to change: the key's newest batch before."""

    decision: Decision
    chunk: int
    before: int


DEAD = -1  # who holds the locks of a transaction whose member has died


class Driver(NamedTuple):
    step: Step
    generation: int = 0
    batch: int = -1
    decision: Decision | None = None  # which it carries out
    own: bool = False  # in commit(), and not in S1
    at: int = 0  # the chunk that is next
    rows: bool = False  # whether they were there when it read them
    torn: bool = False  # some of its batch is in the map, and the rest was lost
    then: Step | None = None  # what follows once what was written ahead is forgotten
    done: tuple[int, ...] = (0, 0)  # what it knows of World.done
    taken: Marker | None = None  # what its transaction makes of the marker
    puts: int | None = None  # and the chunk that it puts


Markers = tuple[Marker | None, ...]


class Cut(NamedTuple):
    """What both sides of a split brain have; this driver's side goes on alone."""

    markers: Markers
    aheads: frozenset[tuple[int, Ahead]]
    staged: frozenset[tuple[int, int, int]]
    applied: tuple[tuple[int, int], ...]


class World(NamedTuple):
    drivers: tuple[Driver, ...]
    generation: int = 0
    decision: Decision | None = None  # the newest; those before it are DONE
    markers: Markers = (None, None)  # of each lane
    lock: int | None = None  # the driver whose transaction holds the marker
    aheads: frozenset[tuple[int, Ahead]] = frozenset()  # one a driver, by its generation
    staged: frozenset[tuple[int, int, int]] = frozenset()  # (generation, batch, chunk)
    applied: tuple[tuple[int, int], ...] = ()  # (batch, chunk), as the map's journal has them
    commit_log: int = -1
    losses: int = 0
    deaths: int = 0
    refusals: int = 0
    ledger: int = 0
    done: tuple[int, ...] = (0, 0)  # the generation of the newest decision that is DONE, by lane
    cut: Cut | None = None
    heals: int = 0
    accepted: int = 0  # a loss: 1 as long as the option is false, 2 afterwards
    excused: int = -1  # the newest batch that was whole when it healed: too late to find it lost
    again: bool = False  # a batch that was lost in part was written again: it may repeat rows
    fault: str = ""


T = TypeVar("T")
Moves = Iterator[tuple[str, World]]
Step = Callable[[World, int, Setting], Moves]


def changed(world: World, index: int, **changes: object) -> World:
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


def splits(world: World, setting: Setting) -> Moves:
    """The members split, or heal: what this side has written since is gone, with its locks."""
    if world.cut is not None:
        decision = world.decision
        excused = decision.batch if decision else -1
        if decision and any(
            (decision.batch, chunk) not in world.applied for chunk in range(CHUNKS)
        ):
            excused -= 1
        healed = world._replace(**world.cut._asdict(), cut=None, lock=None)
        after = {"heals": world.heals + 1, "excused": excused}
        yield "a split brain heals", healed._replace(**after)
        for lane in {*setting.lanes}:  # or members are lost with a lane's marker and rows
            since = world.applied[len(world.cut.applied) :]
            kept = tuple(one for one in since if setting.lane(one[0]) != lane)
            back = world._replace(
                markers=replaced(world.markers, lane, world.cut.markers[lane]),
                applied=world.cut.applied + kept,
            )
            if decision and setting.lane(decision.batch) != lane:  # it may have asked this lane
                after["excused"] = decision.batch
            yield f"lane {lane} goes back", back._replace(cut=None, lock=None, **after)
            after["excused"] = excused
    elif world.heals < setting.heals:
        cut = Cut(world.markers, world.aheads, world.staged, world.applied)
        yield "the members split", world._replace(cut=cut)


def replaced(of_lanes: tuple[T, ...], lane: int, one: T) -> tuple[T, ...]:
    return (*of_lanes[:lane], one, *of_lanes[lane + 1 :])


def behind(world: World, lane: int, driver: Driver, setting: Setting) -> bool:
    """Whether less is applied than what is DONE."""
    marker = world.markers[lane] or Marker()
    if not setting.rules.compares_done:
        return False
    done = driver.done[lane]
    chunks = CHUNKS if setting.rules.counts_done and done else 0
    return (marker.decision, marker.done) < (done, chunks)


def told(world: World, index: int, setting: Setting) -> World:
    """The query stops for a loss, and a person may accept that."""
    stopped = die(world, index)
    if world.accepted:
        return stopped._replace(fault="an accepted loss is told again")
    if setting.accepts:
        return stopped._replace(accepted=1, excused=setting.batches)
    return stopped


def shut_out(marker: Marker, driver: Driver, setting: Setting) -> bool:
    return setting.rules.compares_holder and marker.holder > driver.generation


def locked(world: World, index: int, setting: Setting) -> World:
    return world._replace(lock=index if setting.rules.locks_marker else world.lock)


def written_ahead(world: World, driver: Driver, ahead: Ahead) -> World:
    others = {one for one in world.aheads if one[0] != driver.generation}
    return world._replace(aheads=frozenset({*others, (driver.generation, ahead)}))


def newest(world: World, chunk: int, lane: int, setting: Setting) -> int:
    """The batch whose row a key has; each lane has keys of its own."""
    mine = (one for one, of in world.applied if of == chunk and setting.lane(one) == lane)
    return max(mine, default=-1)


def put_row(world: World, driver: Driver, chunk: int) -> World:
    decision = required(driver.decision)
    put = world._replace(applied=(*world.applied, (decision.batch, chunk)))
    if world.decision is None or world.decision[:2] != decision[:2]:
        return put  # a newer batch is decided: `fault` judges the order
    if world.decision.state == VOID:
        return put._replace(fault="a chunk is applied of a decision that is VOID")
    return put


def missing(world: World, decision: Decision, first: int, last: int = CHUNKS) -> bool:
    whose = (decision.generation, decision.batch)
    return any((*whose, chunk) not in world.staged for chunk in range(first, last))


def required(known: T | None) -> T:
    if known is None:
        raise ValueError("the model is wrong: a step without its decision, or its next step")
    return known


def fault(world: World) -> str:
    """Which promise this world breaks, or ""."""
    last = world.commit_log if world.commit_log > world.excused else -1
    for batch in range(last + 1):
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
