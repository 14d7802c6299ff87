"""Asks all brokers of the cluster, and lists transactions as all of their coordinators know them.

kafka-python knows the brokers by a list that it renews after five minutes, and when a request got
no answer: that is while a broker is away, and not when it is back. So each broker that is asked
also tells who is there. Private parts of kafka-python that this uses: see control_requests.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

LOG = "__transaction_state"
# Of each client: which broker led each partition of the log, under which epoch, in the last list.
_led: WeakKeyDictionary[Any, dict[int, tuple[int, int]]] = WeakKeyDictionary()


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
    producers: Collection[int] = (),
    may_lack: bool = False,
) -> list[Any]:
    """Those in one of the states, that match the pattern, and of these producers; of each, by
    default all.

    What moves from a broker that answers late to one that has answered would be missed. So each
    tells which partitions of the transaction log it leads: together they must lead all, under the
    epochs of the list before. Who may not Describe that topic does without this. `may_lack`: the
    caller says where a partition without a leader makes the list incomplete.
    """
    from kafka import errors
    from kafka.protocol.metadata import MetadataRequest

    async def ask(node: Any) -> tuple[tuple[list[Any], Any], Iterable[Mapping[str, Any]]]:
        topics = [MetadataRequest.MetadataRequestTopic(name=LOG)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        seen = admin._manager.send(request, node_id=node)
        listed = await admin._async_list_transactions(
            [node], producers, states, transactional_id_pattern=pattern
        )
        told = (await seen).to_dict()
        partitions = [one for topic in told["topics"] for one in topic["partitions"]]
        return (listed[node], partitions), told["brokers"]

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
    if led != _led.get(admin, {}):
        _led[admin] = led
        raise errors.NotCoordinatorError("the coordinators have moved: they are asked again")
    return [row for rows, _ in answers.values() for row in rows]
