"""Ledger records as bytes: they come back as they were, or as CorruptLedger, never otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.core.transaction import (
    NO_TRANSACTION,
    Begun,
    Decision,
    DecisionState,
    Identity,
    Participant,
    Staged,
    Token,
)
from eo_kafka.errors import CorruptLedger
from eo_kafka.state.ledger import appender, records
from eo_kafka.state.ledger.blob_names import Blob, SnapshotHead
from eo_kafka.state.ledger.record_fields import OFFSETS_MAX
from eo_kafka.state.ledger.succession import Succession, decode_succession, encode_succession

GOLDEN = Path(__file__).parents[1] / "golden"
WHOLE = st.integers(min_value=-(2**63), max_value=2**63)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
IDENTITIES = st.builds(Identity, TEXT, WHOLE, WHOLE)
STAGED = st.none() | st.builds(Staged, TEXT, TEXT, WHOLE, WHOLE)
TOPICS = st.dictionaries(TEXT, TEXT, max_size=3).map(lambda ids: tuple(sorted(ids.items())))
PARTICIPANTS = st.builds(Participant, WHOLE, WHOLE, WHOLE, IDENTITIES, WHOLE, TEXT, TOPICS, STAGED)
DECISIONS = st.builds(
    Decision,
    TEXT,
    WHOLE,
    WHOLE,
    st.sampled_from(DecisionState),
    WHOLE,
    WHOLE,
    WHOLE,
    WHOLE,
    st.lists(PARTICIPANTS, max_size=3).map(tuple),
    token_until=WHOLE,
    watermark_ms=st.none() | WHOLE,
    time_ms=st.none() | WHOLE,
)
TOKENS = st.builds(Token, TEXT, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, TEXT, TOPICS)

DECISION = Decision(
    sink="main",
    batch=12,
    round=1,
    state=DecisionState.DECIDED,
    generation=34,
    end_txn_version=5,
    token_partition=1,
    token_from=56,
    participants=(
        Participant(0, 0, 33, Identity("eo-kafka.j.s.p0.g1.a3", 4000, 2), 7, "0123abcd"),
        Participant(1, 1, 34, Identity("eo-kafka.j.s.p1.g2.a4", 4001, 0), 8, "4567 é"),
    ),
)
OF_MAP = replace(
    DECISION,
    participants=(
        Participant(
            0, 1, 34, NO_TRANSACTION, 7, "m1:0123abcd", staged=Staged("orders", "c-1", 3, 2)
        ),
    ),
)
TOKEN = Token("main", 1, 12, 1, 34, 8, "4567 é")
UNTIL = replace(DECISION, token_until=58)
SUCCESSION = Succession(("a1", "b1-c2"), ('{"t":{"0":5}}', "o:{}"), (("t", "id-1"),), "q")
OF_WATERMARK = replace(DECISION, watermark_ms=0)
OF_OFFSETS = replace(DECISION, offsets=('{"t":{"0":5}}', "-"), starts=('{"t":{"0":3}}', "-"))
BEGUN = Begun(12, '{"t":{"0":[3,5]}}')
HEAD = SnapshotHead(12, 34, "a1", Blob("0f" * 32, 99), 3, 2, 1234, 56, 1795260342977, 4, "id-1")
OF_RUN = replace(HEAD, run="c3-d4")
OF_TIME = replace(DECISION, watermark_ms=0, time_ms=1795260342977)
DECISION_KEY = records.decision_key("main", 12, 1)
WITH_TOPICS = replace(TOKEN, topics=(("out", "id-1"), ("öut", "id-2")))
TOKEN_KEY = records.token_key("main", 1)
# file -> (the value that stands in it, how it is decoded, what it says)
FILES: dict[str, tuple[bytes, Callable[[bytes], object], object]] = {
    "v1_generation.json": (records.encode_generation(34), records.decode_generation, 34),
    "v1_owner.json": (records.encode_owner("b1-c2"), records.decode_owner, ("b1-c2", "")),
    "v1_owner_with_checkpoint.json": (
        records.encode_owner("b1-c2", "file:/data/é"),
        records.decode_owner,
        ("b1-c2", "file:/data/é"),
    ),
    "v1_one_phase.json": (records.encode_one_phase(56), records.decode_one_phase, 56),
    "v1_begun.json": (records.encode_begun(BEGUN), records.decode_begun, BEGUN),
    "v1_loading.json": (records.encode_loading(7, "id-1"), records.decode_loading, (7, "id-1")),
    "v1_snapshot.json": (records.encode_snapshot(HEAD), records.decode_snapshot, HEAD),
    "v1_snapshot_with_run.json": (
        records.encode_snapshot(OF_RUN),
        records.decode_snapshot,
        OF_RUN,
    ),
    "v1_succession.json": (encode_succession(SUCCESSION), decode_succession, SUCCESSION),
    "v1_succession_only_replaced.json": (
        encode_succession(Succession(("a1", "b1-c2"))),
        decode_succession,
        Succession(("a1", "b1-c2")),
    ),
    "v1_decision.json": (
        records.encode_decision(DECISION),
        lambda value: records.decode_decision(b"decision/main/12/1", value),
        DECISION,
    ),
    "v1_decision_with_offsets.json": (
        records.encode_decision(OF_OFFSETS),
        lambda value: records.decode_decision(b"decision/main/12/1", value),
        OF_OFFSETS,
    ),
    "v1_decision_of_map.json": (
        records.encode_decision(OF_MAP),
        lambda value: records.decode_decision(b"decision/main/12/1", value),
        OF_MAP,
    ),
    "v1_decision_with_token_until.json": (
        records.encode_decision(UNTIL),
        lambda value: records.decode_decision(b"decision/main/12/1", value),
        UNTIL,
    ),
    "v1_decision_with_watermark.json": (
        records.encode_decision(OF_WATERMARK),
        lambda value: records.decode_decision(b"decision/main/12/1", value),
        OF_WATERMARK,
    ),
    "v1_decision_with_time.json": (
        records.encode_decision(OF_TIME),
        lambda value: records.decode_decision(b"decision/main/12/1", value),
        OF_TIME,
    ),
    "v1_token.json": (
        records.encode_token(TOKEN),
        lambda value: records.decode_token(b"token/main/1", value),
        TOKEN,
    ),
    "v1_token_with_topics.json": (
        records.encode_token(WITH_TOPICS),
        lambda value: records.decode_token(b"token/main/1", value),
        WITH_TOPICS,
    ),
}
DECODERS = [decode for _, decode, _ in FILES.values()]


@pytest.mark.parametrize("name", FILES)
def test_version_1_is_as_it_was_stored(name: str) -> None:
    encoded, decode, meaning = FILES[name]
    stored = (GOLDEN / name).read_bytes()

    assert encoded == stored
    assert decode(stored) == meaning


def test_every_golden_file_is_tested() -> None:
    assert {path.name for path in GOLDEN.glob("v1_*")} == set(FILES)


@given(DECISIONS)
def test_a_decision_comes_back(decision: Decision) -> None:
    key = records.decision_key(decision.sink, decision.batch, decision.round)

    assert records.decode_decision(key, records.encode_decision(decision)) == decision


def test_what_a_producer_may_send_can_be_read() -> None:
    line = "é" * (2 << 20)  # more than a megabyte: of a source with very many partitions
    long = replace(DECISION, offsets=(line,), starts=(line,))
    begun = Begun(3, line)

    assert records.decode_decision(DECISION_KEY, records.encode_decision(long)) == long
    assert records.decode_begun(records.encode_begun(begun)) == begun
    assert int(appender._SETTINGS["message.max.bytes"]) <= OFFSETS_MAX


@given(TOKENS)
def test_a_token_comes_back(token: Token) -> None:
    for round_ in (0, token.round):  # eo-kafka 0.1 had one key for all rounds
        key = records.token_key(token.sink, token.partition, round_)
        assert records.decode_token(key, records.encode_token(token)) == token
    assert records.token_key("main", 3, 2) == b"token/main/3/2"


@given(WHOLE, TEXT, TEXT)
def test_generation_and_owner_come_back(generation: int, owner: str, place: str) -> None:
    assert records.decode_generation(records.encode_generation(generation)) == generation
    assert records.decode_owner(records.encode_owner(owner, place)) == (owner, place)
    longest = "/" + 4000 * "x"  # a path may be longer than a name
    assert records.decode_owner(records.encode_owner(owner, longest)) == (owner, longest)


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b'{"v":1}',
        b'{"v":2,"generation":1,"query":"q"}',
        b'{"v":"1","generation":1,"query":"q"}',
        b'{"v":null,"generation":1,"query":"q"}',
        b'{"v":1,"generation":true,"query":1}',
        b'{"v":1,"generation":1.0,"query":null}',
        b'{"v":1,"generation":"1","query":["q"]}',
        b'{"v":1,"generation":null,"query":{}}',
        b"[" * 100_000 + b"]" * 100_000,
        b'{"v":1,"generation":' + b"9" * 10_000 + b',"query":3}',
    ],
    ids=lambda value: repr(value[:40]),
)
def test_what_is_not_a_record_is_corrupt(decode: Callable[[bytes], object], value: bytes) -> None:
    with pytest.raises(CorruptLedger, match=r"cannot be decoded|is of format 2"):
        decode(value)


@pytest.mark.parametrize("version", ["true", "1.0"])
def test_a_version_that_only_equals_1_is_corrupt(version: str) -> None:
    with pytest.raises(CorruptLedger):
        records.decode_generation(f'{{"v":{version},"generation":3}}'.encode())


@pytest.mark.parametrize("name", ["batch", "round", "generation", "endTxnVersion", "tokenFrom"])
@pytest.mark.parametrize("wrong", [True, 1.5, "1", None, [], {}])
def test_a_decision_with_a_wrong_number_is_corrupt(name: str, wrong: object) -> None:
    fields = json.loads(records.encode_decision(DECISION))

    with pytest.raises(CorruptLedger):
        records.decode_decision(DECISION_KEY, json.dumps({**fields, name: wrong}).encode())


@pytest.mark.parametrize("wrong", [None, 1, "ab", {"a": 1}, [1], [None], [[]], [{}], ["ab"]])
def test_wrong_participants_are_corrupt(wrong: object) -> None:
    fields = json.loads(records.encode_decision(DECISION))

    with pytest.raises(CorruptLedger):
        records.decode_decision(
            DECISION_KEY, json.dumps({**fields, "participants": wrong}).encode()
        )


@pytest.mark.parametrize("wrong", ["decided", "", None, 1, [], {}])
def test_a_state_that_is_none_is_corrupt(wrong: object) -> None:
    fields = json.loads(records.encode_decision(DECISION))

    with pytest.raises(CorruptLedger):
        records.decode_decision(DECISION_KEY, json.dumps({**fields, "state": wrong}).encode())


@pytest.mark.parametrize("key", [b"", b"\xff", b"decision/main/12/2", b"decision/other/12/1"])
def test_a_value_under_another_key_is_corrupt(key: bytes) -> None:
    with pytest.raises(CorruptLedger, match="another key"):
        records.decode_decision(key, records.encode_decision(DECISION))
    with pytest.raises(CorruptLedger, match="another key"):
        records.decode_token(key, records.encode_token(TOKEN))


def test_the_message_names_the_record_and_what_to_do() -> None:
    with pytest.raises(CorruptLedger) as corrupt:
        records.decode_decision(DECISION_KEY, b"nonsense")

    assert "b'decision/main/12/1'" in str(corrupt.value)
    assert "restore the topic" in str(corrupt.value)


def decodes_or_is_corrupt(value: bytes) -> None:
    for decode in DECODERS:
        try:
            decode(value)
        except CorruptLedger:
            continue


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_corrupt(value: bytes) -> None:
    decodes_or_is_corrupt(value)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | WHOLE | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.data())
def test_a_changed_record_decodes_or_is_corrupt(data: st.DataObject) -> None:
    fields: dict[str, Any] = json.loads(data.draw(st.sampled_from(list(FILES.values())))[0])
    name = data.draw(st.sampled_from(sorted(fields)))
    if data.draw(st.booleans()):
        del fields[name]
    else:
        fields[name] = data.draw(JSON_VALUES)

    decodes_or_is_corrupt(json.dumps(fields).encode())


@given(st.data())
def test_a_record_with_changed_bytes_decodes_or_is_corrupt(data: st.DataObject) -> None:
    value = bytearray(data.draw(st.sampled_from(list(FILES.values())))[0])
    at = data.draw(st.integers(0, len(value) - 1))
    value[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))

    decodes_or_is_corrupt(bytes(value))


def test_equal_lists_of_topics_are_in_memory_once() -> None:
    """Each task of each batch that is kept has one: a hundred batches were gigabytes."""
    named = tuple((f"topic-{number}", f"id-{number}") for number in range(3))
    tasks = tuple(replace(DECISION.participants[0], partition=at, topics=named) for at in (0, 1))
    found = [
        records.decode_decision(*records.decision_record(replace(DECISION, participants=tasks)))
        for _ in range(2)
    ]
    assert found[0] == found[1] == replace(DECISION, participants=tasks)
    assert len({id(part.topics) for one in found for part in one.participants}) == 1
