"""In the model of commit_model.py: tasks whose transaction begins at a step of its own.

A task looks (S2), takes its id, sends the first row (from then on Kafka has the transaction as
Ongoing and it holds up the output's readers, without a token), looks at the coordinator once more,
and prepares. It may be killed at any of these; Spark then starts another attempt. It may be a
speculative copy. Two attempts may have ids that collide (`attempt_slots`), and the output topic may
be deleted and made again at any moment (`recreations`).

What the model says about the windows that stay:
- Between a task's look at its id and its InitProducerId another attempt that has the same slot may
  begin and prepare. It is then aborted: seen at S6 (the batch runs again), or, if it was decided by
  then, mended by its replay like a timeout. `World.ended` marks both.
- A task killed between its first row, if that came after the coordinator's next fence, and its
  second look leaves a transaction open: `Txn.orphan`. The next batch ends it, or its timeout.
- The topic's id must be known before the first row is sent, not only asked.
"""

from __future__ import annotations

from commit_model import (
    Moves,
    Setting,
    Task,
    Txn,
    World,
    end_txn,
    ended_from_outside,
    id_of,
    is_waited_for,
    prepared,
    set_txn,
    task_fails,
    topics_of,
    txn_of,
    with_task,
)

from eo_kafka.core.transaction import Identity


def s2_look(world: World, task: Task, setting: Setting) -> Moves:
    """The coordinator, and the ids: one whose transaction is open is left alone."""
    if setting.rules.check_before_init and world.holder != task.plan.coordinator:
        yield "S2 sees another coordinator", task_fails(world, task, setting)
        return
    slots = max(1, setting.attempt_slots)
    first = task._replace(step=s2_init, slot=task.attempt % slots if setting.attempt_slots else -1)
    choices = [first._replace(slot=(first.slot + more) % slots) for more in range(slots)]
    if not setting.attempt_slots or not setting.rules.next_slot_if_open:
        choices = [first]
    else:
        choices = [x for x in choices if not txn_of(world, id_of(x, setting)).is_open][:1]
    for chosen in choices:
        yield "S2 may open", with_task(world, task, chosen)
    if not choices:
        yield "S2 finds no free slot", task_fails(world, task, setting)


def s2_init(world: World, task: Task, setting: Setting) -> Moves:
    """InitProducerId: ends what is open under the id."""
    name = id_of(task, setting)
    txn = txn_of(world, name)
    if txn.token is not None:
        # It was prepared after our look, or we were overtaken since. Else it is our fault.
        raced = setting.rules.next_slot_if_open or world.holder != task.plan.coordinator
        reports = world.drivers[task.driver].reports
        needed = any(x.prepared and x.prepared.identity == _now(name, txn) for x in reports)
        fault = "an attempt aborted another one that was prepared and reported"
        world = ended_from_outside(world, name)
        world = world if raced or not needed else world._replace(fault=fault)
    opened = task._replace(epoch=txn.epoch + 1, step=_before_first_row(setting))
    yield "S2 init", with_task(set_txn(world, name, Txn(txn.epoch + 1)), task, opened)


def _before_first_row(setting: Setting):  # type: ignore[no-untyped-def]
    asks = setting.recreations and setting.rules.topic_id_at_first_row
    return s3_asks_topic if asks else s3_first_row


def s3_asks_topic(world: World, task: Task, setting: Setting) -> Moves:
    """The output topic's id, before the first row is sent."""
    asked = task._replace(topic=world.topic, step=s3_first_row)
    yield "S3 knows the topic's id", with_task(world, task, asked)


def s3_first_row(world: World, task: Task, setting: Setting) -> Moves:
    """AddPartitionsToTxn: Kafka has the transaction as Ongoing from here on."""
    name = id_of(task, setting)
    if txn_of(world, name).epoch != task.epoch:
        yield "S3 is fenced", task_fails(world, task, setting)
        return
    begun = Txn(
        task.epoch,
        begun=True,
        generation=task.plan.generation,
        late=world.holder != task.plan.coordinator,
        topic=world.topic,
    )
    step = s3_looks_again if setting.rules.second_look else s5_prepare
    yield "S3 first row", with_task(set_txn(world, name, begun), task, task._replace(step=step))


def s3_looks_again(world: World, task: Task, setting: Setting) -> Moves:
    """Whoever fenced before the transaction was open did not find it in any listing."""
    if world.holder != task.plan.coordinator:
        yield "S3 sees another coordinator", _gives_up(world, task, setting)
    else:
        yield "S3 looks again", with_task(world, task, task._replace(step=s5_prepare))


def s5_prepare(world: World, task: Task, setting: Setting) -> Moves:
    """The rest of the rows, the token, and a look at all that S5 looks at."""
    if txn_of(world, id_of(task, setting)).epoch != task.epoch:
        yield "S5 is fenced", task_fails(world, task, setting)
    elif setting.rules.topic_id_at_first_row and setting.recreations and task.topic != world.topic:
        yield "S5 sees another topic", _gives_up(world, task, setting)
    elif world.holder != task.plan.coordinator:
        yield "S5 sees another coordinator", _gives_up(world, task, setting)
    else:
        topics = topics_of(world.topic) if setting.recreations else ()
        yield "S5 prepared", prepared(world, task, setting, topics)


def _gives_up(world: World, task: Task, setting: Setting) -> World:
    ended = end_txn(world, _identity(task, setting), commit=False, exact=True)
    return task_fails(ended, task, setting)


def _identity(task: Task, setting: Setting) -> Identity:
    return Identity(id_of(task, setting), 1, task.epoch)


# --- what may happen to them


def chaos(world: World, setting: Setting) -> Moves:
    if world.topic < setting.recreations:
        # What no decision names was not promised to anybody: a replay must write it again.
        decisions = [*world.decisions, *(x.decision for x in world.drivers if x.decision)]
        decisions += [world.on_its_way[1]] if world.on_its_way else []
        decided = {-1, *(decision.batch for decision in decisions)}
        lost = {(batch, row) for batch, row in world.visible if batch in decided}
        again = world._replace(
            topic=world.topic + 1, visible=(), deleted=tuple(sorted({*world.deleted, *lost}))
        )
        yield "the output topic is deleted and made again", again
    if world.deaths < setting.task_deaths:
        for task in world.tasks:
            name = f"task of driver {task.driver}, partition {task.partition}.{task.attempt}"
            yield f"{name}: is killed", _killed(world, task, setting)


def _killed(world: World, task: Task, setting: Setting) -> World:
    """Out of memory, or its executor is lost. Spark tries again if it still waits."""
    name = id_of(task, setting)
    txn = txn_of(world, name)
    if task.step is s3_looks_again and txn.epoch == task.epoch and txn.late:
        world = set_txn(world, name, txn._replace(orphan=True))
    world = with_task(world._replace(deaths=world.deaths + 1), task, None)
    alive = any(
        (other.partition, other.driver, other.plan) == (task.partition, task.driver, task.plan)
        for other in world.tasks
    )
    if alive or not is_waited_for(world, task):
        return world
    first = setting.first_step or s2_look
    again = Task(*task[:3], task.attempt + 1, task.rows, task.plan, first)
    return world._replace(tasks=tuple(sorted((*world.tasks, again), key=_order)))


def _order(task: Task) -> tuple[int, int, int, int]:
    return task.driver, task.batch, task.partition, task.attempt


# --- what must never be seen


def held_up(world: World, setting: Setting) -> str:
    """From Spark's commit log on, the output is readable: no transaction of that generation, or an
    older one, is open on it that its task will not end right now. What a stopped query began is
    ended when its tasks are dead."""
    for name, txn in world.txns:
        if not _is_left(world, name, txn, setting):
            continue
        tasks = [task.step for task in world.tasks if _identity(task, setting) == _now(name, txn)]
        if txn.generation <= world.readable and s3_looks_again not in tasks:
            return f"a batch is committed and not readable: {name} is open"
        stopped = txn.generation in world.stopped and txn.generation == world.generation
        if stopped and not tasks:
            return f"a query was stopped, its tasks are dead, and {name} is open"
    return ""


def _is_left(world: World, name: str, txn: Txn, setting: Setting) -> bool:
    """Whether nothing that is decided needs it, nor the one excuse covers it."""
    decided = (part.identity for known in world.decisions for part in known.participants)
    excused = txn.orphan and not setting.orphans
    return txn.is_open and not excused and _now(name, txn) not in decided


def _now(name: str, txn: Txn) -> Identity:
    return Identity(name, 1, txn.epoch)
