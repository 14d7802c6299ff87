"""In the model of commit_model.py: rows as a function of offsets, and a checkpoint that goes back.

The input is a row of records, and more may arrive at any moment. Spark's offset log says from where
to where each batch goes, its commit log which are done. While all drivers are down, or have another
copy of the disk, the checkpoint may be restored from an older one, or lose its newest files.
Batch N may then hold other records than the batch N that the ledger has as DONE.

While all are down, a person may give the state another number of partitions: Spark's offline
repartition takes the number of a batch, which reads nothing and which no sink is told of. With a
checkpoint of before it, the same records come under that number.

A batch that the sink refused goes on by a person's command, which makes the checkpoint follow the
ledger: batch N gets the offsets that the decision recorded.

Not promised, and not tried here: a checkpoint restored in place under a driver that still runs on
it. Its commit log would then be written by a driver of other offsets, whatever the sink does.
"""

from __future__ import annotations

from commit_model import Driver, Moves, Setting, World, decision_of, driver_of, gone, s1_fence


def start_batch(world: World, index: int, setting: Setting) -> Moves:
    """Spark: the batch that is planned and not in the commit log, or the next, to the input's
    end."""
    batch = world.commit_log + 1
    offsets = world.offsets
    if batch == len(offsets):
        start = offsets[-1][1] if offsets else 0
        if start == world.input or batch >= setting.batches:
            return
        offsets = (*offsets, (start, world.input))
    world = world._replace(offsets=offsets)
    planned = {"batch": batch, "offsets": offsets[batch], "step": s1_fence}
    yield f"plans batch {batch} as {offsets[batch]}", driver_of(world, index, **planned)


def chaos(world: World, setting: Setting) -> Moves:
    # What arrives matters to the next plan only.
    idle = any(driver.step is start_batch for driver in world.drivers)
    if 0 < world.input < setting.records and idle:
        yield "a record arrives", world._replace(input=world.input + 1)
    down = all(driver.step in (gone, start_batch) for driver in world.drivers)
    if world.rollbacks < setting.rollbacks and (down or not setting.one_by_one):
        world = _stop_idle(world) if setting.one_by_one else world
        for kept in range(len(world.offsets)):
            yield f"the checkpoint goes back to {kept} batches", _back(world, kept, kept)
        if world.commit_log >= 0:
            left = _back(world, len(world.offsets), world.commit_log)
            yield "the checkpoint loses its newest commit", left
    finished = 0 < len(world.offsets) == world.commit_log + 1
    if world.repartitions < setting.repartitions and down and finished:
        yield "the state is repartitioned", _repartition(world)
    if world.refused >= 0 and down:
        yield "a person has the checkpoint follow the ledger", _follow(world)


def _repartition(world: World) -> World:
    world, end = _stop_idle(world), world.offsets[-1][1]
    return world._replace(
        offsets=(*world.offsets, (end, end)),
        commit_log=world.commit_log + 1,
        repartitions=world.repartitions + 1,
    )


def _stop_idle(world: World) -> World:
    """A query that is between two batches may be stopped without a trace."""
    stopped = (Driver(step=gone) if x.step is start_batch else x for x in world.drivers)
    return world._replace(drivers=tuple(stopped))


def _back(world: World, planned: int, committed: int) -> World:
    drivers = tuple(
        driver if driver.step is gone else driver._replace(detached=True)
        for driver in world.drivers
    )
    return world._replace(
        drivers=drivers,
        offsets=world.offsets[:planned],
        commit_log=min(world.commit_log, committed - 1),
        rollbacks=world.rollbacks + 1,
    )


def _follow(world: World) -> World:
    recorded = decision_of(world.decisions, world.refused)
    if recorded is None:
        return world
    start, end = recorded.offsets[0].split("-")
    offsets = (*world.offsets[: world.refused], (int(start), int(end)))
    return world._replace(offsets=offsets, refused=-1)


def missing_records(world: World) -> str:
    """What Spark's logs say is done is visible, each record once."""
    rows = {row for _, row in (*world.visible, *world.deleted)}
    for batch, (start, end) in enumerate(world.offsets[: world.commit_log + 1]):
        lost = [at for at in range(start, end) if f"r{at}" not in rows]
        if lost:
            return f"batch {batch} is in the commit log and records {lost} are not visible"
    return ""


def is_finished(world: World, setting: Setting) -> bool:
    """Every record of the input is in a batch, and every batch in the commit log."""
    ends = world.offsets[world.commit_log][1] if world.commit_log >= 0 else 0
    return world.commit_log + 1 == len(world.offsets) and ends == setting.records


def first_world() -> World:
    return World(drivers=(Driver(step=start_batch),), input=1)


ROLLBACK = Setting(
    start_step=start_batch,
    batches=3,
    records=2,
    rollbacks=1,
    drivers=3,
    one_by_one=True,
    splits=("ab",),
    deaths=False,
)
