"""In the model of commit_model.py: a function of `foreachBatch`, which need not write each batch.

It may return without a write, and Spark commits the batch. If it had written that batch before, and
the decision is lost, wholly or in part, no replay comes: whoever writes a later batch must stop.
Then a person takes the batch out of Spark's commit log, and the function writes it.
"""

from __future__ import annotations

import commit_model
from commit_model import Moves, Setting, World, die, driver_of, gone

from eo_kafka.core.transaction import Decision, DecisionState


def start_batch(world: World, index: int, setting: Setting) -> Moves:
    for label, after in commit_model.start_batch(world, index, setting):
        yield label, after
        if world.passes < setting.passes:
            batch = after.drivers[index].batch
            passed = die(after._replace(commit_log=batch, passes=world.passes + 1), index)
            passed = driver_of(passed, index, step=start_batch)
            yield f"the function does not write batch {batch}", passed


def chaos(world: World, setting: Setting) -> Moves:
    down = all(driver.step is gone for driver in world.drivers)
    if setting.passes and down and (lost := _lost_and_passed(world)):
        batch = lost[0].batch
        again = world._replace(commit_log=batch - 1, planned=batch)
        yield "a person has Spark run the lost batch again", again


def written_over(world: World) -> str:
    """No batch is decided above one that was decided and is lost."""
    newest = max((known.batch for known in world.decisions), default=-1)
    for lost in _lost_and_passed(world):
        if lost.batch < newest:
            return f"batch {lost.batch} is decided and lost, and batch {newest} is written"
    return ""


def _lost_and_passed(world: World) -> list[Decision]:
    return [
        known
        for known in world.decisions
        if known.state is not DecisionState.DONE and known.batch <= world.commit_log
    ]


PASSES = Setting(
    start_step=start_batch,
    passes=1,
    batches=2,
    timeouts=1,
    drivers=3,
    one_by_one=True,
    splits=("ab",),
    deaths=False,
)
