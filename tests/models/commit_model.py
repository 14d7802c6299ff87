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
WritePlan. Not modelled: compaction, several sinks.

Each subject has a file of its own, whose steps a `Setting` puts in: model_tasks.py (attempts,
topics), model_sweep.py (what is committed can be read; abort), model_fences.py (who may fence),
model_checkpoint.py (offsets, a checkpoint that goes back), model_stale.py (answers of a leader that
is cut off), model_markers.py (transactions that end without their marker), model_passes.py
(batches that are not written), model_tokens.py (tokens that are lost), one_phase_model.py.

Each rule of the protocol can be switched off (`Rules`); the tests show what then goes wrong. Of the
newer rules, switched off, the shortest trace ends in:

| rule | what is seen without it |
|---|---|
| look_before_fence, look_before_each_fence | a driver that is refused fences the one that works |
| identity_proven | another driver's decided transaction is aborted, as one's own |
| sweep_before_done, sweep_lists_again | what a killed task had begun holds up a committed batch |
| sweep_of_skipped | the same, of a batch that S1 finished and its replay skips |
| sweep_looks_after_listing, abort_spares_newer | a newer driver's decided transaction is aborted |
| second_look | a copy that begins after the sweep holds up a committed batch |
| next_slot_if_open | an attempt aborts another that is prepared and reported |
| topic_id_in_token | a replay takes rows for committed that went with their topic |
| topic_id_at_first_row | DONE, and rows went with a topic that was made again |
| abort_ends_unreported | a stopped query's tasks are dead, and a transaction is open |
| identity_checked | batch N is skipped though it holds other records: lost |
| offsets_as_planned | a decision names offsets whose rows it has not: lost |
| visible_is_left_out | a replay with the same rows in other tasks repeats them |
| forgotten_is_refused | a batch that was trimmed, or read before a repartition, is written again |
| begins_where_ended | an older checkpoint's next batch reads what is written: repeated |
| torn_batch_first | beside a batch that is partly committed another writes its rows: repeated |
| lost_is_written_first | a function passes over a batch that was decided and is lost |
| append_where_read_ended | a decision is not seen: its transactions are aborted |
| tokens_known_to_reach, barrier_before_tokens | committed rows are taken for lost, and repeated |
| gone_as_most_say | committed rows are taken for gone with their topic, and repeated |
| end_of_rows_is_true | a part of a task's rows is committed: no way leads to the end |
| newer_barrier_stops | a task commits behind a newer driver that has read the tokens: repeated |
| markers_before_done | DONE, and committed rows are hidden for ever |
| markers_of_skipped | the sweep of a skipped batch leaves it hidden |
| markers_before_ids | no task may take its id: no way leads to the end |
| hung_id_is_given_up | a commit shows aborted rows: repeated; an abort takes committed ones: lost |
| tokens_begin_where_asked, ended_has_its_token | tokens are lost, and with them rows repeated |
| kafka_tells_of_each | what Kafka has forgotten is taken for aborted: repeated |
| ledger_tells (in the code: a person) | how a transaction ended is forgotten: no way to the end |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from eo_kafka.core.transaction import (
    Decision,
    DecisionState,
    Identity,
    IllegalMove,
    Participant,
    Token,
    without_token,
)
from eo_kafka.errors import BatchMismatch, LedgerError
from eo_kafka.sinks.batches.batch_checks import check_torn
from eo_kafka.sinks.batches.committable import Torn, WritePlan
from eo_kafka.sinks.batches.replay import Content, Replay, compare
from eo_kafka.state.ledger.ledger import with_state

JOB: Any = SimpleNamespace(job="job", may_pass_batches=False)  # what refusals look at
ROWS = ("a", "b")
# How a batch's rows may lie in the two partitions; the last one as if tasks had been coalesced.
SPLITS = {"ab": (("a",), ("b",)), "ba": (("b",), ("a",)), "all-in-0": (("a", "b"), ())}
DELETED = "deleted"
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
    visible_is_left_out: bool = True
    rounds: bool = True
    void: bool = True
    done_needs_tokens: bool = True
    abort_reads_ledger: bool = True
    abort_by_epoch: bool = True
    commit_by_epoch: bool = True
    # of commit=idempotent (one_phase_model.py)
    newer_barrier_stops: bool = True
    waits_for_open_tokens: bool = True
    looks_for_earlier_attempt: bool = True
    nobody_came_between: bool = True
    torn_must_be_equal: bool = True
    end_of_rows_is_true: bool = True  # not that of a JVM that has let go of its worker
    topic_id_in_token: bool = True
    # of who may take the coordinator's id (model_fences.py)
    look_before_fence: bool = True
    look_before_each_fence: bool = True  # not only before a call's first
    identity_proven: bool = True
    # of tasks that die, and what they leave open (model_tasks.py, model_sweep.py)
    second_look: bool = True
    next_slot_if_open: bool = True
    topic_id_at_first_row: bool = True
    sweep_before_done: bool = True
    sweep_of_skipped: bool = True  # also where a batch is skipped as a whole
    sweep_looks_after_listing: bool = True
    sweep_lists_again: bool = True  # a listing that failed is not "none"
    abort_ends_unreported: bool = True
    abort_spares_newer: bool = True
    # of the checkpoint that goes back (model_checkpoint.py)
    identity_checked: bool = True
    offsets_as_planned: bool = True  # a decision has those of its rows, not those on disk by now
    forgotten_is_refused: bool = True
    begins_where_ended: bool = True
    torn_batch_first: bool = True  # of commit=idempotent
    lost_is_written_first: bool = True  # of a function that need not write each (model_passes.py)
    # of a leader that is cut off (model_stale.py)
    append_where_read_ended: bool = True
    own_append_is_read: bool = True
    tokens_known_to_reach: bool = True
    barrier_before_tokens: bool = True
    gone_as_most_say: bool = True
    # of transactions that Kafka ended without their marker (model_markers.py)
    markers_before_done: bool = True
    markers_of_skipped: bool = True  # also where a batch is skipped as a whole
    markers_before_ids: bool = True
    marker_look_lists_again: bool = True  # who is in no list is not another's
    hung_id_is_given_up: bool = True  # a task looks once it has taken its id
    ledger_tells: bool = True  # how a transaction ended, if its id was taken again since
    # of tokens that are lost (model_tokens.py)
    tokens_begin_where_asked: bool = True
    ended_has_its_token: bool = True
    kafka_tells_of_each: bool = True


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
    repair_step: TaskStep | None = None
    find_torn: Step | None = None
    # what a subject adds: each in the file that its step comes from
    start_step: Step | None = None  # a batch begins
    after_fence: Step | None = None  # the fence's identity is asked by a request of its own
    looks: bool = False  # steps of their own before a fence
    before_end: Step | None = None  # between a decision and S7, or the end of a skipped batch
    lost_answers: bool = False  # of S1's DONE
    crash_loops: bool = False  # a driver of another query starts again and again
    attempt_slots: int = 0  # 0: each attempt has an id of its own
    task_deaths: int = 0
    early_ends: int = 0  # of a task's rows: the JVM's half of it fails, and Python's goes on
    recreations: int = 0  # of the output topic
    stop_step: Step | None = None  # query.stop()
    one_by_one: bool = False  # a driver starts when those before it are gone; their tasks may live
    records: int = 0  # that the input will hold; 0: each batch has the same two rows
    rollbacks: int = 0  # of the checkpoint
    known_source: bool = True  # its offsets say which records they are
    repartitions: int = 0  # of the state, offline: each takes a batch's number
    passes: int = 0  # batches that a function of foreachBatch does not write
    orphans: bool = False  # whether what a task killed within its second look leaves is a fault
    kept: int = 0  # batches that the ledger keeps; 0: all
    cuts: int = 0  # of the ledger's leader from the other brokers
    old_coordinators: int = 0  # cuts of the broker that coordinates the coordinator's id
    old_topics: int = 0  # cuts of a broker that is asked for topics
    lost_markers: int = 0  # so often a transaction ends without its marker on the output
    on_tokens: bool = False  # or rather on the ledger's partition of tokens
    loses_tokens: str = ""  # how the ledger's partition of tokens loses some, once
    before_plan: Step | None = None  # when S1 has aborted what was open
    after_end: Step | None = None  # when a batch's transactions are ended


class Txn(NamedTuple):
    """What the coordinator of an id knows of it; `token` and `rows` are of an open transaction."""

    epoch: int = 0
    token: Token | None = None
    rows: tuple[str, ...] = ()
    begun: bool = False  # a row was sent, and no token yet
    generation: int = 0  # of the task, which the protocol can't see
    late: bool = False  # begun after the coordinator's next fence
    orphan: bool = False  # late, and its task was killed before it looked again
    topic: int = 0  # which output topic of that name the rows went to
    hides: int = 0  # the first generation that may have rows behind its own

    @property
    def is_open(self) -> bool:
        return self.begun or self.token is not None


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
    slot: int = -1  # of its id, if it chose one
    topic: int = -1  # the id of the output topic, as it was before the first row
    is_cut_off: bool = False  # from the JVM: its rows end early, and nobody hears its report
    barrier: int = 0  # one-phase: the newest generation whose barrier stands before its token


class Driver(NamedTuple):
    step: Step
    batch: int = -1
    generation: int = 0
    fence: Holder | None = None  # who the coordinator's holder was when we asked after our fence
    mine: Holder | None = None  # our fence: what our appends stand under
    view: tuple[Decision, ...] | None = ()  # the ledger as S1 read it; None: it settled some since
    lost: Torn | None = None
    found: tuple[Identity, ...] = ()  # open transactions listed, or those still to be ended
    decision: Decision | None = None
    plan: Plan | None = None
    reports: tuple[Report, ...] = ()
    then: Step | None = None  # what comes after the steps of a subject
    looked: bool = False  # right before this fence, and found nothing against it
    owner: str = "right"
    swept: tuple[Identity, ...] = ()
    stopped: bool = False
    offsets: tuple[int, int] | None = None  # of the batch, as it was planned
    detached: bool = (
        False  # from the checkpoint: that went back, and this driver has the other copy
    )
    behind: bool = False  # it has read the ledger by an old end, since its fence
    wrote: Decision | None = None  # what its S1 settled last


class Cut(NamedTuple):
    """What the leader of the ledger had when it was cut off."""

    generation: int
    decisions: tuple[Decision, ...]
    tokens: tuple[Token, ...]
    waiting: tuple[Token, ...]  # those of transactions that were open


class Hung(NamedTuple):
    """What a transaction left open on a partition, which ended there without its marker."""

    name: str
    epoch: int
    committed: bool
    rows: tuple[tuple[int, str], ...] = ()  # on the output
    token: Token | None = None  # on the ledger
    hides: int = 0  # as in its Txn
    known: bool = True  # the coordinator can still tell how it ended


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
    # Prepared transactions that were ended from outside: by a timeout, or by a task that was
    # overtaken between its look and its InitProducerId.
    ended: tuple[Identity, ...] = ()
    owner: str = ""  # of the ledger
    deaths: int = 0  # of tasks
    early_ends: int = 0
    topic: int = 0  # how often the output topic was made again
    deleted: tuple[tuple[int, str], ...] = ()  # rows that were visible, and went with their topic
    readable: int = -1  # the newest generation in Spark's commit log, where that matters
    stopped: tuple[int, ...] = ()  # generations whose abort() has returned
    input: int = 0  # records so far
    offsets: tuple[tuple[int, int], ...] = ()  # Spark's offset log, where it matters
    rollbacks: int = 0
    repartitions: int = 0
    passes: int = 0
    refused: int = -1  # the batch that the sink refused to skip
    cut: Cut | None = None
    old_holder: Holder | None = None  # of the coordinator's id, as a broker says that is cut off
    old_topic: int | None = None  # the output topic, as one says
    hung: tuple[Hung, ...] = ()
    lost_markers: int = 0
    lost_tokens: tuple[Token, ...] = ()
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
    return txn.is_open and txn.epoch == identity.epoch


def end_txn(world: World, identity: Identity, *, commit: bool, exact: bool) -> World:
    """EndTxn v5: ends the transaction of this epoch only, and raises the epoch."""
    txn = txn_of(world, identity.transactional_id)
    if not txn.is_open or (exact and txn.epoch != identity.epoch):
        return world
    if commit and txn.token is not None:
        # A record of the input has its name in every batch.
        batch = -1 if world.input else txn.token.batch
        rows = tuple((batch, row) for row in txn.rows if txn.topic == world.topic)
        world = world._replace(
            visible=tuple(sorted(world.visible + rows)),
            tokens=tuple(sorted({*world.tokens, txn.token}, key=token_order)),
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
    drivers[index] = Driver(step=gone, owner=drivers[index].owner)
    return world._replace(drivers=tuple(drivers))


def fence(world: World, index: int, setting: Setting, why: str, step: Step) -> World:
    """InitProducerId for the coordinator: what is on its way from others will not land."""
    driver = world.drivers[index]
    if setting.looks and not driver.looked and is_refused(world, index):
        world = world._replace(fault="a driver that is refused has fenced the one that works")
    holder = (index, driver.batch, why)
    world = world._replace(holder=holder, on_its_way=None)
    if setting.after_fence is not None:
        apart = {"fence": None, "then": step, "step": setting.after_fence}
        return driver_of(world, index, mine=holder, behind=False, looked=False, **apart)
    return driver_of(world, index, mine=holder, fence=holder, behind=False, looked=False, step=step)


def is_refused(world: World, index: int) -> bool:
    """Whether the ledger says that this driver may not write."""
    driver = world.drivers[index]
    foreign = world.owner not in ("", driver.owner)
    return foreign or bool(driver.generation and newer(world, index))


def must_look(world: World, index: int, setting: Setting, *, again: bool = False) -> bool:
    rules = setting.rules
    wanted = rules.look_before_fence and (rules.look_before_each_fence or not again)
    return setting.looks and wanted and not world.drivers[index].looked


def may_append(world: World, index: int, setting: Setting) -> bool:
    """What decides whether an append lands: nobody has fenced since we did, and it comes right
    after what was read."""
    driver = world.drivers[index]
    read_all = not (driver.behind and setting.rules.append_where_read_ended)
    return world.holder is not None and world.holder == driver.mine and read_all


def holds(world: World, index: int) -> bool:
    """What a look at the coordinator says: it is as it was when we asked after our fence."""
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
    if not must_look(world, index, setting):
        yield "S1 fence", fence(world, index, setting, "S1", s1_generation)
    elif is_refused(world, index):
        yield "S1 looks and is refused", die(world, index)
    else:
        yield "S1 looks", driver_of(world, index, looked=True)


def s1_generation(world: World, index: int, setting: Setting) -> Moves:
    """Read to the end and write the next generation: one step, because the append only lands if
    nobody else has fenced since."""
    if world.owner not in ("", world.drivers[index].owner):
        yield "S1 is refused: another query's", die(world, index)
        return
    if not may_append(world, index, setting):
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
    if _hides_tokens(world, decision):
        return
    if tokens_are_lost(world, decision, setting):
        yield "S1 stops for lost tokens", die(world, index)
        return
    missing = _missing(world, decision, setting)
    partly = len(missing) < len(decision.participants) or not setting.rules.void
    if missing and partly:
        lost = Torn(decision, missing)
        yield (
            f"S1 finds {len(missing)} lost",
            driver_of(_lost(world, missing), index, lost=lost, decision=None, step=s1_list),
        )
        return
    state = DecisionState.VOID if missing else DecisionState.DONE
    settled = with_state(decision, state)
    # Written by us, and the answer was lost; or by another driver, meanwhile.
    landed = decision_of(world.decisions, decision.batch) == settled
    mine = driver.mine
    read_again = mine is None or mine[2] == "S1 again"
    if newer(world, index) and (read_again or may_append(world, index, setting)):
        yield "S1 sees a newer generation", die(world, index)
    elif landed and read_again and mine and not setting.rules.identity_proven:
        yield f"S1 sees {state.value}", driver_of(world, index, decision=None, step=s1_list)
    elif not may_append(world, index, setting):
        yield from _s1_fences_again(world, index, setting)
    else:
        world = append(_lost(world, missing), settled)
        done = {"decision": None, "wrote": settled, "step": s1_list}
        yield f"S1 writes {state.value}", driver_of(world, index, **done)
        if setting.lost_answers and not landed:
            yield f"S1 writes {state.value}, answer lost", driver_of(world, index, mine=None)


def _s1_fences_again(world: World, index: int, setting: Setting) -> Moves:
    if must_look(world, index, setting, again=True):
        yield "S1 looks again", driver_of(world, index, looked=True)
    else:
        yield "S1 fences again", fence(world, index, setting, "S1 again", s1_settle)


def s1_list(world: World, index: int, setting: Setting) -> Moves:
    """List the open transactions of the job; those of a lost batch have all ended."""
    found = tuple(Identity(name, 1, txn.epoch) for name, txn in world.txns if txn.is_open)
    may = s1_check if setting.rules.list_then_check else s1_abort
    after = {"step": may} if found else _after_aborts(setting)
    yield f"S1 lists {len(found)}", driver_of(world, index, found=found, **after)
    if found and setting.hidden:
        yield "S1's list misses all", driver_of(world, index, found=(), **_after_aborts(setting))


def _after_aborts(setting: Setting) -> dict[str, Step | None]:
    return (
        {"step": setting.find_torn} if setting.find_torn else looked(setting.before_plan, s1_plan)
    )


def looked(look: Step | None, then: Step) -> dict[str, Step | None]:
    """What comes next, behind a look for markers that lack, where there is one."""
    return {"then": then, "step": look} if look else {"step": then}


def s1_check(world: World, index: int, setting: Setting) -> Moves:
    found = world.drivers[index].found if holds(world, index) else ()
    after = {"step": s1_abort} if found else _after_aborts(setting)
    yield f"S1 may abort {len(found)}", driver_of(world, index, found=found, **after)


def s1_abort(world: World, index: int, setting: Setting) -> Moves:
    for identity in world.drivers[index].found:
        world = end_txn(world, identity, commit=False, exact=setting.rules.abort_by_epoch)
    yield "S1 aborts stragglers", driver_of(world, index, found=(), **_after_aborts(setting))


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
    if setting.rules.forgotten_is_refused and _is_forgotten(driver):
        yield "the ledger does not remember this batch", die(world, index)
        return
    if setting.rules.torn_batch_first and _is_beside_a_torn_one(plan, driver.batch):
        yield "another batch is partly committed", die(world, index)
        return
    by_tasks = setting.find_torn is not None and not repair
    if by_tasks and _begins_elsewhere(driver, plan.decisions, setting):
        yield "it begins where the newest one has not ended", die(world, index)
        return
    for split in setting.splits:
        reports: list[Report] = []
        tasks: list[Task] = []
        for partition, rows in enumerate(rows_of(driver, split)):
            digest, known = digest_of(rows), write_plan(plan)
            if repair:
                skips = required(plan.lost).shows(partition, len(rows), digest)
            else:
                skips = not (_is_forgotten(driver) or known.must_write(driver.batch, partition))
            if skips:
                reports.append(Report(partition, None, skipped=not repair, digest=digest))
            elif not rows:
                reports.append(Report(partition, None))
            else:
                attempts = setting.attempts if partition == 0 else 1
                step = (setting.repair_step if repair else setting.first_step) or s2_check
                tasks += [
                    Task(index, driver.batch, partition, attempt, rows, plan, step)
                    for attempt in range(attempts)
                ]
        launched = world._replace(tasks=tuple(sorted((*world.tasks, *tasks), key=_task_order)))
        yield (
            f"launches {split}: {len(tasks)} tasks",
            driver_of(launched, index, reports=tuple(reports), step=wait_for_tasks),
        )


def rows_of(driver: Driver, split: str) -> tuple[tuple[str, ...], ...]:
    """The rows of the batch, by partition. Where its offsets matter, its even records and its odd
    ones."""
    if driver.offsets is None:
        return SPLITS[split]
    parts = tuple(
        tuple(f"r{at}" for at in range(*driver.offsets) if at % 2 == rest) for rest in (0, 1)
    )
    return parts if split == "ab" else parts[::-1]


def _is_forgotten(driver: Driver) -> bool:
    """The code's own judgement."""
    try:
        write_plan(required(driver.plan)).must_write(driver.batch, 0)
    except LedgerError:
        return True
    return False


def _is_beside_a_torn_one(plan: Plan, batch: int) -> bool:
    """The code's own judgement."""
    try:
        check_torn(JOB, batch, plan.lost)
    except BatchMismatch:
        return True
    return False


def _begins_elsewhere(driver: Driver, known: Iterable[Decision], setting: Setting) -> bool:
    """Whether a batch that is not decided reads from another place than where the newest ended."""
    before = [one for one in known if one.batch < driver.batch]
    if not setting.rules.begins_where_ended or driver.offsets is None or not before:
        return False
    newest = max(before, key=lambda one: one.batch)
    return bool(newest.offsets) and newest.offsets[0].partition("-")[2] != str(driver.offsets[0])


def _follows_a_lost_one(driver: Driver, known: Iterable[Decision], rules: Rules) -> bool:
    """Whether the newest batch before it was decided, and is not known to be committed."""
    before = [one for one in known if one.batch < driver.batch]
    if not rules.lost_is_written_first or not before:
        return False
    return max(before, key=lambda one: one.batch).state is not DecisionState.DONE


def wait_for_tasks(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    if len(driver.reports) < len(SPLITS["ab"]):
        return
    if not all(report.skipped for report in driver.reports):
        yield "commit()", driver_of(world, index, step=s6_fence)
    elif is_another_batch(driver, setting):
        yield "is another batch than the one that is DONE", refuse(world, index)
    elif setting.before_end is not None and setting.rules.sweep_of_skipped:
        then = {"then": write_commit_log, "step": setting.before_end}
        yield "all skipped", driver_of(world, index, **then)
    else:
        yield "all skipped", driver_of(world, index, step=write_commit_log)


def is_another_batch(driver: Driver, setting: Setting) -> bool:
    """Whether what is to be skipped is not the batch of that number in the ledger. Equal offsets
    excuse rows that differ; where offsets say nothing, the rows must be the same."""
    if driver.offsets is None or not setting.rules.identity_checked:
        return False
    known = required(decision_of(required(driver.plan).decisions, driver.batch))
    if setting.known_source:
        return known.offsets != offsets_of(driver.offsets)
    digests = (
        report.prepared.digest if report.prepared else report.digest for report in driver.reports
    )
    return _merged(digests) != _merged(part.digest for part in known.participants)


def _merged(digests: Iterable[str]) -> list[str]:
    return sorted(row for digest in digests for row in digest.split())


def offsets_of(offsets: tuple[int, int]) -> tuple[str, ...]:
    """As a decision records them."""
    return (f"{offsets[0]}-{offsets[1]}",)


def refuse(world: World, index: int) -> World:
    """The query stops, and a person must say how to go on."""
    return die(world._replace(refused=world.drivers[index].batch), index)


def s6_fence(world: World, index: int, setting: Setting) -> Moves:
    again = world.drivers[index].mine is not None and world.drivers[index].mine[2] == "S6"
    yield from _look_and_fence(world, index, setting, "S6", s6_check, again=again)


def _look_and_fence(
    world: World, index: int, setting: Setting, why: str, step: Step, *, again: bool
) -> Moves:
    """A fence, and before it, where one is due, a look whether a newer driver would be hit."""
    if not must_look(world, index, setting, again=again):
        yield f"{why} fence", fence(world, index, setting, why, step)
    elif is_refused(world, index):
        yield f"{why} looks and is refused", fail(world, index, setting)
    else:
        yield f"{why} looks", driver_of(world, index, looked=True)


def s6_check(world: World, index: int, setting: Setting) -> Moves:
    """May it be decided? All that is looked at stays true while the fence holds."""
    driver, rules = world.drivers[index], setting.rules
    previous = decision_of(world.decisions, driver.batch)
    decision = _proposal(world, driver, rules)
    if rules.s6_checks_generation and newer(world, index):
        yield "S6 sees a newer generation", fail(world, index, setting)
    elif previous and (previous.round, previous.generation) == (
        decision.round,
        decision.generation,
    ):
        yield from _s6_landed(world, index, setting, previous)
    elif previous is None and _begins_elsewhere(driver, world.decisions, setting):
        yield "it begins where the newest one has not ended", fail(world, index, setting)
    elif previous is None and _follows_a_lost_one(driver, world.decisions, rules):
        yield "a batch before it is lost", fail(world, index, setting)
    elif not _follows(decision, previous):
        yield "S6 may not follow", fail(world, index, setting)
    elif _unequal(driver, rules):
        for identity in _prepared(driver):
            world = end_txn(world, identity, commit=False, exact=True)
        rows = (*world.visible, *world.deleted)
        if not any(batch in (driver.batch, -1) for batch, _ in rows):
            world = world._replace(fault="asked for repair where nothing was committed")
        yield "S6 asks for repair", die(world, index)
    elif not all(_is_open(world, x) for x in _prepared(driver)) or any(
        is_gone(world, participant) for participant in decision.participants
    ):
        yield "S6 undecided", fail(world, index, setting)
    else:
        # Nobody ends a transaction behind this decision: it is DONE at once.
        look = setting.after_end if decision.state is DecisionState.DONE else None
        after = looked(look, s6_decide)
        yield "S6 may decide", driver_of(world, index, decision=decision, **after)


def _s6_landed(world: World, index: int, setting: Setting, decision: Decision) -> Moves:
    """An earlier attempt, whose answer was lost. Nothing was appended under this fence: so nothing
    shows that the identity asked for after it is ours."""
    if (
        setting.after_fence
        and setting.rules.identity_proven
        and not may_append(world, index, setting)
    ):
        yield "S6 was fenced, again", driver_of(world, index, step=s6_fence)
    else:
        yield "S6 has landed", _decided(world, index, decision, setting)


def is_gone(world: World, written: Participant | Token) -> bool:
    """Whether the topic that the rows went to is not the one of that name any more."""
    return bool(written.topics) and written.topics != topics_of(world.topic)


def topics_of(topic: int) -> tuple[tuple[str, str], ...]:
    return (("out", str(topic)),)


def _proposal(world: World, driver: Driver, rules: Rules) -> Decision:
    plan = required(driver.plan)
    visible = _replay(driver).visible if rules.visible_is_left_out else ()
    participants = [
        report.prepared
        for report in driver.reports
        if report.prepared and report.partition not in visible
    ]
    if plan.lost and plan.lost.decision.batch == driver.batch:
        participants += plan.lost.committed
    waits = any(part.identity in _prepared(driver) for part in participants)
    offsets = driver.offsets
    if offsets and not rules.offsets_as_planned and driver.batch < len(world.offsets):
        offsets = world.offsets[driver.batch]
    return Decision(
        sink="main",
        batch=driver.batch,
        round=write_plan(plan).round_of(driver.batch) if rules.rounds else 0,
        state=DecisionState.DECIDED if waits else DecisionState.DONE,
        generation=driver.generation,
        end_txn_version=5,
        token_partition=1,
        token_from=0,
        participants=tuple(sorted(participants, key=lambda part: part.partition)),
        offsets=offsets_of(offsets) if offsets else (),
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
    return needed and bool(_replay(driver).unequal)


def _replay(driver: Driver) -> Replay:
    """The code's own judgement."""
    torn = required(driver.plan).lost
    if torn is None or torn.decision.batch != driver.batch:
        return Replay(frozenset(), ())
    digests = {
        report.partition: report.prepared.digest if report.prepared else report.digest
        for report in driver.reports
    }
    return compare(torn, [Content(p, len(d.split()), d) for p, d in digests.items()])


def _prepared(driver: Driver) -> tuple[Identity, ...]:
    """The transactions that wait for the decision."""
    return tuple(x.prepared.identity for x in driver.reports if x.prepared and not x.committed)


def _decided(world: World, index: int, decision: Decision, setting: Setting) -> World:
    """The decision is in the ledger: on to S7, or to the end if nobody waits for it."""
    if decision.state is DecisionState.DONE:
        world, then = driver_of(world, index, decision=None), write_commit_log
    else:
        world, then = driver_of(world, index, decision=decision, found=_own(decision)), s7_end
    if setting.before_end is None or not setting.rules.sweep_before_done:
        return driver_of(world, index, step=then)
    return driver_of(world, index, then=then, step=setting.before_end)


def s6_decide(world: World, index: int, setting: Setting) -> Moves:
    if not may_append(world, index, setting):
        yield "S6 was fenced, again", driver_of(world, index, decision=None, step=s6_fence)
        return
    decision = required(world.drivers[index].decision)
    landed = append(world, decision)
    yield f"S6 DECIDED round {decision.round}", _decided(landed, index, decision, setting)
    yield "S6 DECIDED, answer lost", driver_of(landed, index, decision=None, step=s6_fence)


def s7_end(world: World, index: int, setting: Setting) -> Moves:
    """One EndTxn after another, in any order. Of a batch, or in S1 of an earlier driver's."""
    driver = world.drivers[index]
    if not driver.found:
        then = s1_settle if driver.plan is None else s7_tokens
        yield "S7 all ended", driver_of(world, index, **looked(setting.after_end, then))
    for identity in driver.found:
        left = tuple(other for other in driver.found if other != identity)
        ended = end_txn(world, identity, commit=True, exact=setting.rules.commit_by_epoch)
        yield f"S7 commits {identity.transactional_id}", driver_of(ended, index, found=left)


def s7_tokens(world: World, index: int, setting: Setting) -> Moves:
    decision = required(world.drivers[index].decision)
    if _hides_tokens(world, decision):
        return
    missing = _missing(world, decision, setting)
    if tokens_are_lost(world, decision, setting):
        yield "S7 stops for lost tokens", fail(world, index, setting)
    elif missing:
        yield f"S7 finds {len(missing)} lost", fail(_lost(world, missing), index, setting)
    else:
        yield "S7 sees all tokens", driver_of(world, index, step=s8_done)


def s8_done(world: World, index: int, setting: Setting) -> Moves:
    if not may_append(world, index, setting):
        yield from _look_and_fence(world, index, setting, "S8", s8_done, again=True)
    elif newer(world, index):
        yield "S8 sees a newer generation", fail(world, index, setting)
    else:
        decision = required(world.drivers[index].decision)
        done = world
        if decision.state is not DecisionState.DONE:
            done = trim(append(world, with_state(decision, DecisionState.DONE)), setting)
        yield "S8 DONE", driver_of(done, index, decision=None, step=write_commit_log)


def trim(world: World, setting: Setting) -> World:
    """Tombstones for all batches but the newest."""
    return world._replace(decisions=world.decisions[-setting.kept :])


def write_commit_log(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    batch = driver.batch
    if driver.detached:
        yield "commit log of the other copy", die(world, index)
        return
    if setting.before_end is not None:
        world = world._replace(readable=max(world.readable, driver.generation))
    world = die(world._replace(commit_log=max(world.commit_log, batch)), index)
    yield f"commit log {batch}", driver_of(world, index, step=setting.start_step or start_batch)


# --- abort()


def fail(world: World, index: int, setting: Setting) -> World:
    """The query fails: Spark calls abort() with the reports it has, then the driver ends."""
    driver = world.drivers[index]
    if setting.stop_step is not None:
        return driver_of(world, index, stopped=True, step=setting.stop_step)
    reports = tuple(x for x in driver.reports if x.prepared and not x.committed)
    if not reports:
        return die(world, index)
    step = abort_fence if setting.rules.abort_reads_ledger else abort_end
    failed = Driver(step, driver.batch, driver.generation, reports=reports, owner=driver.owner)
    return driver_of(world, index, **failed._asdict())


def abort_fence(world: World, index: int, setting: Setting) -> Moves:
    """What is on its way from our own commit must not land later. A newer driver saw to that."""
    if not world.drivers[index].looked and newer(world, index):
        yield "abort sees a newer generation", driver_of(world, index, step=abort_read)
    elif must_look(world, index, setting):
        yield "abort looks", driver_of(world, index, looked=True)
    else:
        yield "abort fence", fence(world, index, setting, "abort", abort_read)


def abort_read(world: World, index: int, setting: Setting) -> Moves:
    driver = world.drivers[index]
    if driver.behind and driver.mine is not None and setting.rules.append_where_read_ended:
        yield "abort was behind, again", driver_of(world, index, step=abort_fence)
        return
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
    if setting.rules.check_before_init and overtaken and txn.is_open:
        world = ended_from_outside(world, name)
    opened = task._replace(epoch=txn.epoch + 1, step=s3_write)
    yield "S2 init", with_task(set_txn(world, name, Txn(txn.epoch + 1)), task, opened)


def s3_write(world: World, task: Task, setting: Setting) -> Moves:
    """S3, S4, S5 and the report: a crash between them looks like one before or after all."""
    if txn_of(world, id_of(task, setting)).epoch != task.epoch:
        yield "S3 is fenced", task_fails(world, task, setting)
    else:
        yield "S5 prepared", prepared(world, task, setting)


def prepared(
    world: World, task: Task, setting: Setting, topics: tuple[tuple[str, str], ...] = ()
) -> World:
    """The token is in the log, and the driver has the report if it still waits for one."""
    name = id_of(task, setting)
    round_ = write_plan(task.plan).round_of(task.batch) if setting.rules.rounds else 0
    digest = digest_of(task.rows)
    made = (task.partition, task.batch, round_, task.plan.generation, len(task.rows), digest)
    begun = txn_of(world, name)
    written = begun._replace(token=Token("main", *made), rows=task.rows, begun=False)
    world = set_txn(world, name, written)
    world = with_task(world, task, None)
    if is_waited_for(world, task):
        prepared = Participant(
            partition=task.partition,
            round=round_,
            generation=task.plan.generation,
            identity=Identity(name, 1, task.epoch),
            rows=len(task.rows),
            digest=digest,
            topics=topics,
        )
        reports = (*world.drivers[task.driver].reports, Report(task.partition, prepared))
        world = driver_of(world, task.driver, reports=tuple(sorted(reports)))
    return world


def digest_of(rows: tuple[str, ...]) -> str:
    return " ".join(rows)


def id_of(task: Task, setting: Setting) -> str:
    attempt = task.slot if task.slot >= 0 else task.attempt
    slot = attempt % setting.attempt_slots if setting.attempt_slots else attempt
    return f"p{task.partition}.g{task.plan.generation % setting.slots}.a{slot}"


def is_waited_for(world: World, task: Task) -> bool:
    driver = world.drivers[task.driver]
    return (
        driver.step is wait_for_tasks
        and not task.is_cut_off
        and driver.plan == task.plan
        and all(report.partition != task.partition for report in driver.reports)
    )


def task_fails(world: World, task: Task, setting: Setting) -> World:
    """Spark's tries are over when no other attempt of the partition is alive."""
    world = with_task(world, task, None)
    alive = any(
        (other.partition, other.driver, other.plan) == (task.partition, task.driver, task.plan)
        for other in world.tasks
        if not other.is_cut_off
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
    lost = {
        part
        for part in without_token(decision, list(world.tokens))
        if not (setting.rules.ended_has_its_token and _is_ended(world, part, decision.batch))
    }
    return tuple(part for part in decision.participants if part in lost or is_gone(world, part))


def _hides_tokens(world: World, decision: Decision) -> bool:
    """Tokens are read as far as the decision says that they reach, once nothing is open there."""
    written = [one.token for one in world.hung if one.token]
    return any(
        token.answers(part, decision.batch) for token in written for part in decision.participants
    )


def tokens_are_lost(world: World, decision: Decision, setting: Setting) -> bool:
    """Whether what has no token may be committed, and Kafka does not tell of all whether it is."""
    is_cut = bool(world.lost_tokens) and setting.loses_tokens == DELETED
    begins_later = is_cut and setting.rules.tokens_begin_where_asked
    ended = (part for part in decision.participants if _is_ended(world, part, decision.batch))
    if not (begins_later or (setting.rules.ended_has_its_token and any(ended))):
        return False
    missing = without_token(decision, list(world.tokens))
    is_known = all(_is_told(world, part) for part in missing)
    return setting.rules.kafka_tells_of_each and not is_known


def _is_told(world: World, part: Participant) -> bool:
    """Whether EndTxn or Describe says how it ended: until the id has been taken again."""
    txn = txn_of(world, part.identity.transactional_id)
    return txn.epoch == part.identity.epoch + 1 and not txn.is_open


def _is_ended(world: World, part: Participant, batch: int) -> bool:
    """Of one whose token is lost: whether Kafka says that it is committed."""
    is_committed = any(token.answers(part, batch) for token in world.lost_tokens)
    return is_committed and _is_told(world, part)


def ended_from_outside(world: World, name: str) -> World:
    """What is prepared under this id will be ended, and no rule of the protocol is to blame."""
    identity = Identity(name, 1, txn_of(world, name).epoch)
    return world._replace(ended=tuple(sorted({*world.ended, identity}, key=str)))


def _lost(world: World, missing: tuple[Participant, ...]) -> World:
    """Decided transactions are gone: only a timeout, a task that was overtaken, or whoever deleted
    the topic, may do that."""
    if all(part.identity in world.ended or is_gone(world, part) for part in missing):
        return world
    return world._replace(fault="a decided transaction was lost though nothing timed out")


def token_order(token: Token) -> tuple[object, ...]:
    return token.batch, token.partition, token.round, token.generation, token.topics


def _task_order(task: Task) -> tuple[int, int, int, int]:
    return task.driver, task.batch, task.partition, task.attempt
