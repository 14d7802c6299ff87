"""Serialized values and events to Arrow, against the client's own serializers."""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest
from hazelcast.config import Config, IntType
from hazelcast.core import HazelcastJsonValue
from hazelcast.serialization.data import Data
from hazelcast.serialization.service import SerializationServiceV1
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.errors import SourceError
from eo_kafka.sources.maps import columns


def service() -> SerializationServiceV1:
    config = Config()
    config.default_int_type = IntType.LONG
    return SerializationServiceV1(config)


SERVICE = service()


def data(value: object) -> bytes:
    return bytes(SERVICE.to_data(value).buffer)


def to_object(piece: bytes) -> object:
    return SERVICE.to_object(Data(piece))


def event(kind: int, *parts: object, lost: bool | None = False) -> bytes:
    """As a member serializes it."""
    made = struct.pack(">iiBiii", 0, -2, 1, -4, 132, kind)
    for part in parts:
        piece = None if part is None else data(part)
        made += struct.pack(">i", -1) if piece is None else struct.pack(">i", len(piece)) + piece
    return made if lost is None else made + bytes([lost])


VALUES = st.one_of(
    st.none(),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
)
LISTS = st.one_of(
    st.lists(st.tuples(VALUES, VALUES, VALUES)),
    st.lists(st.tuples(*3 * [st.one_of(st.none(), st.text(st.characters(codec="utf-8")))])),
    st.lists(st.tuples(*3 * [st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))])),
)


def plain(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


@given(LISTS, st.sampled_from([None, False, True]))
def test_events_come_apart_as_they_were_made(rows, lost) -> None:
    found = columns.events([event(4, *row, lost=lost) for row in rows])
    assert found.kinds.to_pylist() == ["UPDATED"] * len(rows)
    for number, values in enumerate((found.keys, found.values, found.old_values)):
        expected = [plain(row[number]) for row in rows]
        assert columns.as_text(values, to_object).to_pylist() == expected
        pieces = [None if row[number] is None else data(row[number]) for row in rows]
        assert columns.as_data(values).to_pylist() == pieces


def test_every_kind_has_its_name() -> None:
    kinds = [1, 2, 4, 8, 512]
    found = columns.events([event(kind, "k", None, None) for kind in kinds])
    assert found.kinds.to_pylist() == ["ADDED", "REMOVED", "UPDATED", "EVICTED", "LOADED"]


def test_json_comes_as_it_is() -> None:
    found = columns.events([event(1, "k", HazelcastJsonValue('{"a": 1}'), "old")])
    assert columns.as_text(found.values, to_object).to_pylist() == ['{"a": 1}']
    assert columns.as_bytes(found.values).to_pylist() == [b'{"a": 1}']


@pytest.mark.parametrize(
    "item",
    [
        event(3, "k", "v", None),  # no such kind
        event(1, "k", "v", None)[:-6],  # cut off
        event(1, "k")[:25],
        b"",
        data("just a text"),
    ],
)
def test_what_is_no_event_is_never_taken_for_data(item) -> None:
    for items in ([item], [event(1, "k", "v", None), item]):
        with pytest.raises(SourceError, match="not laid out as members"):
            columns.events(items)


@given(st.binary(), st.integers(0, 60))
def test_damage_raises_ours_and_nothing_else(noise, at) -> None:
    whole = event(1, "key", "value", "old")
    damaged = whole[:at] + noise + whole[at + len(noise) :]
    try:
        found = columns.events([whole, damaged])
        for values in (found.keys, found.values, found.old_values):
            columns.as_text(values, to_object)
    except SourceError:
        pass


def test_a_value_that_says_a_wrong_length_is_refused() -> None:
    text = data("text")
    for wrong in (text[:-1], text[:11], text[:5], text + b"x"):
        made = struct.pack(">iiBiii", 0, -2, 1, -4, 132, 1) + struct.pack(">i", len(wrong)) + wrong
        found = columns.events([made + 2 * struct.pack(">i", -1)])
        with pytest.raises(SourceError, match="not laid out as Hazelcast's serialization"):
            columns.as_text(found.keys, to_object)


def test_a_digest_is_of_the_event_and_not_of_who_reads_it() -> None:
    one = event(1, "k", "v", None, lost=False)
    assert columns.event_digest(one) == columns.event_digest(event(1, "k", "v", None, lost=True))
    assert columns.event_digest(one) == columns.event_digest(event(1, "k", "v", None, lost=None))
    others = [event(4, "k", "v", None), event(1, "x", "v", None), event(1, "k", None, "v")]
    assert len({columns.event_digest(each) for each in (one, *others)}) == 4
    assert len(columns.event_digest(one)) == 12


def texts(*pieces: bytes) -> list[str | None]:
    found, _ = columns.entries([piece for one in pieces for piece in (one, b"")])
    return columns.as_text(found, to_object).to_pylist()


TIME, WHEN, ZONED = -52, -53, -54  # Java's LocalTime, LocalDateTime and OffsetDateTime


def of_java(kind: int, nanoseconds: int) -> bytes:
    """With more digits than Python's own have."""
    day = b"" if kind == TIME else struct.pack(">ibb", 2026, 11, 29)
    zone = struct.pack(">i", 5400) if kind == ZONED else b""
    clock = struct.pack(">bbbi", 10, 0, 0, nanoseconds)
    return struct.pack(">ii", 0, kind) + day + clock + zone


def test_times_keep_their_nanoseconds() -> None:
    """Cut to microseconds, keys that differ would be one."""
    for kind, before, behind in (
        *((TIME, "", ""), (WHEN, "2026-11-29T", "")),
        (ZONED, "2026-11-29T", "+01:30"),
    ):
        pieces = [of_java(kind, part) for part in (0, 123456000, 123456001, 123456789, 7)]
        assert texts(*pieces) == [
            f"{before}10:00:00{part}{behind}"
            for part in ("", ".123456", ".123456001", ".123456789", ".000000007")
        ]
        listed = struct.pack(">iii", 0, -29, 1) + of_java(kind, 7)[4:]
        with pytest.raises(SourceError, match="cuts times in lists .* read it as 'data'"):
            texts(listed)
        with pytest.raises(SourceError):
            texts(of_java(kind, 10**9))


def test_lists_within_lists_stay_lists() -> None:
    """As strings they would be what other lists are."""
    lists = [[[1]], ["[1]"], [["a", [2.5, None]], True], [[Decimal("1.5")]]]
    assert texts(*map(data, lists)) == [
        *("[[1]]", '["[1]"]', '[["a", [2.5, null]], true]', '[["1.5"]]'),
    ]
    for wrong in ([float("nan")], [["a", [float("inf")]]]):
        with pytest.raises(SourceError, match="JSON has no form for"):
            texts(data(wrong))
