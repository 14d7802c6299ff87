"""`commit=idempotent` in the model of commit_model.py: tasks that commit by themselves, and the S1
that finds out which of them did. The steps are those of sinks/protocol/one_phase.py.

Not modelled: that a retry ends what an attempt of another partition left open.
"""

from __future__ import annotations

from dataclasses import replace

from commit_model import (
    Moves,
    Report,
    Setting,
    Task,
    Txn,
    World,
    digest_of,
    driver_of,
    end_txn,
    ended_from_outside,
    holds,
    id_of,
    is_gone,
    is_waited_for,
    looked,
    s1_plan,
    set_txn,
    task_fails,
    topics_of,
    txn_of,
    with_task,
    write_plan,
)

from eo_kafka.core.transaction import Decision, DecisionState, Identity, Participant, Token
from eo_kafka.sinks.batches.committable import Torn

# --- S1: which tasks have committed


def s1_pending(world: World, index: int, setting: Setting) -> Moves:
    """The tokens in the log by now (the fence is behind us), and whose transactions are open."""
    if world.drivers[index].lost is not None:
        after = looked(setting.before_plan, s1_plan)
        yield "S1 knows what is torn", driver_of(world, index, **after)
        return
    found = tuple(Identity(name, 1, txn.epoch) for name, txn in world.txns if txn.token)
    waits = found and setting.rules.waits_for_open_tokens
    after = {"step": s1_wait} if waits else looked(setting.before_plan, s1_read_tokens)
    yield f"S1 waits for {len(found)}", driver_of(world, index, found=found, **after)


def s1_wait(world: World, index: int, setting: Setting) -> Moves:
    """Until none of them is open; what is in the way is aborted, while nobody newer is there."""
    still = [x for x in world.drivers[index].found if _is_open(world, x)]
    if not still:
        after = looked(setting.before_plan, s1_read_tokens)
        yield "S1 has waited", driver_of(world, index, found=(), **after)
    elif holds(world, index):
        for identity in still:
            ended = end_txn(world, identity, commit=False, exact=True)
            yield f"S1 aborts {identity.transactional_id}", ended


def s1_read_tokens(world: World, index: int, setting: Setting) -> Moves:
    if any(one.token for one in world.hung):
        return  # it waits: its own barrier stands behind that
    newest = max(world.decisions, key=lambda known: known.batch, default=None)
    settled = (newest.batch, newest.round) if newest else (-1, -1)
    found = [
        token
        for token in world.tokens
        if (token.batch, token.round) > settled and not is_gone(world, token)
    ]
    torn = Torn(_as_decision(found), (), decided=False) if found else None
    yield f"S1 finds {len(found)} committed", driver_of(world, index, lost=torn, step=s1_plan)


def _as_decision(found: list[Token]) -> Decision:
    participants = tuple(_participant(token, Identity("", -1, -1)) for token in found)
    first = found[0]
    state = DecisionState.DECIDED
    return Decision(
        "main", first.batch, first.round, state, first.generation, 5, 1, 0, participants
    )


# --- what a task does


def s2_look(world: World, task: Task, setting: Setting) -> Moves:
    """The coordinator, and the id as it was before we take it."""
    if world.holder != task.plan.coordinator:
        yield "S2 sees another coordinator", task_fails(world, task, setting)
        return
    txn = txn_of(world, id_of(task, setting))
    last = Identity(id_of(task, setting), 1, txn.epoch)
    known = txn.epoch == 0 or any(
        part.identity == last for known in task.plan.decisions for part in known.participants
    )
    looked = task._replace(step=s2_init, epoch=txn.epoch, first=known)
    yield "S2 looks", with_task(world, task, looked)


def s2_init(world: World, task: Task, setting: Setting) -> Moves:
    """InitProducerId: ends the attempt before. The epoch says whether anybody came between. The
    output topic's id is asked for right after it, before the first row."""
    name = id_of(task, setting)
    txn = txn_of(world, name)
    if world.holder != task.plan.coordinator and txn.token is not None:
        world = ended_from_outside(world, name)
    first = task.first
    if setting.rules.nobody_came_between:
        first = first and txn.epoch == task.epoch
    opened = task._replace(epoch=txn.epoch + 1, first=first, topic=world.topic, step=s3_write)
    yield "S2 init", with_task(set_txn(world, name, Txn(txn.epoch + 1)), task, opened)


def s3_write(world: World, task: Task, setting: Setting) -> Moves:
    """Look for the token of an earlier attempt; without one, write. When the rows end, look whether
    that is their end, or that of the JVM's half of the task."""
    if task.is_cut_off and setting.rules.end_of_rows_is_true:
        ended = end_txn(world, _identity(task, setting), commit=False, exact=True)
        yield "S3 sees that the JVM is gone", with_task(ended, task, None)
        return
    looks = setting.rules.looks_for_earlier_attempt and not task.first
    earlier = _earlier(world, task, setting) if looks else None
    if earlier is not None and is_gone(world, earlier):
        yield "S2 finds that its rows are gone", task_fails(world, task, setting)
    elif earlier is not None and earlier.digest != digest_of(task.rows):
        yield "S2 finds other rows", task_fails(world, task, setting)
    elif earlier is not None:
        yield "S2 finds its token", _reported(world, task, setting, earlier)
    elif txn_of(world, id_of(task, setting)).epoch != task.epoch:
        yield "S3 is fenced", task_fails(world, task, setting)
    else:
        yield from s5_flush(world, task, setting)
        yield from _ends_early(world, task, setting)


def _ends_early(world: World, task: Task, setting: Setting) -> Moves:
    """What is in front of the sink throws when some of the rows have gone out. The JVM closes the
    worker's socket and tries again; to Python that looks like the end of the rows."""
    may = world.early_ends < setting.early_ends and len(task.rows) > 1
    if may and is_waited_for(world, task):
        rest = task._replace(rows=task.rows[:1], is_cut_off=True)
        first = setting.first_step or s2_look
        again = Task(*task[:3], task.attempt + 1, task.rows, task.plan, first)
        others = (other for other in world.tasks if other != task)
        tasks = tuple(sorted((*others, rest, again), key=lambda one: (*one[:4], one.is_cut_off)))
        ended = world._replace(early_ends=world.early_ends + 1, tasks=tasks)
        yield "the JVM's half fails", ended


def s5_flush(world: World, task: Task, setting: Setting) -> Moves:
    """Rows and token are in the logs, of an open transaction."""
    name = id_of(task, setting)
    if txn_of(world, name).epoch != task.epoch:
        yield "S5 is fenced", task_fails(world, task, setting)
        return
    token = _token(task, setting)
    written = set_txn(world, name, Txn(task.epoch, token, task.rows, topic=world.topic))
    flushed = task._replace(step=s5_look, barrier=world.generation)
    yield "S5 flushed", with_task(written, task, flushed)


def s5_look(world: World, task: Task, setting: Setting) -> Moves:
    """Whether the plan's driver still holds the coordinator's id."""
    if world.holder != task.plan.coordinator:
        ended = end_txn(world, _identity(task, setting), commit=False, exact=True)
        yield "S5 sees another coordinator", task_fails(ended, task, setting)
        return
    if setting.recreations and task.topic != world.topic:
        ended = end_txn(world, _identity(task, setting), commit=False, exact=True)
        yield "S5 sees another topic", task_fails(ended, task, setting)
        return
    yield "S5 looked", with_task(world, task, task._replace(step=s5_commit))


def s5_commit(world: World, task: Task, setting: Setting) -> Moves:
    """Unless the barrier of a newer generation stands before the token: its S1 passed it over."""
    identity = _identity(task, setting)
    if setting.rules.newer_barrier_stops and task.barrier > task.plan.generation:
        ended = end_txn(world, identity, commit=False, exact=True)
        yield "S5 reads a newer barrier", task_fails(ended, task, setting)
        return
    if not _is_open(world, identity):
        yield "S5 is fenced", task_fails(world, task, setting)
        return
    ended = end_txn(world, identity, commit=True, exact=True)
    # librdkafka's EndTxn leaves the epoch as it is
    ended = set_txn(ended, identity.transactional_id, Txn(task.epoch))
    yield "S5 commits", _reported(ended, task, setting, _token(task, setting))
    yield "S5 commits, report lost", task_fails(ended, task, setting)


def _reported(world: World, task: Task, setting: Setting, token: Token) -> World:
    world = with_task(world, task, None)
    if not is_waited_for(world, task):
        return world
    participant = _participant(token, _identity(task, setting))
    report = Report(task.partition, participant, committed=True)
    reports = (*world.drivers[task.driver].reports, report)
    return driver_of(world, task.driver, reports=tuple(sorted(reports)))


def _token(task: Task, setting: Setting) -> Token:
    plan, digest = write_plan(task.plan), digest_of(task.rows)
    round_, rows = plan.round_of(task.batch), len(task.rows)
    named = setting.recreations and setting.rules.topic_id_in_token
    topics = topics_of(task.topic) if named else ()
    return Token("main", task.partition, task.batch, round_, plan.generation, rows, digest, topics)


def _earlier(world: World, task: Task, setting: Setting) -> Token | None:
    """What an attempt before left visible, of whichever topic, and whatever its rows."""
    mine = replace(_token(task, setting), topics=(), rows=0, digest="")
    same = (one for one in world.tokens if replace(one, topics=(), rows=0, digest="") == mine)
    return next(same, None)


def _participant(token: Token, identity: Identity) -> Participant:
    return Participant(
        token.partition,
        token.round,
        token.generation,
        identity,
        token.rows,
        token.digest,
        token.topics,
    )


def _identity(task: Task, setting: Setting) -> Identity:
    return Identity(id_of(task, setting), 1, task.epoch)


def _is_open(world: World, identity: Identity) -> bool:
    txn = txn_of(world, identity.transactional_id)
    return txn.token is not None and txn.epoch == identity.epoch


ONE_PHASE = Setting(first_step=s2_look, find_torn=s1_pending, attempt_slots=1)
