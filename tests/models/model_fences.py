"""In the model of commit_model.py: who may take the coordinator's id, and who a fence made holder.

A fence and the look that learns its identity are two requests: between them another driver may have
fenced, and the identity is that one's. It counts once something was appended under the fence.

Whoever is about to be refused looks first and fences nobody: a driver of another query, started
again and again by its supervisor, and one that a newer generation has replaced. What stays: the
look and the fence are two steps, too. A driver whose look came before the newer driver wrote its
generation may fence it once; it sees the generation then, and stops (its next look refuses it), and
the newer driver's batch is run again.
"""

from __future__ import annotations

from commit_model import Driver, Moves, Setting, World, driver_of, gone, start_batch


def learn(world: World, index: int, setting: Setting) -> Moves:
    """DescribeTransactions for the coordinator's id, after the fence."""
    then = world.drivers[index].then
    learnt = {"fence": world.holder, "then": None, "step": then}
    yield "learns its identity", driver_of(world, index, **learnt)


def chaos(world: World, setting: Setting) -> Moves:
    if not setting.crash_loops:
        return
    for index, driver in enumerate(world.drivers):
        if driver.owner == "wrong" and driver.step is gone:
            again = driver_of(world, index, step=start_batch)
            yield "the driver of another query starts again", again


def first_world(setting: Setting) -> World:
    """With a ledger that has an owner; a driver of another query is there if `crash_loops`."""
    drivers = [Driver(step=setting.start_step or start_batch)]
    if setting.crash_loops:
        drivers.append(Driver(step=gone, owner="wrong"))
    return World(drivers=tuple(drivers), owner="right" if setting.crash_loops else "")


def foreign_holder(world: World) -> str:
    if world.holder is not None and world.drivers[world.holder[0]].owner == "wrong":
        return "a driver of another query holds the coordinator"
    return ""


LOOKS = Setting(looks=True, splits=("ab",))
