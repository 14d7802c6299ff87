"""Asks all brokers of the cluster, and lists transactions as all of their coordinators know them.

kafka-python knows the brokers by a list that it renews after five minutes, and when a request got
no answer: that is while a broker is away, and not when it is back. So each broker that is asked
also tells who is there. Private parts of kafka-python that this uses: see control_requests.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import product
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from .transactional_id import log_partition

T = TypeVar("T")

LOG = "__transaction_state"
STEM = "eo-kafka."
_PRINTABLE = [chr(code) for code in range(33, 127)]
_NOT_FOUND, _MAY_NOT_ASK = 105, 53  # answers to DescribeTransactions
# Of each client: which broker has loaded each partition of the log, under which leader epoch, by
# what it was asked for: who may not Describe that gets no answer to it.
_loaded: WeakKeyDictionary[Any, dict[str, dict[int, tuple[int, int]]]] = WeakKeyDictionary()


async def ask_each(
    admin: Any, ask: Callable[[Any], Awaitable[tuple[T, Iterable[Mapping[str, Any]]]]]
) -> dict[Any, T]:
    """By broker what `ask` found of it. It also gives the brokers that this one names: who has not
    been asked is asked then."""
    from kafka.protocol.metadata import MetadataResponse

    manager, found = admin._manager, dict[Any, T]()
    nodes: Collection[Any] = {one.node_id for one in manager.cluster.brokers()}
    while nodes:
        asked, there = {node: manager.call_soon(ask, node) for node in nodes}, dict[Any, Any]()
        for node, answer in asked.items():
            found[node], named = await answer
            there |= {one["node_id"]: one for one in named}
        nodes = there.keys() - found.keys()
        for node in nodes:
            where = [there[node][what] for what in ("node_id", "host", "port", "rack")]
            broker = MetadataResponse.MetadataResponseBroker(*where)
            manager.cluster._coordinator_brokers[node] = broker
            manager.cluster.request_update()  # for all other requests
    return found


async def list_transactions(
    admin: Any,
    states: Collection[str] = (),
    pattern: str | None = None,
    stem: str = STEM,
    producers: Collection[int] = (),
    may_lack: bool = False,
) -> list[Any]:
    """Those in one of the states, that match the pattern, and of these producers; of each, by
    default all.

    A coordinator lists what it has loaded, and leaves out without a word what it is about to load,
    or has just handed over. So each broker tells behind its list which partitions of the
    transaction log it leads, under which epoch: together they must lead all. And each must have
    shown before, once for an epoch, that it had loaded them. In Kafka a broker knows that it leads
    no more before it gives up what it has loaded.

    Who may not Describe that topic does without all this. `may_lack`: the caller says where a
    partition without a leader makes the list incomplete. `stem`: how ids begin that the principal
    may Describe; without that right, that a broker leads twice must do.
    """
    from kafka import errors
    from kafka.protocol.metadata import MetadataRequest

    manager = admin._manager

    async def ask(node: Any) -> tuple[tuple[list[Any], Any], Iterable[Mapping[str, Any]]]:
        topics = [MetadataRequest.MetadataRequestTopic(name=LOG)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        # A broker answers a connection in the order of the questions
        listed = manager.call_soon(
            admin._async_list_transactions, [node], producers, states, None, pattern
        )
        seen = manager.call_soon(manager.send, request, node)
        rows, told = (await listed)[node], (await seen).to_dict()
        return (rows, [one for x in told["topics"] for one in x["partitions"]]), told["brokers"]

    answers = await ask_each(admin, ask)
    places, led = set[int](), dict[int, tuple[int, int]]()
    for node, (_, partitions) in answers.items():
        for one in partitions:
            number, claim = one["partition_index"], (one["leader_epoch"], node)
            if one["leader_id"] >= 0 or not may_lack:
                places.add(number)
            if one["leader_id"] == node:
                led[number] = max(claim, led.get(number, claim))
    if away := sorted(places - led.keys()):
        raise errors.CoordinatorNotAvailableError(
            f"no broker leads partition {away[0]} of {LOG} ({len(away)} such)"
        )
    loaded = _loaded.setdefault(admin, {}).setdefault(stem, {})
    new = {number: claim for number, claim in led.items() if loaded.get(number) != claim}
    if new:
        size = max(len(partitions) for _, partitions in answers.values())
        await _have_loaded(manager, _unused_ids(stem, size, new.keys()), new)
        loaded |= new
        raise errors.NotCoordinatorError("the coordinators have moved: they are asked again")
    return [row for rows, _ in answers.values() for row in rows]


async def _have_loaded(
    manager: Any, ids: Mapping[int, str], led: Mapping[int, tuple[int, int]]
) -> None:
    """Each leader of a partition of the log is asked for an id that belongs there. Raises what it
    answers while it has not loaded the partition."""
    from kafka import errors
    from kafka.protocol.admin.transactions import DescribeTransactionsRequest

    of_node = defaultdict[Any, list[str]](list)
    for number, (_, node) in led.items():
        of_node[node].append(ids[number])
    sent = [
        manager.send(DescribeTransactionsRequest(transactional_ids=there), node)
        for node, there in of_node.items()
    ]
    for future in sent:
        for row in (await future).transaction_states:
            if row.error_code not in (0, _NOT_FOUND, _MAY_NOT_ASK):
                raise errors.for_code(row.error_code)(f"a coordinator has not loaded all of {LOG}")


def _unused_ids(stem: str, partitions: int, wanted: Collection[int]) -> dict[int, str]:
    """By partition of the log an id that nobody has and that belongs there."""
    found: dict[int, str] = {}
    # The hash multiplies by 31: of 31 partitions only the last character counts
    for letters in product(_PRINTABLE, repeat=3):
        name = f"{stem}-.{''.join(letters)}"
        place = log_partition(name, partitions)
        if place in wanted:
            found.setdefault(place, name)
        if len(found) == len(wanted):
            break
    return found
