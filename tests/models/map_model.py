"""How a decided batch gets into an IMap (S7), as a model small enough to try every interleaving.

One sink, in most worlds one lane: batches of two chunks, each of which puts one key; where
there are two lanes, drivers live one after the other. A `World` is what Kafka's
ledger, the members and Spark's checkpoint keep, and the drivers that live. A driver is at one step;
each step takes one look at the world or changes it once, and answers all worlds it may lead to. A
driver that is paused is one whose turn does not come.

What may happen at any moment: a driver dies, a new one starts beside it, the locks of one that is
in the middle of a transaction expire, a commit lands and its answer is lost, the member dies that
commits and leaves a part, members that live refuse a part, the members lose all that is staged, a
split brain heals and takes back all that they hold.
Ledger and map are made anew, and what else the members hold is forgotten there, or the markers
alone are removed. That only the newest generation appends to the ledger is taken from
commit_model.py, which shows it. What a marker says is the code's own (`Marker`).

Each rule can be switched off (`Rules`); the tests show what then goes wrong.
"""

from __future__ import annotations

from dataclasses import replace

from map_world import (
    CHUNKS,
    DEAD,
    DECIDED,
    DONE,
    VOID,
    Ahead,
    Decision,
    Driver,
    Moves,
    Setting,
    Step,
    World,
    behind,
    changed,
    die,
    gone,
    locked,
    missing,
    newest,
    put_row,
    replaced,
    required,
    shut_out,
    splits,
    told,
    written_ahead,
)

from eo_kafka.sinks.maps.applied import Marker


def moves(world: World, setting: Setting) -> Moves:
    """Everything that may happen next."""
    alone = all(driver.step is gone for driver in world.drivers)
    if len(world.drivers) < setting.drivers and (alone or setting.beside):
        yield "a new driver starts", world._replace(drivers=(*world.drivers, Driver(s1_plan)))
    if world.losses < setting.losses and world.staged:
        lost = world._replace(staged=frozenset(), losses=world.losses + 1)
        yield "members are lost with all that is staged", lost
    if world.ledger < setting.renewals:
        kept = {"ledger": world.ledger + 1, "staged": world.staged, "aheads": world.aheads}
        yield "a new ledger", World((), markers=world.markers, **kept)  # type: ignore[arg-type]
        yield "a new ledger, markers are removed", World((), **kept)  # type: ignore[arg-type]
    yield from splits(world, setting)
    if world.lock is not None:
        yield f"the locks of driver {world.lock} expire", world._replace(lock=None)
    for index, driver in enumerate(world.drivers):
        if driver.step is not gone:
            yield f"driver {index} dies", die(world, index)
        for label, after in driver.step(world, index, setting):
            yield f"driver {index}: {label}", after


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
        done=world.done,
    )
    planned = changed(world._replace(generation=generation), index, **driver._asdict())
    yield f"S1 generation {generation}", planned


def s1_remove(world: World, index: int, setting: Setting) -> Moves:
    """What earlier generations staged and nothing decided."""
    mine = world.drivers[index].generation
    left = frozenset(
        key for key in world.staged if key[0] >= mine and setting.rules.removes_older_only
    )
    aheads = frozenset(one for one in world.aheads if one[0] >= mine)
    removed = world._replace(staged=left, aheads=aheads)
    yield "S1 removes what is left", changed(removed, index, step=s1_look)


def s1_look(world: World, index: int, setting: Setting) -> Moves:
    """A plan never shows what a newer generation wrote."""
    driver, known = world.drivers[index], world.decision
    if world.generation > driver.generation:
        yield "S1 sees a newer generation", die(world, index)
    elif known is not None and (known.batch, known.state) == (driver.batch, DONE):
        yield "the batch is DONE", changed(world, index, step=write_commit_log)
    else:
        yield "S1 plan", changed(world, index, step=s5_stage)


def s5_stage(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    keys = frozenset((driver.generation, driver.batch, chunk) for chunk in range(CHUNKS))
    staged = world._replace(staged=world.staged | keys)
    yield "S5 staged", changed(staged, index, step=s6_decide)


def s6_decide(world: World, index: int, setting: Setting) -> Moves:
    """Every chunk is there, the generation is ours: the batch is decided."""
    driver = world.drivers[index]
    decision = Decision(driver.batch, driver.generation, DECIDED, world.ledger)
    if world.generation > driver.generation or missing(world, decision, 0):
        yield "S6 does not decide", die(world, index)
        return
    again = world.again or driver.torn
    decided = world._replace(decision=decision, again=again)
    begun = {"decision": decision, "own": True, "step": _s7(setting)}
    yield "S6 DECIDED", changed(decided, index, **begun)


def _marker(world: World, index: int, setting: Setting) -> Marker:
    """Of the lane that the driver's decision has its chunks in."""
    return world.markers[setting.lane(required(world.drivers[index].decision).batch)] or Marker()


def _s7(setting: Setting) -> Step:
    return s7_take if setting.rules.takes_first else s7_lost


def s7_take(world: World, index: int, setting: Setting) -> Moves:
    """A transaction of its own: shut out every earlier driver from the lane, and finish what its
    last transaction left."""
    driver, marker = world.drivers[index], _marker(world, index, setting)
    if world.lock is not None and setting.rules.locks_marker:
        return  # it waits
    if shut_out(marker, driver, setting):
        yield "S7 is fenced", die(world, index)
        return
    decision = required(driver.decision)
    lane = setting.lane(decision.batch)
    if behind(world, lane, driver, setting) and world.accepted != 1:
        yield "S7 finds less than what is DONE", told(world, index, setting)
        return
    digest = decision.digest(names_ledger=setting.rules.marker_names_ledger)
    taken = marker.taken(driver.generation, decision.generation, digest)
    if taken is None:
        yield "S7 finds a newer decision", die(world, index)
        return
    if not setting.rules.names_decision:
        taken = replace(taken, done=marker.done)
    puts = None
    ahead = dict(world.aheads).get(marker.holder)
    first = taken.done - 1 if setting.rules.finishes_landed else taken.done
    mine = ahead is not None and ahead.decision[:2] == decision[:2]
    if setting.rules.ahead_names_ledger:
        mine = ahead is not None and ahead.decision == decision
    last = taken.done if setting.rules.leaves_later else CHUNKS
    if ahead is not None and mine and first <= ahead.chunk <= last:
        now = newest(world, ahead.chunk, lane, setting)
        if now not in (ahead.before, decision.batch):
            world = world._replace(fault="an entry is neither what it was nor what it was to be")
        if setting.rules.compares_all or world.deaths:
            puts = None if now == decision.batch else ahead.chunk
            taken = replace(taken, done=ahead.chunk + 1)
        if setting.rules.carries:
            world = written_ahead(world, driver, ahead)
    world = locked(world, index, setting)
    yield "S7 takes the lane", changed(world, index, taken=taken, puts=puts, step=s7_take_commit)


def s7_take_commit(world: World, index: int, setting: Setting) -> Moves:
    taken = world.drivers[index].taken or Marker()
    step = s7_others if setting.rules.takes_first else s7_read
    done = {"step": s7_forget, "then": step, "at": taken.done}
    yield from _commit(world, index, setting, "S7 has the lane", done, s7_take)


def s7_forget(world: World, index: int, setting: Setting) -> Moves:
    """A commit was answered: what was written ahead of it is made."""
    driver = world.drivers[index]
    aheads = frozenset(one for one in world.aheads if one[0] != driver.generation)
    removed = world._replace(aheads=aheads)
    yield "S7 forgets", changed(removed, index, step=required(driver.then), then=None)


def s7_others(world: World, index: int, setting: Setting) -> Moves:
    """The lanes that the decision has no chunks in; to take one is as s7_take."""
    driver, markers = world.drivers[index], world.markers
    decision = required(driver.decision)
    digest = decision.digest(names_ledger=setting.rules.marker_names_ledger)
    others = {*setting.lanes} - {setting.lane(decision.batch)}
    lacking = [lane for lane in others if behind(world, lane, driver, setting)]
    if lacking and world.accepted != 1:
        yield "S7 finds less in another lane", told(world, index, setting)
        return
    for lane in lacking if setting.rules.takes_lacking else ():
        known = markers[lane] or Marker()
        taken = required(known.taken(driver.generation, decision.generation, digest))
        markers = replaced(markers, lane, taken)
    yield "S7 has asked all lanes", changed(world._replace(markers=markers), index, step=s7_lost)


def s7_lost(world: World, index: int, setting: Setting) -> Moves:
    """Is all there that is not applied?"""
    driver, decision = world.drivers[index], required(world.drivers[index].decision)
    marker = _marker(world, index, setting)
    done = marker.done if marker.decision == decision.generation else 0
    done = driver.at if setting.rules.takes_first else done
    step = s7_read if setting.rules.takes_first else s7_take
    if not missing(world, decision, done):
        yield "S7 finds all", changed(world, index, step=step)
    elif setting.rules.looks_who_holds:
        yield "S7 misses some", changed(world, index, step=s7_who, at=done)
    else:
        yield from _judge_loss(world, index, setting, done)


def s7_who(world: World, index: int, setting: Setting) -> Moves:
    """A newer driver that has finished the batch has removed its chunks, too."""
    driver = world.drivers[index]
    if shut_out(_marker(world, index, setting), driver, setting):
        yield "S7 is fenced", die(world, index)
    else:
        yield from _judge_loss(world, index, setting, driver.at)


def _judge_loss(world: World, index: int, setting: Setting, done: int) -> Moves:
    driver = world.drivers[index]
    decision = required(driver.decision)
    if not world.losses and not world.heals:
        yield "S7 misses", world._replace(fault="staged rows are gone and no member was lost")
    elif driver.own or (setting.merges and done):
        yield "S7 stops, rows are lost", die(world, index)
    elif done:
        yield "S7 finds it torn", changed(world, index, torn=True, decision=None, step=s1_remove)
    elif world.generation > driver.generation:
        yield "S7 may not write VOID", die(world, index)
    else:
        void = world._replace(decision=decision._replace(state=VOID))
        yield "S7 VOID", changed(void, index, decision=None, step=s1_remove)


def s7_read(world: World, index: int, setting: Setting) -> Moves:
    """The next chunk's rows, before the transaction."""
    driver = world.drivers[index]
    if driver.at >= CHUNKS:
        yield "S7 all applied", changed(world, index, step=s8_done)
        return
    rows = not missing(world, required(driver.decision), driver.at, driver.at + 1)
    yield "S7 reads a chunk", changed(world, index, rows=rows, step=s7_begin)


def s7_begin(world: World, index: int, setting: Setting) -> Moves:
    """A transaction: lock the marker, compare it."""
    driver, marker = world.drivers[index], _marker(world, index, setting)
    decision = required(driver.decision)
    if world.lock is not None and setting.rules.locks_marker:
        return
    if shut_out(marker, driver, setting):
        yield "S7 is fenced", die(world, index)
    elif marker.decision != decision.generation and setting.rules.names_decision:
        yield "S7 finds another decision", die(world, index)
    elif marker.done < driver.at and setting.rules.compares_count:
        yield "S7 finds it gone back", die(world, index)
    elif marker.done > driver.at:
        yield "S7 finds it further", die(world, index)
    elif not driver.rows:
        yield "S7 finds a chunk gone", die(world, index)
    else:
        moved = replace(marker, holder=driver.generation, done=driver.at + 1)
        begun = changed(world, index, taken=moved, puts=driver.at, step=s7_ahead)
        if not setting.rules.one_transaction:
            begun = changed(put_row(begun, driver, driver.at), index, puts=None)
        yield "S7 locks", locked(begun, index, setting)


def s7_ahead(world: World, index: int, setting: Setting) -> Moves:
    """What it will change; not a part of the transaction."""
    driver = world.drivers[index]
    decision = required(driver.decision)
    before = newest(world, driver.at, setting.lane(decision.batch), setting)
    ahead = Ahead(decision, driver.at, before)
    if setting.rules.writes_ahead:
        world = written_ahead(world, driver, ahead)
    yield "S7 writes ahead", changed(world, index, step=s7_commit)


def s7_commit(world: World, index: int, setting: Setting) -> Moves:
    at = world.drivers[index].at + 1
    done = {"step": s7_forget, "then": s7_read, "at": at}
    unsure = s7_take if setting.rules.takes_again else s7_begin
    yield from _commit(world, index, setting, "S7 applies a chunk", done, unsure)


def _commit(
    world: World, index: int, setting: Setting, label: str, done: dict[str, object], unsure: Step
) -> Moves:
    """The members commit, unless the locks are gone; the answer may be lost. Any part may be left:
    by the member that commits, if it dies, or because changes are refused. The locks of what is
    not made are held by nobody then, until they expire."""
    driver = world.drivers[index]
    again = changed(world, index, taken=None, puts=None, step=unsure)
    if world.lock != index and setting.rules.locks_marker and setting.rules.lost_lock_refuses:
        yield "S7 is refused", again
        return
    lane = setting.lane(required(driver.decision).batch)
    moved = replaced(world.markers, lane, driver.taken)
    put = world if driver.puts is None else put_row(world, driver, driver.puts)
    both = put._replace(markers=moved, lock=None if world.lock == index else world.lock)
    yield label, changed(both, index, taken=None, puts=None, **done)
    yield f"{label}, answer lost", changed(both, index, taken=None, puts=None, step=unsure)
    parts = {"nothing": world, "the marker": world._replace(markers=moved), "all": both}
    if driver.puts is not None:
        parts["the row"] = put
    for part, left in parts.items():
        held = changed(left._replace(lock=DEAD), index, taken=None, puts=None, step=unsure)
        if world.deaths < setting.deaths:
            yield f"S7 a member dies and leaves {part}", held._replace(deaths=world.deaths + 1)
        if world.refusals < setting.refusals and part != "all":
            refused = held._replace(refusals=world.refusals + 1)
            yield f"S7 members refuse a commit but for {part}", refused


def s8_done(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    if world.generation > driver.generation:
        yield "S8 sees a newer generation", die(world, index)
        return
    decision = required(driver.decision)
    generation = decision.generation
    before = world.done if setting.rules.each_lane else (0, 0)
    generations = replaced(before, setting.lane(decision.batch), generation)
    done = world._replace(
        decision=decision._replace(state=DONE),
        done=generations,
        accepted=2 if world.accepted else 0,
    )
    yield "S8 DONE", changed(done, index, step=s8_forget, done=generations)


def s8_forget(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    whose = required(driver.decision)
    left = frozenset(key for key in world.staged if key[:2] != (whose.generation, whose.batch))
    step = write_commit_log if driver.own else s1_remove
    removed = world._replace(staged=left)
    yield "S8 removes", changed(removed, index, decision=None, step=step)


def write_commit_log(world: World, index: int, setting: Setting) -> Moves:
    log = max(world.commit_log, world.drivers[index].batch)
    yield f"commit log {log}", changed(world._replace(commit_log=log), index, step=s1_plan)
