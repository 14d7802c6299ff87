"""In the model of commit_model.py: Kafka ends a transaction, and leaves its marker out.

Some versions of Kafka do that on a partition that has no leader at the moment (KAFKA-20734), and
call the transaction complete. It then hangs on that partition (`Hung`): its rows, and all behind
them, are neither visible nor gone. The next transaction of the same id joins it, when it sends its
first row there, and both end alike. A client may write the marker instead, with the coordinator's
outcome; the partition refuses it once a newer epoch of the id stands there, and nobody can tell the
outcome from the coordinator once the id was taken again.

Any move that ends transactions may do so without a marker (`Setting.lost_markers` of them), on the
output or, with `on_tokens`, on the ledger's partition of tokens.

What keeps the promises:
- markers_before_done: when a batch's transactions are ended, and before its tokens are read, the
  driver looks what hangs of the job, and writes the markers. Also S1, where it rolls forward. With
  commit=idempotent before the decision, which is DONE at once.
- markers_of_skipped: so it does behind the sweep of a batch that is skipped: no S7 follows there.
- markers_before_ids: S1 looks, too; best behind its aborts, which may leave a marker out as well.
- marker_look_lists_again: such a look asks all coordinators whose an open transaction is. With
  `hidden`, a list may lack one that comes back or moves just then. So a list counts when each
  partition of their log was asked for, of a broker that has shown that it had loaded it; and who is
  in none is asked for again, now and in the next look: not taken for another program's for good.
- hung_id_is_given_up: no look of a driver sees what happens between it and a task's first row: a
  retry's InitProducerId, or a timeout, ends an attempt without its marker; S7 ends the participant
  whose id a copy or a zombie is about to take. A driver that looks later sees nothing but an open
  transaction. So a task looks when it has taken its id, and sends no row if something hangs under
  it. Nothing can come to hang there afterwards, but by another one who takes the id. In the code
  it writes the marker, where it knows how that one ended, for it has looked before, too.
- ledger_tells: what no decision names was not committed, and what one names was, if its token is
  visible. Where the token hangs, and with commit=idempotent, the driver must stop. In the code a
  person says it, and not the ledger, which forgets old batches: the query stops and names the
  command ('eo-kafka txn commit', or 'abort', '--topic').

Not promised: that readers of the output go on while no driver runs (a stopped query's abort() may
leave markers out, and so may a timeout).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from commit_model import (
    SPLITS,
    Hung,
    Move,
    Moves,
    Setting,
    Task,
    Txn,
    World,
    die,
    driver_of,
    fail,
    id_of,
    required,
    s1_generation,
    set_txn,
    task_fails,
    token_order,
    txn_of,
)

from eo_kafka.core.transaction import Identity

_INIT = ": S2 init"


def in_all_ways(world: World, moves: Iterable[Move], setting: Setting) -> Moves:
    """Each move that ends transactions, with their markers and without some of them."""
    for label, after in moves:
        ended = [name for name, txn in world.txns if txn.is_open and _has_ended(after, name, txn)]
        for lost in _some_of(ended, setting.lost_markers - world.lost_markers):
            left = _ended(world, after, ended, lost, setting)
            said = label + (f", no marker of {' '.join(lost)}" if lost else "")
            if label.endswith(_INIT):
                gives_up, left = _taken(world, left, setting)
                said += gives_up
            if setting.before_end is not None:
                left = _begun(world, left, setting)
            yield said, left


def _some_of(names: list[str], most: int) -> Iterator[tuple[str, ...]]:
    for size in range(min(len(names), most) + 1):
        yield from combinations(names, size)


def _has_ended(after: World, name: str, txn: Txn) -> bool:
    now = txn_of(after, name)
    return not now.is_open or now.epoch != txn.epoch


def _ended(
    world: World, after: World, ended: list[str], lost: tuple[str, ...], setting: Setting
) -> World:
    """`after`, as it is without the markers of `lost`. The other markers end what hangs, too."""
    committed = len(after.visible) > len(world.visible)
    for name in ended:
        txn = txn_of(world, name)
        joined = [one for one in after.hung if one.name == name and (txn.token or one.rows)]
        if name not in lost:
            after = settle(after, joined, commit=committed)
        elif setting.on_tokens and txn.token is None:
            continue  # it never was on that partition
        else:
            after = _without_marker(world, after, name, committed, setting)
    return after


def _without_marker(
    world: World, after: World, name: str, committed: bool, setting: Setting
) -> World:
    txn = txn_of(world, name)
    hung = Hung(name, txn.epoch, committed, hides=txn.hides)
    rows = [(txn.token.batch if txn.token else 0, row) for row in txn.rows]
    if setting.on_tokens:
        hung = hung._replace(token=txn.token)
        after = after._replace(tokens=world.tokens if committed else after.tokens)
    else:
        hung = hung._replace(rows=tuple(rows))
        after = after._replace(visible=_less(after.visible, rows if committed else []))
    return after._replace(
        hung=tuple(sorted((*after.hung, hung), key=str)), lost_markers=after.lost_markers + 1
    )


def _less(
    visible: tuple[tuple[int, str], ...], rows: list[tuple[int, str]]
) -> tuple[tuple[int, str], ...]:
    left = list(visible)
    for row in rows:
        left.remove(row)
    return tuple(left)


def settle(world: World, hung: Iterable[Hung], *, commit: bool) -> World:
    """A marker stands behind their rows: they are visible, or gone."""
    for one in hung:
        world = world._replace(hung=tuple(other for other in world.hung if other != one))
        if commit:
            tokens = {*world.tokens, *([one.token] if one.token else [])}
            world = world._replace(
                visible=tuple(sorted((*world.visible, *one.rows))),
                tokens=tuple(sorted(tokens, key=token_order)),
            )
        elif one.committed:
            world = world._replace(fault="committed rows are lost: a later abort took them along")
    return world


def _taken(world: World, after: World, setting: Setting) -> Move:
    """By an InitProducerId: nobody can tell any more how the id's last transaction ended."""
    name = next(name for name, txn in after.txns if txn.epoch != txn_of(world, name).epoch)
    hung = tuple(x._replace(known=False) if x.name == name else x for x in after.hung)
    after = after._replace(hung=hung)
    if setting.rules.hung_id_is_given_up and any(one.name == name for one in hung):
        epoch = txn_of(after, name).epoch
        task = next(x for x in after.tasks if _is_under(x, name, epoch, setting))
        return ", and gives it up", task_fails(after, task, setting)
    return "", after


def _is_under(task: Task, name: str, epoch: int, setting: Setting) -> bool:
    return task.epoch == epoch and id_of(task, setting) == name


def _begun(world: World, after: World, setting: Setting) -> World:
    """Notes of a transaction that has begun, whose rows may come behind its first one: not those of
    a batch whose tasks were done by then."""
    for name, txn in after.txns:
        if txn.is_open and not txn.hides:
            sent = [x.rows[:1] for x in after.tasks if _is_under(x, name, txn.epoch, setting)]
            hides = world.generation + _all_wrote(world)
            begun = txn._replace(hides=hides, rows=txn.rows or sent[0])
            after = set_txn(after, name, begun)
    return after


def _all_wrote(world: World) -> bool:
    """Whether nobody writes for the newest generation any more, but those who will give up."""
    index, _, why = required(world.holder)
    driver = world.drivers[index]
    planned = driver.step is not s1_generation and driver.generation == world.generation
    return not (planned and why.startswith("S1") and len(driver.reports) < len(SPLITS["ab"]))


# --- what a driver does


def look_before_plan(world: World, index: int, setting: Setting) -> Moves:
    if setting.rules.markers_before_ids:
        yield from _look(world, index, setting)
    else:
        yield "S1 does not look", _goes_on(world, index)


def look_after_end(world: World, index: int, setting: Setting) -> Moves:
    if setting.rules.markers_before_done:
        yield from _look(world, index, setting)
    else:
        yield "S7 does not look", _goes_on(world, index)


def _look(world: World, index: int, setting: Setting) -> Moves:
    """Which transactions are open on a partition, and complete for their coordinator?"""
    found = [one for one in world.hung if not txn_of(world, one.name).is_open]
    if found and setting.hidden and not setting.rules.marker_look_lists_again:
        yield "no coordinator tells whose it is", _goes_on(world, index)
    if not found:
        yield "no marker lacks", _goes_on(world, index)
    elif not all(one.known or _ledger_tells(world, one, setting) for one in found):
        yield "nobody knows which marker lacks", _stops(world, index, setting)
    else:
        ids = tuple(Identity(one.name, 1, one.epoch) for one in found)
        yield f"{len(ids)} markers lack", driver_of(world, index, found=ids, step=write_markers)


def _ledger_tells(world: World, hung: Hung, setting: Setting) -> bool:
    """What no decision names was not committed; what one names was, if its token is there. Tasks
    that commit by themselves ask nobody."""
    if not setting.rules.ledger_tells or setting.find_torn is not None:
        return False
    identity = Identity(hung.name, 1, hung.epoch)
    named = [
        any(token.answers(part, known.batch) for token in world.tokens)
        for known in world.decisions
        for part in known.participants
        if part.identity == identity
    ]
    if named and hung.token:
        return False
    if hung.committed != any(named):
        raise ValueError("the model is wrong: the ledger does not tell it")
    return True


def _goes_on(world: World, index: int) -> World:
    return driver_of(world, index, found=(), then=None, step=required(world.drivers[index].then))


def _stops(world: World, index: int, setting: Setting) -> World:
    is_s1 = world.drivers[index].plan is None
    return die(world, index) if is_s1 else fail(world, index, setting)


def write_markers(world: World, index: int, setting: Setting) -> Moves:
    """Each with the outcome that the coordinator told. It is refused if the id has a newer epoch on
    the partition."""
    for identity in world.drivers[index].found:
        name = identity.transactional_id
        hung = [x for x in world.hung if (x.name, x.epoch) == (name, identity.epoch)]
        if hung and txn_of(world, name).is_open:
            yield "a marker is refused", _stops(world, index, setting)
            return
        for one in hung:
            world = settle(world, [one], commit=one.committed)
    yield "markers are written", _goes_on(world, index)


def hides(world: World) -> str:
    """From Spark's commit log on, the output is readable."""
    for one in world.hung:
        if 0 < one.hides <= world.readable:
            return f"a batch is committed and not readable: a marker of {one.name} lacks"
    return ""


MARKERS = Setting(
    lost_markers=1, before_plan=look_before_plan, after_end=look_after_end, splits=("all-in-0",)
)
