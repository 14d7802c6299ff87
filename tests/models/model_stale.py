"""In the model of commit_model.py: a leader that is cut off, and answers with what it had.

A partition's leader that the other brokers cannot reach, and clients can, goes on naming itself the
leader. It takes no record (`acks=all`), but it tells an end of its log and gives records up to it:
what was true when it was cut off. So every read of the ledger and of the tokens may be of that
moment (`Cut`), and the next one of now. It is no lie about what stands there: a prefix.

Its coordinator may be cut off just so. It takes no id, but it describes who had one. And a broker
that the controllers cannot reach has an old list of topics. (Not modelled: that rows went with
their topic, and a broker's list does not show it yet.)

Six rules keep such an answer from being taken for all there is:
- append_where_read_ended: the first append after a fence must land where the reading had ended. If
  it lands later, something was not read: the append is aborted, and all begins at the fence.
- own_append_is_read: an end before one's own record is asked for again, too.
- tokens_known_to_reach: a decision says up to where its tokens stand in the log, by the tasks' own
  acknowledgements. An end before that is asked for again.
- barrier_before_tokens: of commit=idempotent no decision says that. The transaction of a generation
  puts a record into the tokens' partition, and so does a task that looks for an earlier attempt's
  token: what is looked for stands before it.
- newer_barrier_stops: a task that commits by itself reads what stands before its own token. A newer
  generation's barrier there says that the coordinator has been taken, whoever denies it.
- gone_as_most_say: rows went with their topic only if most brokers say so, and none denies it.
"""

from __future__ import annotations

import commit_model
import one_phase_model
from commit_model import Cut, Driver, Moves, Setting, World, driver_of, required

_LEDGER = (
    commit_model.s1_generation,
    commit_model.s1_plan,
    commit_model.s1_settle,
    commit_model.s6_check,
    commit_model.s8_done,
    commit_model.abort_fence,
    commit_model.abort_read,
)
_TOKENS = (commit_model.s1_settle, commit_model.s7_tokens, one_phase_model.s1_read_tokens)


_LOOKS_AT_COORDINATOR = (commit_model.s2_check, one_phase_model.s2_look, one_phase_model.s5_look)


def chaos(world: World, setting: Setting) -> Moves:
    yield from _old_coordinator(world, setting)
    yield from _old_topics(world, setting)
    if setting.cuts and world.cut is None:
        waiting = tuple(txn.token for _, txn in world.txns if txn.token)
        cut = Cut(world.generation, world.decisions, world.tokens, waiting)
        yield "the ledger's leader is cut off", world._replace(cut=cut)
    for index, driver in enumerate(world.drivers):
        if world.cut is not None and not driver.behind:
            yield from _reads_ledger(world, index, world.cut, setting)
            yield from _reads_tokens(world, index, world.cut, setting)


def _old_coordinator(world: World, setting: Setting) -> Moves:
    if world.old_holder is None:
        if setting.old_coordinators and world.holder is not None:
            cut = world._replace(old_holder=world.holder)
            yield "the coordinator's broker is cut off", cut
        return
    if world.holder == world.old_holder:
        return
    seen = world._replace(holder=world.old_holder)
    for task in world.tasks:
        if task.step in _LOOKS_AT_COORDINATOR:
            for label, after in task.step(seen, task, setting):
                name = f"task of driver {task.driver}, partition {task.partition}"
                yield f"{name}, by an old answer: {label}", after._replace(holder=world.holder)


def _old_topics(world: World, setting: Setting) -> Moves:
    if world.old_topic is None:
        if setting.old_topics:
            yield "a broker's topics get old", world._replace(old_topic=world.topic)
        return
    if world.topic == world.old_topic or setting.rules.gone_as_most_say:
        return
    seen = world._replace(topic=world.old_topic)
    for index, driver in enumerate(world.drivers):
        written = driver.decision.participants if driver.decision else world.tokens
        is_there = not any(commit_model.is_gone(world, one) for one in written)
        if driver.step in _TOKENS and is_there:
            for label, after in driver.step(seen, index, setting):
                now = after._replace(topic=world.topic)
                yield f"driver {index}, by old topics: {label}", now


def _reads_ledger(world: World, index: int, cut: Cut, setting: Setting) -> Moves:
    """A step that reads the ledger, by the answer of the leader that is cut off."""
    driver = world.drivers[index]
    now = (world.generation, world.decisions)
    if driver.step not in _LEDGER or now == (cut.generation, cut.decisions):
        return
    if driver.generation > cut.generation:
        return  # one's own generation is not in it: it is asked for again
    if setting.rules.own_append_is_read and driver.wrote not in (None, *cut.decisions):
        return
    if driver.step is commit_model.abort_read and driver.mine is None:
        return  # it fences nobody: the same read had shown a newer generation
    seen = world._replace(generation=cut.generation, decisions=cut.decisions)
    seen = driver_of(seen, index, behind=True)
    for label, after in driver.step(seen, index, setting):
        yield f"driver {index}, by an old end: {label}", _as_it_is(world, seen, after)


def _as_it_is(world: World, seen: World, after: World) -> World:
    """What a step did that saw `seen`, done to `world`."""
    new = [known for known in after.decisions if known not in seen.decisions]
    generation = max(world.generation, after.generation)
    after = after._replace(decisions=world.decisions, generation=generation)
    for decision in new:
        after = commit_model.append(after, decision)
    return after


def _reads_tokens(world: World, index: int, cut: Cut, setting: Setting) -> Moves:
    """A step that reads tokens: no more of them than stood there, once none was open."""
    driver = world.drivers[index]
    if driver.step not in _TOKENS or cut.tokens == world.tokens or cut.waiting:
        return
    if not _may_be_all(driver, cut, setting):
        return
    for label, after in driver.step(world._replace(tokens=cut.tokens), index, setting):
        yield f"driver {index}, by old tokens: {label}", after._replace(tokens=world.tokens)


def _may_be_all(driver: Driver, cut: Cut, setting: Setting) -> bool:
    """Whether nothing tells that tokens are not there yet."""
    if driver.step is one_phase_model.s1_read_tokens:
        barrier = cut.generation >= driver.generation
        return barrier or not setting.rules.barrier_before_tokens
    # One that was aborted before the cut stood there, too: then both answers are the same.
    there = all(
        any(token.answers(part, required(driver.decision).batch) for token in cut.tokens)
        for part in required(driver.decision).participants
    )
    return there or not setting.rules.tokens_known_to_reach


CUT = Setting(cuts=1, splits=("ab",))
