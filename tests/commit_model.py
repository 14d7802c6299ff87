"""The commit protocol as a model small enough to try every interleaving, and every crash.

One sink with two task partitions, in a `World`: what Kafka and Spark's checkpoint keep, and the
drivers and tasks that are alive. A driver is at one step; each step is a function below, named as
in the design (S1 to S8), takes one look at the world or changes it once, and answers all worlds it
may lead to. `explore` walks them breadth first, so the trace of a fault is a shortest one.

What may happen at any moment: a driver dies (its tasks live on as zombies), a new one starts while
the old one lives, Spark's worker for `commit` is killed and Spark calls `abort`, a decision is
still on its way when its writer dies, the broker ends a transaction for its age, a batch is
replayed in another partitioning. All generations share their transactional ids (`slots`), which is
harder than what the code does.

What the code decides without I/O is the code itself: Decision.check_follows, without_token,
WritePlan. Not modelled: markers and the last stable offset, compaction, several sinks.

Each rule of the protocol can be switched off (`Rules`); the tests show what then goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple, TypeVar

from eo_kafka.sinks.committable import Torn, WritePlan
from eo_kafka.state.ledger import with_state
from eo_kafka.transaction import (
    Decision,
    DecisionState,
    Identity,
    IllegalMove,
    Participant,
    Token,
    without_token,
)

ROWS = ("a", "b")
# How a batch's rows may lie in the two partitions; the last one as if tasks had been coalesced.
SPLITS = {"ab": (("a",), ("b",)), "ba": (("b",), ("a",)), "all-in-0": (("a", "b"), ())}
Holder = tuple[int, int, str]  # of the coordinator's id: (driver, batch, why it was taken)


class Rules(NamedTuple):
    """The protocol's rules, each of which a test switches off."""

    s1_writes_generation: bool = True
    fence_before_read: bool = True
    plan_of_own_generation: bool = True  # a plan never shows what a newer generation wrote
    list_then_check: bool = True  # stragglers are aborted only if the coordinator is still ours
    check_before_init: bool = True
    s6_checks_generation: bool = True
    equal_digests: bool = True
    rounds: bool = True
    void: bool = True
    done_needs_tokens: bool = True
    abort_reads_ledger: bool = True
    abort_by_epoch: bool = True
    commit_by_epoch: bool = True
    # of commit=idempotent (one_phase_model.py)
    token_before_look: bool = True  # the last look at the coordinator comes after the token
    waits_for_open_tokens: bool = True
    looks_for_earlier_attempt: bool = True
    nobody_came_between: bool = True
    torn_must_be_equal: bool = True


class Setting(NamedTuple):
    """How much happens in one exploration."""

    drivers: int = 2
    timeouts: int = 0
    batches: int = 1
    splits: tuple[str, ...] = ("ab", "ba")
    slots: int = 1
    attempts: int = 1  # of partition 0, at the same time
    deaths: bool = True  # drivers die and commits are killed, anywhere
    hidden: bool = False  # S1's listing may miss what a broker that is down coordinates
    rules: Rules = Rules()
    # commit=idempotent: how its tasks begin, and what S1 does after it aborted stragglers
    first_step: TaskStep | None = None
    find_torn: Step | None = None


class Txn(NamedTuple):
    """What the coordinator of an id knows of it; `token` and `rows` are of an open transaction."""

    epoch: int = 0
    token: Token | None = None
    rows: tuple[str, ...] = ()


class Plan(NamedTuple):
    """A WritePlan that can be hashed."""

    generation: int
    coordinator: Holder
    decisions: tuple[Decision, ...]
    lost: Torn | None


class Report(NamedTuple):
    partition: int
    prepared: Participant | None
    skipped: bool = False
    digest: str = ""  # of the rows that were run through
    committed: bool = False  # by the task itself


class Task(NamedTuple):
    driver: int
    batch: int
    partition: int
    attempt: int
    rows: tuple[str, ...]
    plan: Plan
    step: TaskStep
    epoch: int = -1
    first: bool = False  # one-phase: nobody had the id before, in this generation


class Driver(NamedTuple):
    step: Step
    batch: int = -1
    generation: int = 0
    fence: Holder | None = None
    view: tuple[Decision, ...] | None = ()  # the ledger as S1 read it; None: it settled some since
    lost: Torn | None = None
    found: tuple[Identity, ...] = ()  # open transactions listed, or those still to be ended
    decision: Decision | None = None
    plan: Plan | None = None
    reports: tuple[Report, ...] = ()


class World(NamedTuple):
    drivers: tuple[Driver, ...]
    tasks: tuple[Task, ...] = ()
    txns: tuple[tuple[str, Txn], ...] = ()
    visible: tuple[tuple[int, str], ...] = ()  # (batch, row), for a read_committed consumer
    tokens: tuple[Token, ...] = ()
    holder: Holder | None = None
    generation: int = 0
    decisions: tuple[Decision, ...] = ()  # newest round of each batch
    on_its_way: tuple[Holder, Decision] | None = None  # an append whose writer is gone
    planned: int = -1  # Spark's offset log
    commit_log: int = -1
    timeouts: int = 0
    # A transaction may have been ended from outside: a timeout, or a task that was overtaken
    # between its check of the coordinator and its InitProducerId.
    excuse: bool = False
    fault: str = ""


T = TypeVar("T")
Move = tuple[str, World]
Moves = Iterator[Move]
Step = Callable[[World, int, Setting], Moves]
TaskStep = Callable[[World, Task, Setting], Moves]


# --- what Kafka does


def txn_of(world: World, name: str) -> Txn:
    return dict(world.txns).get(name, Txn())


def set_txn(world: World, name: str, txn: Txn) -> World:
    return world._replace(txns=tuple(sorted({**dict(world.txns), name: txn}.items(), key=_first)))


def _first(item: tuple[str, Txn]) -> str:
    return item[0]


def _is_open(world: World, identity: Identity) -> bool:
    txn = txn_of(world, identity.transactional_id)
    return txn.token is not None and txn.epoch == identity.epoch


def end_txn(world: World, identity: Identity, *, commit: bool, exact: bool) -> World:
    """EndTxn v5: ends the transaction of this epoch only, and raises the epoch."""
    txn = txn_of(world, identity.transactional_id)
    if txn.token is None or (exact and txn.epoch != identity.epoch):
        return world
    if commit:
        rows = tuple((txn.token.batch, row) for row in txn.rows)
        world = world._replace(
            visible=tuple(sorted(world.visible + rows)),
            tokens=tuple(sorted({*world.tokens, txn.token}, key=_token_order)),
        )
    return set_txn(world, identity.transactional_id, Txn(txn.epoch + 1))


def append(world: World, decision: Decision) -> World:
    """A decision lands in the ledger; a fault if no legal history holds it."""
    previous = decision_of(world.decisions, decision.batch)
    try:
        decision.check_follows(previous)
    except IllegalMove as error:
        return world._replace(fault=f"the ledger contradicts itself: {error}")
    others = tuple(known for known in world.decisions if known.batch != decision.batch)
    return world._replace(
        decisions=tuple(sorted((*others, decision), key=lambda known: known.batch)),
        generation=max(world.generation, decision.generation),
    )


def decision_of(decisions: tuple[Decision, ...], batch: int) -> Decision | None:
    return next((known for known in decisions if known.batch == batch), None)


# --- what a driver does


def driver_of(world: World, index: int, **changes: object) -> World:
    drivers = list(world.drivers)
    drivers[index] = drivers[index]._replace(**changes)  # type: ignore[arg-type]
    return world._replace(drivers=tuple(drivers))


def die(world: World, index: int) -> World:
    drivers = list(world.drivers)
    drivers[index] = Driver(step=gone)
    return world._replace(drivers=tuple(drivers))


def _fence(world: World, index: int, why: str, step: Step) -> World:
    """InitProducerId for the coordinator: what is on its way from others will not land."""
    holder = (index, world.drivers[index].batch, why)
    return driver_of(world._replace(holder=holder, on_its_way=None), index, fence=holder, step=step)


def holds(world: World, index: int) -> bool:
    return world.holder is not None and world.holder == world.drivers[index].fence


def newer(world: World, index: int) -> bool:
    return world.generation > world.drivers[index].generation


def gone(world: World, index: int, setting: Setting) -> Moves:
    """Dead, or its query has failed."""
    yield from ()


def start_batch(world: World, index: int, setting: Setting) -> Moves:
    """Spark: the batch that is planned and not in the commit log, or the next."""
    batch = world.planned if world.planned > world.commit_log else world.commit_log + 1
    if batch < setting.batches:
        step = s1_fence if setting.rules.fence_before_read else s1_read_before_fence
        world = world._replace(planned=max(world.planned, batch))
        yield f"plans batch {batch}", driver_of(world, index, batch=batch, step=step)


def s1_read_before_fence(world: World, index: int, setting: Setting) -> Moves:
    yield "S1 reads before it fences", driver_of(world, index, view=world.decisions, step=s1_fence)


def s1_fence(world: World, index: int, setting: Setting) -> Moves:
    yield "S1 fence", _fence(world, index, "S1", s1_generation)


def s1_generation(world: World, index: int, setting: Setting) -> Moves:
    """Read to the end and write the next generation: one step, because the append only lands if
    nobody else has fenced since."""
    if not holds(world, index):
        yield "S1 was fenced, again", driver_of(world, index, step=s1_fence)
        return
    view = world.decisions if setting.rules.fence_before_read else world.drivers[index].view
    generation = index + 1
    if setting.rules.s1_writes_generation:
        generation = world.generation + 1
        world = world._replace(generation=generation)
    yield (
        f"S1 generation {generation}",
        driver_of(world, index, generation=generation, view=view, step=s1_roll_forward),
    )


def s1_roll_forward(world: World, index: int, setting: Setting) -> Moves:
    view = required(world.drivers[index].view)
    unfinished = [known for known in view if known.state is DecisionState.DECIDED]
    if not unfinished:
        yield "S1 nothing unfinished", driver_of(world, index, step=s1_list)
        return
    decision = unfinished[0]
    yield (
        f"S1 rolls batch {decision.batch} forward",
        driver_of(world, index, view=None, decision=decision, found=_own(decision), step=s7_end),
    )


def s1_settle(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    decision = required(driver.decision)
    missing = _missing(world, decision, setting)
    partly = len(missing) < len(decision.participants) or not setting.rules.void
    if missing and partly:
        lost = Torn(decision, missing)
        yield (
            f"S1 finds {len(missing)} lost",
            driver_of(_lost(world), index, lost=lost, decision=None, step=s1_list),
        )
    elif not holds(world, index):
        yield "S1 fences again", _fence(world, index, "S1 again", s1_settle)
    elif newer(world, index):
        yield "S1 sees a newer generation", die(world, index)
    else:
        state = DecisionState.VOID if missing else DecisionState.DONE
        world = append(_lost(world) if missing else world, with_state(decision, state))
        yield f"S1 writes {state.value}", driver_of(world, index, decision=None, step=s1_list)


def s1_list(world: World, index: int, setting: Setting) -> Moves:
    """List the open transactions of the job; those of a lost batch have all ended."""
    found = tuple(Identity(name, 1, txn.epoch) for name, txn in world.txns if txn.token is not None)
    none = setting.find_torn or s1_plan
    step = s1_check if found and setting.rules.list_then_check else s1_abort if found else none
    yield f"S1 lists {len(found)}", driver_of(world, index, found=found, step=step)
    if found and setting.hidden:
        yield "S1's list misses all", driver_of(world, index, found=(), step=none)


def s1_check(world: World, index: int, setting: Setting) -> Moves:
    found = world.drivers[index].found if holds(world, index) else ()
    step = s1_abort if found else setting.find_torn or s1_plan
    yield f"S1 may abort {len(found)}", driver_of(world, index, found=found, step=step)


def s1_abort(world: World, index: int, setting: Setting) -> Moves:
    for identity in world.drivers[index].found:
        world = end_txn(world, identity, commit=False, exact=setting.rules.abort_by_epoch)
    step = setting.find_torn or s1_plan
    yield "S1 aborts stragglers", driver_of(world, index, found=(), step=step)


def s1_plan(world: World, index: int, setting: Setting) -> Moves:
    """Of what was read under one's own generation; where S1 settled something, read again."""
    driver, own = world.drivers[index], setting.rules.plan_of_own_generation
    again = driver.view is None or setting.find_torn is not None
    if own and again and newer(world, index):
        yield "S1 sees a newer generation", die(world, index)
        return
    view = driver.view if own and not again else world.decisions
    plan = Plan(driver.generation, required(driver.fence), required(view), driver.lost)
    yield "S1 plan", driver_of(world, index, view=(), plan=plan, lost=None, step=launch)


@cache
def write_plan(plan: Plan) -> WritePlan:
    """The code's own."""
    return WritePlan(
        generation=plan.generation,
        coordinator=Identity("coordinator", 1, 0),
        owner=None,
        end_txn_version=5,
        token_from=0,
        decisions={known.batch: known for known in plan.decisions},
        torn=plan.lost,
    )


def launch(world: World, index: int, setting: Setting) -> Moves:
    """Spark starts the tasks, in some partitioning; those without work report at once."""
    driver = world.drivers[index]
    plan = required(driver.plan)
    repair = plan.lost is not None and plan.lost.decision.batch == driver.batch
    for split in setting.splits:
        reports: list[Report] = []
        tasks: list[Task] = []
        for partition, rows in enumerate(SPLITS[split]):
            if not write_plan(plan).must_write(driver.batch, partition):
                digest = "".join(rows)
                reports.append(Report(partition, None, skipped=not repair, digest=digest))
            elif not rows:
                reports.append(Report(partition, None))
            else:
                attempts = setting.attempts if partition == 0 else 1
                step = s2_check if repair else setting.first_step or s2_check
                tasks += [
                    Task(index, driver.batch, partition, attempt, rows, plan, step)
                    for attempt in range(attempts)
                ]
        launched = world._replace(tasks=tuple(sorted((*world.tasks, *tasks), key=_task_order)))
        yield (
            f"launches {split}: {len(tasks)} tasks",
            driver_of(launched, index, reports=tuple(reports), step=wait_for_tasks),
        )


def wait_for_tasks(world: World, index: int, setting: Setting) -> Moves:
    reports = world.drivers[index].reports
    if len(reports) == len(SPLITS["ab"]):
        skipped = all(report.skipped for report in reports)
        step = write_commit_log if skipped else s6_fence
        yield "all skipped" if skipped else "commit()", driver_of(world, index, step=step)


def s6_fence(world: World, index: int, setting: Setting) -> Moves:
    yield "S6 fence", _fence(world, index, "S6", s6_check)


def s6_check(world: World, index: int, setting: Setting) -> Moves:
    """May it be decided? All that is looked at stays true while the fence holds."""
    driver, rules = world.drivers[index], setting.rules
    previous = decision_of(world.decisions, driver.batch)
    decision = _proposal(driver, rules)
    if rules.s6_checks_generation and newer(world, index):
        yield "S6 sees a newer generation", fail(world, index, setting)
    elif previous and (previous.round, previous.generation) == (
        decision.round,
        decision.generation,
    ):
        yield "S6 has landed", _decided(world, index, previous)
    elif not _follows(decision, previous):
        yield "S6 may not follow", fail(world, index, setting)
    elif _unequal(driver, rules):
        for identity in _prepared(driver):
            world = end_txn(world, identity, commit=False, exact=True)
        if not any(batch == driver.batch for batch, _ in world.visible):
            world = world._replace(fault="asked for repair where nothing was committed")
        yield "S6 asks for repair", die(world, index)
    elif not all(_is_open(world, x) for x in _prepared(driver)):
        yield "S6 undecided", fail(world, index, setting)
    else:
        yield "S6 may decide", driver_of(world, index, decision=decision, step=s6_decide)


def _proposal(driver: Driver, rules: Rules) -> Decision:
    plan = required(driver.plan)
    participants = [report.prepared for report in driver.reports if report.prepared]
    if plan.lost and plan.lost.decision.batch == driver.batch:
        participants += plan.lost.committed
    return Decision(
        sink="main",
        batch=driver.batch,
        round=write_plan(plan).round_of(driver.batch) if rules.rounds else 0,
        state=DecisionState.DECIDED if _prepared(driver) else DecisionState.DONE,
        generation=driver.generation,
        end_txn_version=5,
        token_partition=1,
        token_from=0,
        participants=tuple(sorted(participants, key=lambda part: part.partition)),
    )


def _follows(decision: Decision, previous: Decision | None) -> bool:
    try:
        decision.check_follows(previous)
    except IllegalMove:
        return False
    return True


def _unequal(driver: Driver, rules: Rules) -> bool:
    torn = required(driver.plan).lost
    needed = rules.equal_digests if torn is None or torn.decided else rules.torn_must_be_equal
    if torn is None or torn.decision.batch != driver.batch or not needed:
        return False
    digests = {
        report.partition: report.prepared.digest if report.prepared else report.digest
        for report in driver.reports
    }
    known = torn.missing if torn.decided else torn.committed
    return any(digests.get(part.partition) != part.digest for part in known)


def _prepared(driver: Driver) -> tuple[Identity, ...]:
    """The transactions that wait for the decision."""
    return tuple(x.prepared.identity for x in driver.reports if x.prepared and not x.committed)


def _decided(world: World, index: int, decision: Decision) -> World:
    """The decision is in the ledger: on to S7, or to the end if nobody waits for it."""
    if decision.state is DecisionState.DONE:
        return driver_of(world, index, decision=None, step=write_commit_log)
    return driver_of(world, index, decision=decision, found=_own(decision), step=s7_end)


def s6_decide(world: World, index: int, setting: Setting) -> Moves:
    if not holds(world, index):
        yield "S6 was fenced, again", driver_of(world, index, decision=None, step=s6_fence)
        return
    decision = required(world.drivers[index].decision)
    landed = append(world, decision)
    yield f"S6 DECIDED round {decision.round}", _decided(landed, index, decision)
    yield "S6 DECIDED, answer lost", driver_of(landed, index, decision=None, step=s6_fence)


def s7_end(world: World, index: int, setting: Setting) -> Moves:
    """One EndTxn after another, in any order. Of a batch, or in S1 of an earlier driver's."""
    driver = world.drivers[index]
    if not driver.found:
        step = s1_settle if driver.plan is None else s7_tokens
        yield "S7 all ended", driver_of(world, index, step=step)
    for identity in driver.found:
        left = tuple(other for other in driver.found if other != identity)
        ended = end_txn(world, identity, commit=True, exact=setting.rules.commit_by_epoch)
        yield f"S7 commits {identity.transactional_id}", driver_of(ended, index, found=left)


def s7_tokens(world: World, index: int, setting: Setting) -> Moves:
    missing = _missing(world, required(world.drivers[index].decision), setting)
    if missing:
        yield f"S7 finds {len(missing)} lost", fail(_lost(world), index, setting)
    else:
        yield "S7 sees all tokens", driver_of(world, index, step=s8_done)


def s8_done(world: World, index: int, setting: Setting) -> Moves:
    if not holds(world, index):
        yield "S8 fence", _fence(world, index, "S8", s8_done)
    elif newer(world, index):
        yield "S8 sees a newer generation", fail(world, index, setting)
    else:
        decision = required(world.drivers[index].decision)
        done = world
        if decision.state is not DecisionState.DONE:
            done = append(world, with_state(decision, DecisionState.DONE))
        yield "S8 DONE", driver_of(done, index, decision=None, step=write_commit_log)


def write_commit_log(world: World, index: int, setting: Setting) -> Moves:
    batch = world.drivers[index].batch
    world = die(world._replace(commit_log=max(world.commit_log, batch)), index)
    yield f"commit log {batch}", driver_of(world, index, step=start_batch)


# --- abort()


def fail(world: World, index: int, setting: Setting) -> World:
    """The query fails: Spark calls abort() with the reports it has, then the driver ends."""
    driver = world.drivers[index]
    reports = tuple(x for x in driver.reports if x.prepared and not x.committed)
    if not reports:
        return die(world, index)
    step = abort_fence if setting.rules.abort_reads_ledger else abort_end
    failed = Driver(step, driver.batch, driver.generation, reports=reports)
    return driver_of(world, index, **failed._asdict())


def abort_fence(world: World, index: int, setting: Setting) -> Moves:
    """What is on its way from our own commit must not land later. A newer driver saw to that."""
    if newer(world, index):
        yield "abort sees a newer generation", driver_of(world, index, step=abort_read)
    else:
        yield "abort fence", _fence(world, index, "abort", abort_read)


def abort_read(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    decided = {part.identity for known in world.decisions for part in known.participants}
    left = tuple(x for x in driver.reports if required(x.prepared).identity not in decided)
    if left:
        yield "abort may", driver_of(world, index, reports=left, step=abort_end)
    else:
        yield "abort has nothing to do", die(world, index)


def abort_end(world: World, index: int, setting: Setting) -> Moves:
    for report in world.drivers[index].reports:
        identity = required(report.prepared).identity
        world = end_txn(world, identity, commit=False, exact=setting.rules.abort_by_epoch)
    yield "abort ends its transactions", die(world, index)


# --- what a task does


def with_task(world: World, task: Task, changed: Task | None) -> World:
    tasks = [other for other in world.tasks if other != task] + ([changed] if changed else [])
    return world._replace(tasks=tuple(sorted(tasks, key=_task_order)))


def s2_check(world: World, task: Task, setting: Setting) -> Moves:
    if setting.rules.check_before_init and world.holder != task.plan.coordinator:
        yield "S2 sees another coordinator", task_fails(world, task, setting)
    else:
        yield "S2 may open", with_task(world, task, task._replace(step=s2_init))


def s2_init(world: World, task: Task, setting: Setting) -> Moves:
    """InitProducerId. The check above may be out of date by now."""
    name = id_of(task, setting)
    txn = txn_of(world, name)
    overtaken = world.holder != task.plan.coordinator
    if setting.rules.check_before_init and overtaken and txn.token is not None:
        world = world._replace(excuse=True)
    opened = task._replace(epoch=txn.epoch + 1, step=s3_write)
    yield "S2 init", with_task(set_txn(world, name, Txn(txn.epoch + 1)), task, opened)


def s3_write(world: World, task: Task, setting: Setting) -> Moves:
    """S3, S4, S5 and the report: a crash between them looks like one before or after all."""
    name = id_of(task, setting)
    if txn_of(world, name).epoch != task.epoch:
        yield "S3 is fenced", task_fails(world, task, setting)
        return
    round_ = write_plan(task.plan).round_of(task.batch) if setting.rules.rounds else 0
    digest = "".join(task.rows)
    made = (task.partition, task.batch, round_, task.plan.generation, len(task.rows), digest)
    world = set_txn(world, name, Txn(task.epoch, Token("main", *made), task.rows))
    world = with_task(world, task, None)
    if is_waited_for(world, task):
        prepared = Participant(
            partition=task.partition,
            round=round_,
            generation=task.plan.generation,
            identity=Identity(name, 1, task.epoch),
            rows=len(task.rows),
            digest=digest,
        )
        reports = (*world.drivers[task.driver].reports, Report(task.partition, prepared))
        world = driver_of(world, task.driver, reports=tuple(sorted(reports)))
    yield "S5 prepared", world


def id_of(task: Task, setting: Setting) -> str:
    attempt = task.attempt if setting.first_step is None else 0
    return f"p{task.partition}.g{task.plan.generation % setting.slots}.a{attempt}"


def is_waited_for(world: World, task: Task) -> bool:
    driver = world.drivers[task.driver]
    return (
        driver.step is wait_for_tasks
        and driver.plan == task.plan
        and all(report.partition != task.partition for report in driver.reports)
    )


def task_fails(world: World, task: Task, setting: Setting) -> World:
    """Spark's tries are over when no other attempt of the partition is alive."""
    world = with_task(world, task, None)
    alive = any(
        (other.partition, other.driver, other.plan) == (task.partition, task.driver, task.plan)
        for other in world.tasks
    )
    return fail(world, task.driver, setting) if is_waited_for(world, task) and not alive else world


# --- small parts


def required(value: T | None) -> T:
    if value is None:
        raise ValueError("the model is wrong: a step without what it needs")
    return value


def _own(decision: Decision) -> tuple[Identity, ...]:
    """The transactions that this round is to commit; those of earlier rounds are committed."""
    return tuple(part.identity for part in decision.participants if part.round == decision.round)


def _missing(world: World, decision: Decision, setting: Setting) -> tuple[Participant, ...]:
    if not setting.rules.done_needs_tokens:
        return ()
    return without_token(decision, list(world.tokens))


def _lost(world: World) -> World:
    """A decided transaction is gone: only a timeout, or a task that was overtaken, may do that."""
    if world.excuse:
        return world
    return world._replace(fault="a decided transaction was lost though nothing timed out")


def _token_order(token: Token) -> tuple[int, int, int, int]:
    return token.batch, token.partition, token.round, token.generation


def _task_order(task: Task) -> tuple[int, int, int, int]:
    return task.driver, task.batch, task.partition, task.attempt
