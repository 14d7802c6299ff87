"""Transactional ids: a job finds its own and nobody else's."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.clients.kafka.transactional_id import (
    ATTEMPT_SLOTS,
    GENERATION_SLOTS,
    TransactionalIds,
    log_partition,
)

NAMES = st.text(st.sampled_from("ab.-_+*[(^$|\\0"), min_size=1, max_size=8)
SMALL = st.integers(0, 10**9)


@given(NAMES, NAMES, NAMES, SMALL, SMALL, SMALL)
def test_every_task_id_is_recognised(
    prefix: str, job: str, sink: str, partition: int, generation: int, attempt: int
) -> None:
    ids = TransactionalIds(prefix, job)

    assert ids.is_task(ids.task(sink, partition, generation, attempt))
    assert not ids.is_task(ids.coordinator)


@given(NAMES, NAMES, NAMES, NAMES)
def test_no_job_takes_anothers_ids(prefix: str, job: str, prefix2: str, job2: str) -> None:
    ids, others = TransactionalIds(prefix, job), TransactionalIds(prefix2, job2)

    assert others.is_task(ids.task("main", 0, 0, 0)) == (ids == others)
    assert (ids.coordinator == others.coordinator) == (ids == others)


@pytest.mark.parametrize(
    "change",
    [
        lambda name: name + "\n",
        lambda name: "x" + name,
        lambda name: name + ".more",
        lambda name: name.replace("a.b", "axb"),
        lambda name: name.replace(".p1.", ".p.") + "",
        lambda name: name.replace(".p1.", ".p-1."),
        lambda name: name.rsplit(".", 1)[0],
        lambda name: name.upper(),
    ],
)
def test_what_only_looks_alike_is_not_ours(change: object) -> None:
    ids = TransactionalIds("a.b", "job")
    name = ids.task("main", 1, 2, 3)

    assert ids.is_task(name)
    assert callable(change)
    assert not ids.is_task(change(name))


def test_the_pattern_quotes_a_prefix_with_special_characters() -> None:
    ids = TransactionalIds("eo.*", "job")

    assert not re.match(ids.task_pattern(), TransactionalIds("eo-other", "job").task("s", 0, 0, 0))


def test_slots_are_bounded_and_used_again() -> None:
    ids = TransactionalIds("p", "j")
    names = {
        ids.task("s", 0, generation, attempt) for generation in range(50) for attempt in range(50)
    }

    assert len(names) == GENERATION_SLOTS * ATTEMPT_SLOTS
    assert ids.task("s", 0, 1, 2) == ids.task("s", 0, 1 + GENERATION_SLOTS, 2 + ATTEMPT_SLOTS)


def test_sinks_partitions_and_neighbouring_slots_differ() -> None:
    ids = TransactionalIds("p", "j")
    places = [("s", 0, 0, 0), ("t", 0, 0, 0), ("s", 1, 0, 0), ("s", 0, 1, 0), ("s", 0, 0, 1)]

    assert len({ids.task(*place) for place in places}) == len(places)


def test_ids_are_in_the_log_where_java_puts_them() -> None:
    assert log_partition("eo-kafka", 1 << 31) == 1048965187  # positive in Java
    assert log_partition("soak-count", 1 << 31) == 777511928  # negative in Java
