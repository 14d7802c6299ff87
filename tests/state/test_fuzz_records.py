"""The ledger under bytes that nobody should have written: a clear error, or exactly what stands
there; never another exception, never a second reading of a record."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.core.errors import MESSAGE_MAX
from eo_kafka.core.transaction import Begun, Decision, DecisionState, Identity, Participant, Token
from eo_kafka.errors import CorruptLedger
from eo_kafka.state.ledger import records
from eo_kafka.state.ledger.blob_names import Blob, SnapshotHead
from eo_kafka.state.ledger.ledger import Ledger, fold
from eo_kafka.state.ledger.succession import (
    SUCCESSION_KEY,
    Succession,
    decode_succession,
    encode_succession,
)

PARTICIPANT = Participant(0, 1, 34, Identity("eo-kafka.j.s.p0.g2.a3", 4000, 2), 7, "m1:0123abcd")
DECISION = Decision("main", 12, 1, DecisionState.DECIDED, 34, 5, 1, 56, (PARTICIPANT,))
WITH_OFFSETS = Decision(
    "main", 12, 1, DecisionState.DECIDED, 34, 5, 1, 56, (), ('{"t":{"0":5}}', "-", "é")
)
HEAD = SnapshotHead(12, 34, "b1-c2", Blob("3345524abf6bbe18", 345), 1234, 3, 100, 5, 1795260336579)
TOKEN = Token("main", 1, 12, 1, 34, 8, "m1:4567")
SUCCESSION = Succession(("a1", "b1-c2"), ('{"t":{"0":5}}', "-"), (("t", "id-1"),), "q")
DECISION_KEY, TOKEN_KEY = records.decision_key("main", 12, 1), records.token_key("main", 1)
# name -> (value, decode, encode)
KINDS: dict[str, tuple[bytes, Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    "generation": (
        records.encode_generation(34),
        records.decode_generation,
        records.encode_generation,
    ),
    "owner": (
        records.encode_owner("b1-c2", "file:/data"),
        records.decode_owner,
        lambda found: records.encode_owner(*found),
    ),
    "succession": (encode_succession(SUCCESSION), decode_succession, encode_succession),
    "one-phase": (records.encode_one_phase(5), records.decode_one_phase, records.encode_one_phase),
    "decision": (
        records.encode_decision(DECISION),
        lambda value: records.decode_decision(DECISION_KEY, value),
        records.encode_decision,
    ),
    "decision with offsets": (
        records.encode_decision(WITH_OFFSETS),
        lambda value: records.decode_decision(DECISION_KEY, value),
        records.encode_decision,
    ),
    "snapshot": (
        records.encode_snapshot(HEAD),
        records.decode_snapshot,
        records.encode_snapshot,
    ),
    "loading": (
        records.encode_loading(56),
        records.decode_loading,
        lambda found: records.encode_loading(*found),
    ),
    "token": (
        records.encode_token(TOKEN),
        lambda value: records.decode_token(TOKEN_KEY, value),
        records.encode_token,
    ),
}
kinds = pytest.mark.parametrize("kind", KINDS)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["DECIDED", "DONE", "VOID", 2**63 + 1, -(10**400), "x" * 1_000_000])
)
JSON_VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def read(kind: str, value: bytes) -> Any:
    """What `value` says, or None when it is refused as it must be."""
    try:
        found = KINDS[kind][1](value)
    except CorruptLedger as corrupt:
        assert len(str(corrupt)) < 1000
        assert "restore the topic" in str(corrupt)
        str(corrupt).encode()
        return None
    assert KINDS[kind][2](found) == value, "two values with one meaning"
    return found


@kinds
@given(data=st.data())
def test_changed_bytes_are_refused_or_say_something_else(kind: str, data: st.DataObject) -> None:
    good = KINDS[kind][0]
    value = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(value)))
        value[at : at + data.draw(st.integers(0, 4))] = data.draw(
            st.binary(max_size=4) | st.text('0123456789eE.-+ \t{}[]",:', max_size=4).map(str.encode)
        )

    found = read(kind, bytes(value))

    if bytes(value) != good:
        assert found != KINDS[kind][1](good), "a changed record reads as the one that was written"


def replaced(fields: Any, data: st.DataObject) -> Any:
    """`fields` with one value anywhere in it exchanged, taken away or added."""
    if isinstance(fields, list) and fields and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(fields) - 1))
        return [*fields[:at], replaced(fields[at], data), *fields[at + 1 :]]
    if isinstance(fields, dict) and fields:
        name = data.draw(st.sampled_from(sorted(fields)))
        what = data.draw(st.sampled_from(["exchange", "inside", "remove", "add"]))
        if what == "add":
            return {**fields, data.draw(st.text(max_size=5)): data.draw(JSON_VALUES)}
        rest = {key: value for key, value in fields.items() if key != name}
        if what == "remove":
            return rest
        inside = replaced(fields[name], data) if what == "inside" else data.draw(JSON_VALUES)
        return {key: inside if key == name else value for key, value in fields.items()}
    return data.draw(JSON_VALUES)


@kinds
@given(data=st.data())
def test_changed_fields_are_refused_or_say_something_else(kind: str, data: st.DataObject) -> None:
    good = KINDS[kind][0]
    changed = replaced(json.loads(good), data)
    value = json.dumps(changed, separators=(",", ":")).encode()

    found = read(kind, value)

    if value != good:
        assert found != KINDS[kind][1](good)


# What the decoders once let through, or answered with another error or with a megabyte of text.
HARDENED = {
    "a field too many": b'{"v":1,"generation":3,"force":true}',
    "blanks": b'{"v":1, "generation":3}',
    "another order": b'{"generation":3,"v":1}',
    "minus zero": b'{"v":1,"generation":-0}',
    "more than 64 bits": b'{"v":1,"generation":' + b"9" * 4000 + b"}",
    "not a number": b'{"v":1,"generation":NaN}',
    "a key twice": b'{"v":1,"generation":3,"generation":4}',
    "a key twice, once escaped": b'{"v":1,"generation":3,"\\u0067eneration":4}',
    "a megabyte of text": b'{"v":1,"generation":"' + b"x" * 1_000_000 + b'"}',
    "a megabyte of version": b'{"v":"' + b"x" * 1_000_000 + b'"}',
    "nesting just below the parser's limit": b'{"v":1,"generation":'
    + b"[" * 970
    + b"]" * 970
    + b"}",
    "the second version": b'{"v":2,"generation":3}',
    "a pickle": pickle.dumps(3),
}


@pytest.mark.parametrize("value", HARDENED.values(), ids=HARDENED)
def test_a_generation_that_is_not_as_we_write_it_is_refused(value: bytes) -> None:
    assert read("generation", value) is None


@pytest.mark.parametrize("query", [r"\ud800", "x" * 2000], ids=["half a surrogate pair", "long"])
def test_an_owner_that_no_sentence_could_name_is_refused(query: str) -> None:
    assert read("owner", f'{{"v":1,"query":"{query}"}}'.encode()) is None


@pytest.mark.parametrize(
    "offsets",
    ["[]", "null", '""', "{}", "[1]", '["\\ud800"]'],
    ids=["an empty list", "null", "a text", "an object", "a number", "half a pair"],
)
def test_offsets_are_a_list_of_texts_or_not_there(offsets: str) -> None:
    bare = json.loads(KINDS["decision"][0])
    value = json.dumps(bare, separators=(",", ":")).removesuffix("}")
    assert read("decision", f'{value},"offsets":["x"]}}'.encode()) is not None
    assert read("decision", f"{value}}}".encode()).offsets == ()

    assert read("decision", f'{value},"offsets":{offsets}}}'.encode()) is None


@pytest.mark.parametrize("instead", ["{}", '""'], ids=["an empty object", "an empty text"])
def test_a_decision_does_not_lose_its_participants_to_another_emptiness(instead: str) -> None:
    fields = {**json.loads(KINDS["decision"][0]), "participants": []}
    value = json.dumps(fields, separators=(",", ":"))
    assert read("decision", value.encode()) is not None, "the test's own text is wrong"

    assert read("decision", value.replace("[]", instead).encode()) is None


# The fold of partition 0: any sequence of plausible and broken records.
STATES = st.builds(
    Decision,
    st.sampled_from(["main", "other"]),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from(DecisionState),
    st.integers(1, 3),
    st.just(5),
    st.just(1),
    st.integers(0, 2),
    st.just((PARTICIPANT,)),
)
RECORDS = (
    STATES.map(
        lambda one: (
            records.decision_key(one.sink, one.batch, one.round),
            records.encode_decision(one),
        )
    )
    | st.tuples(st.just(records.GENERATION_KEY), st.integers(0, 3).map(records.encode_generation))
    | st.tuples(st.just(records.SNAPSHOT_KEY), st.none() | st.just(records.encode_snapshot(HEAD)))
    | st.tuples(
        st.just(records.LOADING_KEY), st.none() | st.integers(0, 9).map(records.encode_loading)
    )
    | st.tuples(
        st.just(records.BEGUN_KEY),
        st.none() | st.integers(0, 9).map(lambda n: records.encode_begun(Begun(n, "v1"))),
    )
    | st.tuples(st.just(SUCCESSION_KEY), st.none() | st.just(encode_succession(SUCCESSION)))
    | st.tuples(st.just(records.OWNER_KEY), st.none() | st.just(records.encode_owner("q")))
    | st.tuples(
        st.sampled_from([DECISION_KEY, b"decision/main/0/0", b"decision/", records.OWNER_KEY])
        | st.binary(max_size=20),
        st.none() | st.binary(max_size=20),
    )
)


@given(st.lists(RECORDS, max_size=12))
def test_any_log_folds_or_is_corrupt_and_what_is_done_stays_done(
    log: list[tuple[bytes, bytes | None]],
) -> None:
    ledger, done = Ledger(), {}
    for key, value in log:
        before = ledger.generation
        try:
            fold([(key, value)], ledger)
        except CorruptLedger as corrupt:
            assert len(str(corrupt)) < MESSAGE_MAX
            break
        assert ledger.generation >= before
        if value is None:
            done = {at: one for at, one in done.items() if at in ledger.decisions}
        for at, settled in done.items():
            assert ledger.decisions[at].state is settled.state, "a DONE batch came back"
        done.update(
            (at, one) for at, one in ledger.decisions.items() if one.state is DecisionState.DONE
        )
