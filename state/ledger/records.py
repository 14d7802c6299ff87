"""Encodes and decodes the ledger's records: versioned JSON, read strictly.

A record that does not decode is an error with its key in it, never a guess: nobody but us may
write here, and a wrong reading could commit or drop a batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from ...core.errors import CorruptLedger, cut
from ...core.options import json_object
from ...core.transaction import Decision, DecisionState, Identity, Participant, Staged, Token
from .blob_names import Blob, SnapshotHead

VERSION = 1
GENERATION_KEY = b"generation"
OWNER_KEY = b"owner"
ONE_PHASE_KEY = b"one-phase"
SNAPSHOT_KEY = b"snapshot"
LOADING_KEY = b"snapshot-loading"
BARRIER_KEY = b"barrier"  # of a record without value among the tokens: all older ones stand before
_INT_MAX = 2**63
# Bytes; the longest is a transactional id, whose prefix may be as long as a topic's name.
_TEXT_MAX = 1000
_OFFSETS_MAX = 1 << 20
T = TypeVar("T")


def decision_key(sink: str, batch: int, round_: int) -> bytes:
    """Compaction keeps the newest state of each (sink, batch, round)."""
    return f"decision/{sink}/{batch}/{round_}".encode()


def token_key(sink: str, partition: int) -> bytes:
    """Compaction keeps a partition's newest token; an older one is of a batch that is DONE."""
    return f"token/{sink}/{partition}".encode()


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps({"v": VERSION, **fields}, separators=(",", ":")).encode()


def _decode(
    key: bytes,
    value: bytes,
    build: Callable[[dict[str, Any]], T],
    encode: Callable[[T], bytes],
) -> T:
    try:
        fields = json_object(value.decode())
        if _int(fields["v"]) != VERSION:
            raise ValueError(f"version {fields['v']!r} is not {VERSION}")
        found = build(fields)
        # Two values never mean the same: what a reading would pass over is seen here.
        if encode(found) != value:
            raise ValueError("it says more than a record of this version, or says it otherwise")
        return found
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptLedger(
            f"Ledger record {cut(repr(key))} cannot be decoded "
            f"({type(error).__name__}: {cut(error)}). "
            "Nothing was decided or dropped. If a newer eo-kafka wrote it, run that version; "
            "if somebody else wrote into the ledger topic, restore the topic."
        ) from None


def _int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    if abs(value) > _INT_MAX:
        raise ValueError("a number has more than 64 bits")
    return value


def _str(value: Any, longest: int = _TEXT_MAX) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    if len(value.encode()) > longest:  # and half a surrogate pair raises
        raise ValueError(f"a text has {len(value)} characters")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def encode_generation(generation: int) -> bytes:
    """The value under GENERATION_KEY."""
    return _encode({"generation": generation})


def decode_generation(value: bytes) -> int:
    """Raises CorruptLedger."""
    return _decode(
        GENERATION_KEY, value, lambda fields: _int(fields["generation"]), encode_generation
    )


def encode_owner(query_id: str) -> bytes:
    """The value under OWNER_KEY."""
    return _encode({"query": query_id})


def decode_owner(value: bytes) -> str:
    """Raises CorruptLedger."""
    return _decode(OWNER_KEY, value, lambda fields: _str(fields["query"]), encode_owner)


def encode_one_phase(tokens_from: int) -> bytes:
    """The value under ONE_PHASE_KEY."""
    return _encode({"tokensFrom": tokens_from})


def decode_one_phase(value: bytes) -> int:
    """Raises CorruptLedger."""
    return _decode(
        ONE_PHASE_KEY, value, lambda fields: _int(fields["tokensFrom"]), encode_one_phase
    )


def encode_loading(blobs_from: int) -> bytes:
    """The value under LOADING_KEY: where blobs begin in the state topic that no head may name."""
    return _encode({"blobsFrom": blobs_from})


def decode_loading(value: bytes) -> int:
    """Raises CorruptLedger."""
    return _decode(LOADING_KEY, value, lambda fields: _int(fields["blobsFrom"]), encode_loading)


def encode_snapshot(head: SnapshotHead) -> bytes:
    """The value under SNAPSHOT_KEY."""
    return _encode(
        {
            "batch": head.batch,
            "generation": head.generation,
            "query": head.query,
            "manifest": head.manifest.digest,
            "manifestSize": head.manifest.size,
            "manifestFrom": head.manifest_from,
            "files": head.files,
            "size": head.size,
            "sent": head.sent,
            "madeMs": head.made_ms,
        }
    )


def decode_snapshot(value: bytes, key: bytes = SNAPSHOT_KEY) -> SnapshotHead:
    """Raises CorruptLedger."""

    def build(fields: dict[str, Any]) -> SnapshotHead:
        return SnapshotHead(
            batch=_int(fields["batch"]),
            generation=_int(fields["generation"]),
            query=_str(fields["query"]),
            manifest=Blob(_str(fields["manifest"]), _int(fields["manifestSize"])),
            manifest_from=_int(fields["manifestFrom"]),
            files=_int(fields["files"]),
            size=_int(fields["size"]),
            sent=_int(fields["sent"]),
            made_ms=_int(fields["madeMs"]),
        )

    return _decode(key, value, build, encode_snapshot)


def decision_record(decision: Decision) -> tuple[bytes, bytes]:
    """Key and value of a decision."""
    key = decision_key(decision.sink, decision.batch, decision.round)
    return key, encode_decision(decision)


def encode_decision(decision: Decision) -> bytes:
    """The value under `decision_key`."""
    return _encode(
        {
            "state": decision.state.value,
            "sink": decision.sink,
            "batch": decision.batch,
            "round": decision.round,
            "generation": decision.generation,
            "endTxnVersion": decision.end_txn_version,
            "tokenPartition": decision.token_partition,
            "tokenFrom": decision.token_from,
            "participants": [_participant_fields(part) for part in decision.participants],
            **_batch_fields(decision),
        }
    )


def _batch_fields(decision: Decision) -> dict[str, Any]:
    """What the batch was; what is not known is left out, as ledgers of eo-kafka 0.1 have it."""
    fields = {
        "offsets": decision.offsets,
        "starts": decision.starts,
        "sourceIds": dict(decision.source_ids),
        "target": decision.target,
        "repeatable": decision.repeatable,
        "accepted": decision.accepted,
        "tokenUntil": decision.token_until,
    }
    known = {name: value for name, value in fields.items() if value}
    if decision.watermark_ms is not None:
        known["watermarkMs"] = decision.watermark_ms
    return known


def decode_decision(key: bytes, value: bytes) -> Decision:
    """Raises CorruptLedger, also when the value is not that of its key."""

    def build(fields: dict[str, Any]) -> Decision:
        decision = Decision(
            sink=_str(fields["sink"]),
            batch=_int(fields["batch"]),
            round=_int(fields["round"]),
            state=DecisionState(fields["state"]),
            generation=_int(fields["generation"]),
            end_txn_version=_int(fields["endTxnVersion"]),
            token_partition=_int(fields["tokenPartition"]),
            token_from=_int(fields["tokenFrom"]),
            participants=tuple(_participant(part) for part in _list(fields["participants"])),
            offsets=_lines(fields.get("offsets", [])),
            starts=_lines(fields.get("starts", [])),
            source_ids=_topics(fields.get("sourceIds", {})),
            target=_str(fields.get("target", "")),
            repeatable=fields.get("repeatable", False) is True,
            accepted=fields.get("accepted", False) is True,
            token_until=_int(fields.get("tokenUntil", 0)),
            watermark_ms=_int(fields["watermarkMs"]) if "watermarkMs" in fields else None,
        )
        if key != decision_key(decision.sink, decision.batch, decision.round):
            raise ValueError("the value belongs to another key")
        return decision

    return _decode(key, value, build, encode_decision)


def _participant_fields(part: Participant) -> dict[str, Any]:
    return {
        "partition": part.partition,
        "round": part.round,
        "generation": part.generation,
        "id": part.identity.transactional_id,
        "producerId": part.identity.producer_id,
        "epoch": part.identity.epoch,
        "rows": part.rows,
        "digest": part.digest,
        **({"topics": dict(part.topics)} if part.topics else {}),
        **({"staged": _staged_fields(part.staged)} if part.staged else {}),
    }


def _participant(fields: dict[str, Any]) -> Participant:
    return Participant(
        partition=_int(fields["partition"]),
        round=_int(fields["round"]),
        generation=_int(fields["generation"]),
        identity=Identity(_str(fields["id"]), _int(fields["producerId"]), _int(fields["epoch"])),
        rows=_int(fields["rows"]),
        digest=_str(fields["digest"]),
        topics=_topics(fields.get("topics", {})),
        staged=_staged(fields["staged"]) if "staged" in fields else None,
    )


def _lines(value: Any) -> tuple[str, ...]:
    return tuple(_str(line, _OFFSETS_MAX) for line in _list(value))


def _staged_fields(staged: Staged) -> dict[str, Any]:
    return {
        "map": staged.place,
        "cluster": staged.home,
        "attempt": staged.attempt,
        "chunks": staged.chunks,
    }


def _staged(fields: Any) -> Staged:
    if not isinstance(fields, dict):
        raise TypeError(f"{fields!r} is not an object")
    return Staged(
        place=_str(fields["map"]),
        home=_str(fields["cluster"]),
        attempt=_int(fields["attempt"]),
        chunks=_int(fields["chunks"]),
    )


def _topics(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return tuple(sorted((name, _str(topic_id)) for name, topic_id in value.items()))


def encode_token(token: Token) -> bytes:
    """The value under `token_key`."""
    return _encode(
        {
            "sink": token.sink,
            "partition": token.partition,
            "batch": token.batch,
            "round": token.round,
            "generation": token.generation,
            "rows": token.rows,
            "digest": token.digest,
            **({"topics": dict(token.topics)} if token.topics else {}),
        }
    )


def decode_token(key: bytes, value: bytes) -> Token:
    """Raises CorruptLedger, also when the value is not that of its key."""

    def build(fields: dict[str, Any]) -> Token:
        token = Token(
            sink=_str(fields["sink"]),
            partition=_int(fields["partition"]),
            batch=_int(fields["batch"]),
            round=_int(fields["round"]),
            generation=_int(fields["generation"]),
            rows=_int(fields["rows"]),
            digest=_str(fields["digest"]),
            topics=_topics(fields.get("topics", {})),
        )
        if key != token_key(token.sink, token.partition):
            raise ValueError("the value belongs to another key")
        return token

    return _decode(key, value, build, encode_token)
