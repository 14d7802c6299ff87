"""`commit=two-phase` of a table: prepared transactions of PostgreSQL, as a model small enough to
try every interleaving.

A task prepares one transaction with its rows and a mark (a row that names it). Whoever carries out
a decision commits those that it names, one by one, and then writes the table's marker and removes
the marks, in one transaction. A `World` is what PostgreSQL, Kafka's ledger and Spark's checkpoint
keep, and the drivers and tasks that live; each step takes one look at the world or changes it once.

COMMIT PREPARED, ROLLBACK PREPARED and PREPARE cannot be made part of a transaction that looks
whether it still may. So who does one of them first makes its connection be seen (a lock that many
may hold), and then looks; who shuts others out first says so, and then ends the connections that
are seen. What it finds after that stays as it is.

What may happen at any moment: a driver dies, a new one starts beside it, an attempt of a task is
repeated, an answer to COMMIT PREPARED is lost, a replica without some prepared transaction, or one
that lags behind, takes the server's place, a person removes all marks. That only the newest
generation appends to the ledger is taken from commit_model.py, which shows it.

Each rule can be switched off (`Rules`); the tests show what then goes wrong.
"""

from __future__ import annotations

import math

from prepared_world import (
    DECIDED,
    DONE,
    VOID,
    Decision,
    Driver,
    Gid,
    Marker,
    Moves,
    Server,
    Setting,
    Task,
    World,
    changed,
    committed,
    die,
    failed_over,
    follows,
    gone,
    lacking,
    required,
)


def moves(world: World, setting: Setting) -> Moves:
    """Everything that may happen next."""
    all_gone = all(driver.step is gone for driver in world.drivers)
    if len(world.drivers) < setting.drivers and (all_gone or not setting.one_by_one):
        yield "a new driver starts", world._replace(drivers=(*world.drivers, Driver(s1_plan)))
    if world.losses < setting.losses:
        for gid in world.prepared:
            left = world._replace(prepared=world.prepared - {gid}, losses=world.losses + 1)
            yield "a replica lacks a prepared transaction", left
    if world.sweeps < setting.sweeps and world.prepared:
        swept = _swept(world, world.generation, setting)._replace(sweeps=world.sweeps + 1)
        yield f"a person sweeps {len(world.prepared - swept.prepared)}", swept
    if setting.removals and world.kept and world.marks:
        yield "a person removes the marks", world._replace(marks=frozenset(), kept=False)
    if world.fail_overs < setting.fail_overs:
        if world.replica is None:
            now = Server(*(getattr(world, name) for name in Server._fields))
            yield "a replica falls behind", world._replace(replica=now)
        else:
            yield "it takes the server's place", failed_over(world, world.replica)
    for index, driver in enumerate(world.drivers):
        if driver.step is not gone:
            yield f"driver {index} dies", die(world, index)
        for label, after in driver.step(world, index, setting):
            yield f"driver {index}: {label}", after
    for task in world.tasks:
        for label, after in task.step(world, task, setting):
            yield f"task {tuple(task.gid)}: {label}", after


def fault(world: World) -> str:
    """Which promise this world breaks, or ""."""
    if len(set(world.applied)) < len(world.applied):
        return "rows are there twice"
    return world.fault


def whole(world: World, setting: Setting) -> str:
    """The same of what Spark takes for written."""
    if world.fail_overs:  # it may have lost what Spark takes for written: the query stops then
        return _shown(world, setting)
    for batch in range(world.commit_log + 1):
        if any((batch, one) not in world.applied for one in range(setting.partitions)):
            return f"batch {batch} is in the commit log and not whole in the table"
    return ""


def _shown(world: World, setting: Setting) -> str:
    """The same of what the marker shows."""
    for batch in range(world.marker.batch + 1):
        passed = world.marker.passed if batch == world.marker.batch else ()
        there = {at for was, at in world.applied if was == batch}
        if not there.issuperset({*range(setting.partitions)}.difference(passed)):
            return f"the table shows batch {world.marker.batch} and lacks rows of batch {batch}"
    return ""


def finished(world: World, setting: Setting) -> bool:
    """Spark's commit log holds every batch."""
    return world.commit_log == setting.batches - 1


def s1_plan(world: World, index: int, setting: Setting) -> Moves:
    """Write the next generation, read the ledger."""
    batch = world.commit_log + 1
    if batch == setting.batches:
        return
    generation = world.generation + 1
    driver = Driver(s1_shown, generation, batch)
    planned = changed(world._replace(generation=generation), index, **driver._asdict())
    yield f"S1 generation {generation}", planned


def s1_shown(world: World, index: int, setting: Setting) -> Moves:
    """Is what is DONE in the table? If all of it waits there, it is finished once more; if not,
    rows are lost, and only a person may go on. Then what is decided and not DONE."""
    lacks = lacking(world)
    if lacks is not None:
        waits = lacks.parts <= world.prepared | world.marks and world.kept
        if waits and follows(world.marker, lacks):
            yield "S1 finishes what is DONE", changed(world, index, decision=lacks, step=s7_take)
        else:
            yield "S1 stops, rows are lost", die(world, index)
        return
    known = world.decision
    unfinished = known if known is not None and known.state == DECIDED else None
    step = s7_take if unfinished else s1_gate
    yield "S1 finds all there", changed(world, index, decision=unfinished, step=step)


def s1_gate(world: World, index: int, setting: Setting) -> Moves:
    """Older drivers may commit no more."""
    driver = world.drivers[index]
    if world.marker.holder > driver.generation:
        yield "S1 is fenced", die(world, index)
        return
    taken = world._replace(marker=world.marker._replace(holder=driver.generation))
    yield "S1 takes the table", changed(taken, index, step=s1_first)


def s1_first(world: World, index: int, setting: Setting) -> Moves:
    """Before it looks at the gate: who waits for what is prepared has others wait for him."""
    swept = _swept(world, world.drivers[index].generation, setting)
    yield "S1 sweeps first", changed(swept, index, step=s1_close)


def s1_close(world: World, index: int, setting: Setting) -> Moves:
    """Older generations' tasks may write no more."""
    yield "S1 closes the gate", changed(world._replace(gate=-1), index, step=s1_end)


def s1_end(world: World, index: int, setting: Setting) -> Moves:
    yield "S1 ends whom it sees", changed(_ended(world, index, setting), index, step=s1_sweep)


def _ended(world: World, index: int, setting: Setting) -> World:
    """Connections that have the lock are ended, but one's own: a task is retried or has failed, a
    driver begins its step again."""
    if not setting.rules.ends_holders:
        return world
    world = world._replace(tasks=frozenset(task for task in world.tasks if not task.holds))
    for other, driver in enumerate(world.drivers):
        if driver.holds and other != index:
            world = changed(world, other, holds=False, step=s7_hold)
    return world


def s1_sweep(world: World, index: int, setting: Setting) -> Moves:
    """What older generations prepared and no decision needs, by the ledger as it was read."""
    mine = world.drivers[index].generation
    swept = _swept(world, mine, setting)._replace(swept=max(world.swept, mine - 1))
    yield "S1 sweeps", changed(swept, index, step=s1_look)


def _swept(world: World, generation: int, setting: Setting) -> World:
    """Without what generations before this one have prepared and no decision needs."""
    rules = setting.rules
    kept: set[Gid] = set()
    for known in (world.earlier, world.decision):
        if known is None or known.state == VOID:
            continue
        spares = rules.spares_decided if known.state == DECIDED else rules.spares_lacking
        if spares and not world.marker.shows(known) and world.marker.batch <= known.batch:
            kept |= known.parts
    newer = generation if rules.spares_newer else math.inf
    left = frozenset(gid for gid in world.prepared if gid in kept or gid.generation >= newer)
    swept = world._replace(prepared=left)
    if world.fail_overs and any(gid in _decided(world) for gid in world.prepared - left):
        return swept._replace(fault="rows of a decided batch are rolled back")
    return swept


def _decided(world: World) -> set[Gid]:
    known = [one for one in (world.earlier, world.decision) if one and one.state != VOID]
    parts = {gid for one in known for gid in one.parts}
    return {gid for gid in parts if (gid.batch, gid.partition) not in world.applied}


def s1_look(world: World, index: int, setting: Setting) -> Moves:
    """A plan never shows what a newer generation wrote. The gate opens under the marker's lock."""
    driver, known = world.drivers[index], world.decision
    if world.generation > driver.generation or world.marker.holder > driver.generation:
        yield "S1 sees a newer generation", die(world, index)
        return
    mine = known if known is not None and known.batch == driver.batch else None
    if mine is not None and mine.state == DONE:
        yield "the batch is DONE", changed(world, index, step=write_commit_log)
        return
    number = mine.round + 1 if mine else 0
    before = frozenset[Gid]()
    if mine is not None and driver.torn is not None:
        kept = {gid for gid in mine.parts if gid.partition not in driver.torn}
        before = mine.before | kept
    opened = world._replace(gate=driver.generation)
    yield "S1 plan", changed(opened, index, round=number, before=before, step=s5_tasks)


def s5_tasks(world: World, index: int, setting: Setting) -> Moves:
    """Spark starts tasks, again where one was lost, and takes one report of each."""
    driver = world.drivers[index]
    wanted = range(setting.partitions) if driver.torn is None else sorted(driver.torn)
    reported = {gid.partition for gid in driver.reports}
    for partition in wanted:
        for attempt in range(setting.attempts):
            gid = Gid(driver.generation, driver.batch, partition, attempt)
            if gid in world.begun or partition in reported:
                continue
            started = world._replace(
                begun=world.begun | {gid}, tasks=world.tasks | {Task(t_hold, index, gid)}
            )
            yield f"starts task {partition}.{attempt}", started
            break
    if reported == set(wanted):
        yield "all have reported", changed(world, index, step=s6_close)


def _task(world: World, task: Task, now: Task | None) -> World:
    after = {now} if now else set()
    return world._replace(tasks=(world.tasks - {task}) | after)


def t_hold(world: World, task: Task, setting: Setting) -> Moves:
    yield "can be seen", _task(world, task, task._replace(holds=True, step=t_gate))


def t_gate(world: World, task: Task, setting: Setting) -> Moves:
    if world.gate != task.gid.generation and setting.rules.looks_at_gate:
        yield "finds the gate closed", _task(world, task, None)
    else:
        yield "may write", _task(world, task, task._replace(step=t_siblings))


def t_siblings(world: World, task: Task, setting: Setting) -> Moves:
    """What a lost attempt has prepared holds locks: it goes, if it is not needed soon."""
    mine = task.gid
    others = frozenset(
        gid for gid in world.prepared if gid[:3] == mine[:3] and gid.attempt < mine.attempt
    )
    yield "writes", _task(world, task, task._replace(step=t_prepare))
    if others:
        decided = world.decision
        rolled = world._replace(prepared=world.prepared - others)
        if decided and decided.state == DECIDED and decided.parts & others:
            rolled = rolled._replace(fault="a task rolls back what is decided")
        yield "rolls back an older attempt", _task(rolled, task, task._replace(step=t_prepare))


def t_prepare(world: World, task: Task, setting: Setting) -> Moves:
    gid = task.gid
    done = _task(world, task, None)._replace(prepared=world.prepared | {gid})
    if gid.generation <= world.swept and not world.fail_overs:  # the next S1 does
        done = done._replace(fault="an older task prepares what nobody ends")
    yield "prepares, and its report is lost", done
    driver = world.drivers[task.driver]
    waits = driver.step is s5_tasks and driver.generation == gid.generation
    if waits and all(one.partition != gid.partition for one in driver.reports):
        yield "prepares", changed(done, task.driver, reports=driver.reports | {gid})


def s6_close(world: World, index: int, setting: Setting) -> Moves:
    mine = world.gate == world.drivers[index].generation and setting.rules.closes_gate
    shut = world._replace(gate=-1 if mine else world.gate)
    yield "S6 closes the gate", changed(shut, index, step=s6_end)


def s6_end(world: World, index: int, setting: Setting) -> Moves:
    ended = _ended(world, index, setting) if setting.rules.closes_gate else world
    yield "S6 ends whom it sees", changed(ended, index, step=s6_look)


def s6_look(world: World, index: int, setting: Setting) -> Moves:
    if world.drivers[index].reports <= world.prepared:
        yield "S6 finds all", changed(world, index, step=s6_decide)
    else:
        yield "S6 does not decide", die(world, index)


def s6_decide(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    if world.generation > driver.generation:
        yield "S6 is fenced", die(world, index)
        return
    whose = (driver.batch, driver.round, driver.generation, DECIDED)
    decision = Decision(*whose, driver.reports, driver.before)
    known = world.decision
    earlier = known if known and known.batch < driver.batch else world.earlier
    decided = world._replace(decision=decision, earlier=earlier)
    begun = {"decision": decision, "own": True, "again": False, "passed": frozenset()}
    yield f"S6 DECIDED round {driver.round}", changed(decided, index, **begun, step=s7_take)


def s7_take(world: World, index: int, setting: Setting) -> Moves:
    """Shut out every older driver: what is found then stays as it is."""
    driver = world.drivers[index]
    if world.marker.holder > driver.generation:
        yield "S7 is fenced", die(world, index)
        return
    if not _may_follow(world, driver, setting):
        yield "S7 finds an older copy", die(world, index)
        return
    taken = world
    if setting.rules.takes_first:
        taken = world._replace(marker=world.marker._replace(holder=driver.generation))
    yield "S7 takes the table", changed(taken, index, step=s7_end)


def _may_follow(world: World, driver: Driver, setting: Setting) -> bool:
    return follows(world.marker, required(driver.decision)) or not setting.rules.follows


def s7_end(world: World, index: int, setting: Setting) -> Moves:
    ended = _ended(world, index, setting) if setting.rules.takes_first else world
    yield "S7 ends whom it sees", changed(ended, index, seen=frozenset(), step=s7_prepared)


def s7_prepared(world: World, index: int, setting: Setting) -> Moves:
    """Where all is, the marks are not looked at: who waits to have them alone has others wait."""
    driver = world.drivers[index]
    seen = driver.seen | world.prepared
    step = s7_judge if required(driver.decision).parts <= world.prepared else s7_marks
    yield "S7 looks what is prepared", changed(world, index, seen=seen, step=step)


def s7_marks(world: World, index: int, setting: Setting) -> Moves:
    shown = world.marker.shows(required(world.drivers[index].decision))
    if setting.rules.sees_removed and not world.kept and not shown:
        yield "S7 finds marks removed", die(world, index)
        return
    seen = world.drivers[index].seen | world.marks
    yield "S7 looks at the marks", changed(world, index, seen=seen, step=s7_judge)


def s7_judge(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    decision = required(driver.decision)
    if world.marker.shows(decision):
        passed = world.marker.passed
        if passed:
            yield from _torn(world, index, passed)
        else:
            yield "S7 finds it there", changed(world, index, step=s8_done)
        return
    lost = frozenset(gid.partition for gid in decision.parts - driver.seen)
    begun = bool(decision.parts & world.marks) or decision.round > 0
    if not lost:
        yield "S7 finds all", changed(world, index, step=s7_hold)
    elif decision.state == DONE:
        yield "S7 stops, a replica lacks it now", die(world, index)
    elif not driver.again:
        yield "S7 misses some", changed(world, index, again=True, step=s7_take)
    elif not world.losses and world.kept and not world.fail_overs:
        yield "S7 misses", world._replace(fault="a prepared transaction is gone for no reason")
    elif begun and len(lost) < len(decision.parts):
        yield "S7 goes on without", changed(world, index, passed=lost, step=s7_hold)
    elif begun:
        yield from _torn(world, index, lost)
    elif world.generation > driver.generation:
        yield "S7 may not write VOID", die(world, index)
    elif driver.own:
        yield "S7 stops, all is lost", die(world, index)
    else:
        void = world._replace(decision=decision._replace(state=VOID))
        yield "S7 VOID", changed(void, index, decision=None, torn=None, step=s1_gate)


def _torn(world: World, index: int, lost: frozenset[int]) -> Moves:
    if world.drivers[index].own:
        yield "S7 stops, some is lost", die(world, index)
    else:
        yield "S7 finds it torn", changed(world, index, torn=lost, decision=None, step=s1_gate)


def s7_hold(world: World, index: int, setting: Setting) -> Moves:
    yield "S7 can be seen", changed(world, index, holds=True, step=s7_still)


def s7_still(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    newer = world.marker.holder > driver.generation
    if newer and setting.rules.looks_who_holds:
        yield "S7 is fenced", die(world, index)
    elif not _may_follow(world, driver, setting):
        yield "S7 finds an older copy", die(world, index)
    else:
        yield "S7 may commit", changed(world, index, step=s7_commit)


def s7_commit(world: World, index: int, setting: Setting) -> Moves:
    """COMMIT PREPARED of the next one; its answer may be lost, and its connection with it."""
    driver, rules = world.drivers[index], setting.rules
    decision = required(driver.decision)
    wanted = sorted(gid for gid in decision.parts if gid.partition not in driver.passed)
    there = world.marks if rules.marks else driver.seen & world.marks
    left = [gid for gid in wanted if gid not in there]
    if not left:
        yield "S7 has committed all", changed(world, index, step=s7_marker)
    elif left[0] in world.prepared:
        after = committed(world, left[0])
        seen = driver.seen | {left[0]}
        yield "S7 commits one", changed(after, index, seen=seen)
        yield "S7 commits one, answer lost", changed(after, index, holds=False, step=s7_hold)
    elif rules.marks:
        yield "S7 finds one gone", die(world, index)
    else:
        yield "S7 is told that there is none", changed(world, index, step=s7_marker)


def s7_marker(world: World, index: int, setting: Setting) -> Moves:
    """One transaction: the marker's lock, who holds it, the marks, what is there now."""
    driver, rules = world.drivers[index], setting.rules
    decision = required(driver.decision)
    if world.marker.holder > driver.generation:
        yield "S7 is fenced", die(world, index)
        return
    if not _may_follow(world, driver, setting):
        yield "S7 finds an older copy", die(world, index)
        return
    wanted = {gid for gid in decision.parts if gid.partition not in driver.passed}
    if not world.marker.shows(decision):
        if rules.marks and not wanted <= world.marks:
            yield "S7 misses a mark", die(world, index)
            return
        passed = driver.passed if rules.marker_names_passed else frozenset()
        marker = Marker(driver.generation, decision.batch, decision.generation, passed)
        world = world._replace(marker=marker, marks=frozenset())
    written = changed(world, index, holds=False)
    if driver.passed:
        for label, after in _torn(written, index, driver.passed):
            yield f"S7 marker, {label}", after
    else:
        yield "S7 marker", changed(written, index, step=s8_done)


def s8_done(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    if world.generation > driver.generation:
        yield "S8 sees a newer generation", die(world, index)
        return
    done = world._replace(decision=required(driver.decision)._replace(state=DONE))
    step = write_commit_log if driver.own else s1_gate
    yield "S8 DONE", changed(done, index, decision=None, torn=None, step=step)


def write_commit_log(world: World, index: int, setting: Setting) -> Moves:
    log = max(world.commit_log, world.drivers[index].batch)
    yield f"commit log {log}", changed(world._replace(commit_log=log), index, step=s1_plan)
