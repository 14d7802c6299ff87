"""In the model of commit_model.py: DONE means readable, and a stopped query leaves nothing open.

Sweep: after the decision (and where a batch is skipped as a whole, which has none) list what is
open of this sink, look whether the coordinator is still ours, end what no decision names. The
order is what spares a newer driver's tasks: they begin after its fence.

abort(): the same for a query that is stopped in the middle of a batch, if the newest generation is
its own. The tasks that Spark has not heard of are found by the listing.
"""

from __future__ import annotations

from commit_model import (
    Moves,
    Setting,
    World,
    abort_read,
    die,
    driver_of,
    end_txn,
    fail,
    fence,
    holds,
    looked,
    must_look,
    newer,
    required,
    s6_fence,
    wait_for_tasks,
    write_commit_log,
)
from model_tasks import s2_look

from eo_kafka.core.transaction import Identity


def sweep_list(world: World, index: int, setting: Setting) -> Moves:
    found = _open_and_not_named(world, index)
    yield f"sweep lists {len(found)}", driver_of(world, index, swept=found, step=sweep_check)
    if found and setting.hidden and not setting.rules.sweep_lists_again:
        yield "sweep's list fails", driver_of(world, index, swept=(), step=sweep_check)


def _open_and_not_named(world: World, index: int) -> tuple[Identity, ...]:
    decided = [part.identity for known in world.decisions for part in known.participants]
    found = (Identity(name, 1, txn.epoch) for name, txn in world.txns if txn.is_open)
    return tuple(identity for identity in found if identity not in decided)


def sweep_check(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    if not driver.swept or holds(world, index) or not setting.rules.sweep_looks_after_listing:
        yield f"sweep may end {len(driver.swept)}", driver_of(world, index, step=sweep_end)
    elif driver.then is write_commit_log and driver.decision is None:
        yield "sweep sees another coordinator", fail(world, index, setting)
    else:
        again = {"swept": (), "decision": None, "found": (), "then": None, "step": s6_fence}
        yield "sweep sees another coordinator", driver_of(world, index, **again)


def sweep_end(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    then = required(driver.then)
    # Where a batch is skipped, no S7 follows, which looks.
    is_last = then is write_commit_log and setting.rules.markers_of_skipped
    after = {"swept": (), "then": None, **looked(setting.after_end if is_last else None, then)}
    yield f"sweep ends {len(driver.swept)}", driver_of(_end(world, index), index, **after)


def _end(world: World, index: int) -> World:
    for identity in world.drivers[index].swept:
        world = end_txn(world, identity, commit=False, exact=True)
    return world


# --- query.stop()


def stop(world: World, index: int, setting: Setting) -> Moves:
    """Spark calls abort() with the reports that it has."""
    driver = world.drivers[index]
    if setting.rules.abort_spares_newer and not driver.looked and newer(world, index):
        yield "abort sees a newer generation", _only_reported(world, index)
    elif must_look(world, index, setting):
        yield "abort looks", driver_of(world, index, looked=True)
    else:
        yield "abort fence", fence(world, index, setting, "abort", stop_list)


def _only_reported(world: World, index: int) -> World:
    """The newer driver sees to the rest."""
    prepared = tuple(x for x in world.drivers[index].reports if x.prepared and not x.committed)
    return driver_of(world, index, reports=prepared, step=abort_read)


def stop_list(world: World, index: int, setting: Setting) -> Moves:
    driver, rules = world.drivers[index], setting.rules
    if rules.abort_spares_newer and newer(world, index):
        yield "abort sees a newer generation", _only_reported(world, index)
        return
    found = _open_and_not_named(world, index)
    if not rules.abort_ends_unreported:
        reported = [report.prepared.identity for report in driver.reports if report.prepared]
        found = tuple(identity for identity in found if identity in reported)
    yield f"abort lists {len(found)}", driver_of(world, index, swept=found, step=stop_check)


def stop_check(world: World, index: int, setting: Setting) -> Moves:
    if holds(world, index):
        yield "abort may end them", driver_of(world, index, step=stop_end)
    else:
        yield "abort sees another coordinator", driver_of(world, index, swept=(), step=stop)


def stop_end(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    world = _end(world, index)
    stopped = tuple(sorted({*world.stopped, driver.generation}))
    yield f"abort ends {len(driver.swept)}", die(world._replace(stopped=stopped), index)


def chaos(world: World, setting: Setting) -> Moves:
    for index, driver in enumerate(world.drivers):
        if setting.stop_step is not None and driver.step is wait_for_tasks:
            stopped = driver_of(world, index, stopped=True, step=setting.stop_step)
            yield f"driver {index}: query.stop()", stopped


READABLE = Setting(
    first_step=s2_look, repair_step=s2_look, before_end=sweep_list, splits=("ab",), drivers=1
)
STOPPED = READABLE._replace(stop_step=stop, task_deaths=1)
