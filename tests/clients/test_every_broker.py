"""Who is asked for transactions: all brokers that are there now, until they lead the whole log and
have loaded it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors
from kafka.protocol.admin.transactions import DescribeTransactionsRequest

from eo_kafka.clients.kafka import topic_lists
from eo_kafka.clients.kafka.every_broker import _unused_ids, list_transactions
from eo_kafka.clients.kafka.transactional_id import log_partition

Leaders = dict[int, tuple[int, int]]  # partition of the log -> who leads it, under which epoch


class Cluster:
    """A client of kafka-python that knows the brokers `known`. `sees`: broker -> whom it takes for
    leaders; None: the principal may not Describe the log."""

    def __init__(self, sees: dict[int, Leaders | None], known: set[int]) -> None:
        self.sees, self.asked = sees, list[int]()
        self._manager = self.cluster = self
        self._known, self._coordinator_brokers = known, dict[int, Any]()
        self.is_to_update = False
        self.may_describe = "eo-kafka."
        self.told, self.probed = dict[int, int](), list[str]()  # of a partition, instead of 105

    def brokers(self) -> list[Any]:
        return [SimpleNamespace(node_id=node) for node in self._known]

    def request_update(self) -> None:
        self.is_to_update = True

    def call_soon(self, method: Any, *args: Any) -> Any:
        return method(*args)

    def _described(self, ids: list[str], node_id: int) -> Any:
        self.probed += ids
        rows = []
        for name in ids:
            place = log_partition(name, 3)
            assert (self.sees[node_id] or {})[place][0] == node_id
            told = self.told.get(place, 105) if name.startswith(self.may_describe) else 53
            rows.append(SimpleNamespace(error_code=told))
        return SimpleNamespace(transaction_states=rows)

    async def send(self, request: Any, node_id: int) -> Any:
        if isinstance(request, DescribeTransactionsRequest):
            return self._described(request.transactional_ids, node_id)
        assert node_id in self._known | self._coordinator_brokers.keys()
        partitions = [
            {"partition_index": number, "leader_id": leader, "leader_epoch": epoch}
            for number, (leader, epoch) in (self.sees[node_id] or {}).items()
        ]
        brokers = [{"node_id": node, "host": "h", "port": 1, "rack": None} for node in self.sees]
        topic = {"name": "out", "topic_id": "id", "error_code": 0, "partitions": partitions}
        return SimpleNamespace(to_dict=lambda: {"brokers": brokers, "topics": [topic]})

    async def _async_list_transactions(self, nodes: list[int], *_: Any, **__: Any) -> Any:
        self.asked += nodes
        return {node: [f"of {node}"] for node in nodes}

    def list(self, may_lack: bool = False, stem: str = "eo-kafka.") -> list[Any]:
        return sorted(asyncio.run(list_transactions(self, may_lack=may_lack, stem=stem)))

    def list_again(self, may_lack: bool = False) -> list[Any]:
        with pytest.raises(errors.NotCoordinatorError):
            self.list(may_lack)
        return self.list(may_lack)


BEFORE: Leaders = {0: (1, 5), 1: (2, 5), 2: (3, 5)}
AFTER: Leaders = {**BEFORE, 2: (1, 6)}
AWAY: Leaders = {**BEFORE, 2: (-1, 6)}


def test_one_that_is_back_is_asked_though_it_was_not_known() -> None:
    cluster = Cluster(dict.fromkeys((1, 2, 3), BEFORE), known={1, 2})
    assert cluster.list_again() == ["of 1", "of 2", "of 3"]
    assert cluster.is_to_update
    cluster.asked.clear()
    assert cluster.list()
    assert sorted(cluster.asked) == [1, 2, 3]


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_list_does_not_count_before_each_coordinator_has_loaded_what_it_leads(code: int) -> None:
    cluster = Cluster(dict.fromkeys((1, 2, 3), BEFORE), known={1, 2, 3})
    cluster.list_again()
    cluster.sees = dict.fromkeys((1, 2, 3), AFTER)
    cluster.told = {2: code}
    for _ in range(3):
        with pytest.raises(
            errors.for_code(code), match="has not loaded all of __transaction_state"
        ):
            cluster.list()
    cluster.told, cluster.probed = {}, []
    assert cluster.list_again()
    assert len(cluster.probed) == 1  # of the others it is known
    assert cluster.list()
    assert len(cluster.probed) == 1


def test_who_may_not_describe_the_ids_lists_once_more() -> None:
    cluster = Cluster(dict.fromkeys((1, 2, 3), BEFORE), known={1, 2, 3})
    cluster.told = dict.fromkeys(range(3), 53)
    assert cluster.list_again()


def test_what_other_ids_were_refused_for_says_nothing_of_ones_own() -> None:
    cluster = Cluster(dict.fromkeys((1, 2, 3), BEFORE), known={1, 2, 3})
    cluster.may_describe, cluster.told = "team.", {2: 16}
    assert cluster.list_again()
    with pytest.raises(errors.NotCoordinatorError, match="has not loaded"):
        cluster.list(stem="team.")


@pytest.mark.parametrize("partitions", [1, 8, 31, 50, 62, 124, 256, 961])
def test_each_partition_has_an_id_that_is_found_soon(partitions: int) -> None:
    wanted = range(partitions)
    found = _unused_ids("eo-kafka.0123456789ab.", partitions, wanted)
    assert {place: log_partition(name, partitions) for place, name in found.items()} == dict(
        zip(wanted, wanted, strict=True)
    )
    assert all(len(name) == len("eo-kafka.0123456789ab.-.") + 3 for name in found.values())


def test_a_list_counts_where_the_coordinators_are_those_of_the_one_before() -> None:
    cluster = Cluster(dict.fromkeys((1, 2, 3), BEFORE), known={1, 2, 3})
    cluster.list_again()
    assert cluster.list()
    cluster.sees = dict.fromkeys((1, 2, 3), AFTER)
    assert cluster.list_again()
    assert cluster.list()


@pytest.mark.parametrize(
    "sees",
    [
        {1: BEFORE, 2: BEFORE, 3: AFTER},  # 3 has given it up, and 1 has not heard
        {1: BEFORE, 2: BEFORE},  # 3 is away, and nobody has heard
        dict.fromkeys((1, 2), AWAY),
    ],
)
def test_what_nobody_leads_makes_it_incomplete(sees: dict[int, Leaders | None]) -> None:
    cluster = Cluster(sees, known=set(sees))
    for _ in range(3):
        with pytest.raises(errors.CoordinatorNotAvailableError, match="partition 2 of __trans"):
            cluster.list()


def test_of_two_that_lead_one_the_later_counts() -> None:
    cluster = Cluster({1: AFTER, 2: AFTER, 3: BEFORE}, known={1, 2, 3})
    cluster.list_again()
    cluster.sees[3] = AFTER
    assert cluster.list()


def test_who_says_so_itself_may_list_without_a_coordinator() -> None:
    cluster = Cluster(dict.fromkeys((1, 2), AWAY), known={1, 2})
    assert cluster.list_again(may_lack=True) == ["of 1", "of 2"]


def test_who_may_not_describe_the_log_lists_all_the_same() -> None:
    cluster = Cluster(dict.fromkeys((1, 2, 3)), known={1})
    assert cluster.list() == ["of 1", "of 2", "of 3"]


def test_most_brokers_are_most_of_those_that_are_there() -> None:
    cluster = Cluster(dict.fromkeys((1, 2, 3)), known={1})
    assert asyncio.run(topic_lists.of_each(cluster, ["out"])).keys() == {1, 2, 3}
