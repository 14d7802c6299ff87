"""Encodes and decodes the ledger's records (record_fields.py: how strictly)."""

from __future__ import annotations

from typing import Any

from ...core.transaction import (
    Begun,
    Decision,
    DecisionState,
    Identity,
    Participant,
    Staged,
    Token,
)
from .blob_names import Blob, SnapshotHead
from .record_fields import (
    OFFSETS_MAX,
    array,
    decode_fields,
    encode_fields,
    lines,
    string,
    topics,
    whole,
)

GENERATION_KEY = b"generation"
OWNER_KEY = b"owner"
ONE_PHASE_KEY = b"one-phase"
BEGUN_KEY = b"begun"
SNAPSHOT_KEY = b"snapshot"
LOADING_KEY = b"snapshot-loading"
DECISION = b"decision/"
_BARRIER = b"barrier"


def decision_key(sink: str, batch: int, round_: int) -> bytes:
    """Compaction keeps the newest state of each (sink, batch, round)."""
    return DECISION + f"{sink}/{batch}/{round_}".encode()


def batch_of(key: bytes) -> tuple[str, int] | None:
    """Sink and batch of a decision's key; None of what is none."""
    try:
        sink, batch, _ = key.removeprefix(DECISION).decode().rsplit("/", 2)
        return sink, int(batch)
    except ValueError:
        return None


def token_key(sink: str, partition: int, round_: int = 0) -> bytes:
    """Compaction keeps a partition's newest token; an older one is of a batch that is DONE. Of one
    batch two may be visible: a replay's, of other rows, has a key of its own."""
    return f"token/{sink}/{partition}{f'/{round_}' if round_ else ''}".encode()


def barrier_key(generation: int | None = None) -> bytes:
    """Of a record without value among the tokens: all that stand there by then stand before it.
    `generation`: of the driver that wrote it, if one did, in its generation's own transaction."""
    return _BARRIER if generation is None else _BARRIER + b"/%d" % generation


def barrier_generation(key: bytes) -> int | None:
    """Of a driver's barrier; None of any other record."""
    name, _, number = key.partition(b"/")
    return int(number) if name == _BARRIER and number.isdigit() else None


def encode_generation(generation: int) -> bytes:
    """The value under GENERATION_KEY."""
    return encode_fields({"generation": generation})


def decode_generation(value: bytes) -> int:
    """Raises CorruptLedger."""
    return decode_fields(
        GENERATION_KEY, value, lambda fields: whole(fields["generation"]), encode_generation
    )


def encode_owner(query_id: str, checkpoint: str = "") -> bytes:
    """The value under OWNER_KEY: the query, and where its checkpoint is, if that is known."""
    return encode_fields({"query": query_id, **({"checkpoint": checkpoint} if checkpoint else {})})


def decode_owner(value: bytes) -> tuple[str, str]:
    """Raises CorruptLedger."""

    def build(fields: dict[str, Any]) -> tuple[str, str]:
        return string(fields["query"]), string(fields.get("checkpoint", ""), OFFSETS_MAX)

    return decode_fields(OWNER_KEY, value, build, lambda found: encode_owner(*found))


def encode_one_phase(tokens_from: int) -> bytes:
    """The value under ONE_PHASE_KEY."""
    return encode_fields({"tokensFrom": tokens_from})


def decode_one_phase(value: bytes) -> int:
    """Raises CorruptLedger."""
    return decode_fields(ONE_PHASE_KEY, value, lambda of: whole(of["tokensFrom"]), encode_one_phase)


def encode_begun(begun: Begun) -> bytes:
    """The value under BEGUN_KEY."""
    return encode_fields({"batch": begun.batch, "plan": begun.plan})


def decode_begun(value: bytes) -> Begun:
    """Raises CorruptLedger."""
    return decode_fields(
        BEGUN_KEY,
        value,
        lambda fields: Begun(whole(fields["batch"]), string(fields["plan"], OFFSETS_MAX)),
        encode_begun,
    )


def encode_loading(blobs_from: int, topic: str = "") -> bytes:
    """The value under LOADING_KEY: where blobs begin in the state topic that no head may name, and
    that topic, if it is known."""
    return encode_fields({"blobsFrom": blobs_from, **({"topic": topic} if topic else {})})


def decode_loading(value: bytes) -> tuple[int, str]:
    """Raises CorruptLedger."""
    return decode_fields(
        LOADING_KEY,
        value,
        lambda fields: (whole(fields["blobsFrom"]), string(fields.get("topic", ""))),
        lambda found: encode_loading(*found),
    )


def encode_snapshot(head: SnapshotHead) -> bytes:
    """The value under SNAPSHOT_KEY."""
    return encode_fields(
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
            **({"topicFrom": head.topic_from} if head.topic_from else {}),
            **({"topic": head.topic} if head.topic else {}),
            **({"run": head.run} if head.run else {}),
        }
    )


def decode_snapshot(value: bytes, key: bytes = SNAPSHOT_KEY) -> SnapshotHead:
    """Raises CorruptLedger."""

    def build(fields: dict[str, Any]) -> SnapshotHead:
        return SnapshotHead(
            batch=whole(fields["batch"]),
            generation=whole(fields["generation"]),
            query=string(fields["query"]),
            manifest=Blob(string(fields["manifest"]), whole(fields["manifestSize"])),
            manifest_from=whole(fields["manifestFrom"]),
            files=whole(fields["files"]),
            size=whole(fields["size"]),
            sent=whole(fields["sent"]),
            made_ms=whole(fields["madeMs"]),
            topic_from=whole(fields.get("topicFrom", 0)),
            topic=string(fields.get("topic", "")),
            run=string(fields.get("run", "")),
        )

    return decode_fields(key, value, build, encode_snapshot)


def decision_record(decision: Decision) -> tuple[bytes, bytes]:
    """Key and value of a decision."""
    key = decision_key(decision.sink, decision.batch, decision.round)
    return key, encode_decision(decision)


def encode_decision(decision: Decision) -> bytes:
    """The value under `decision_key`."""
    return encode_fields(
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
    times = {"watermarkMs": decision.watermark_ms, "timeMs": decision.time_ms}
    return known | {name: at for name, at in times.items() if at is not None}


def decode_decision(key: bytes, value: bytes) -> Decision:
    """Raises CorruptLedger, also when the value is not that of its key."""

    def build(fields: dict[str, Any]) -> Decision:
        decision = Decision(
            sink=string(fields["sink"]),
            batch=whole(fields["batch"]),
            round=whole(fields["round"]),
            state=DecisionState(fields["state"]),
            generation=whole(fields["generation"]),
            end_txn_version=whole(fields["endTxnVersion"]),
            token_partition=whole(fields["tokenPartition"]),
            token_from=whole(fields["tokenFrom"]),
            participants=tuple(_participant(part) for part in array(fields["participants"])),
            offsets=lines(fields.get("offsets", [])),
            starts=lines(fields.get("starts", [])),
            source_ids=topics(fields.get("sourceIds", {})),
            target=string(fields.get("target", "")),
            repeatable=fields.get("repeatable", False) is True,
            accepted=fields.get("accepted", False) is True,
            token_until=whole(fields.get("tokenUntil", 0)),
            watermark_ms=whole(fields["watermarkMs"]) if "watermarkMs" in fields else None,
            time_ms=whole(fields["timeMs"]) if "timeMs" in fields else None,
        )
        if key != decision_key(decision.sink, decision.batch, decision.round):
            raise ValueError("the value belongs to another key")
        return decision

    return decode_fields(key, value, build, encode_decision)


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
        partition=whole(fields["partition"]),
        round=whole(fields["round"]),
        generation=whole(fields["generation"]),
        identity=Identity(
            string(fields["id"]), whole(fields["producerId"]), whole(fields["epoch"])
        ),
        rows=whole(fields["rows"]),
        digest=string(fields["digest"]),
        topics=topics(fields.get("topics", {})),
        staged=_staged(fields["staged"]) if "staged" in fields else None,
    )


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
        place=string(fields["map"]),
        home=string(fields["cluster"]),
        attempt=whole(fields["attempt"]),
        chunks=whole(fields["chunks"]),
    )


def encode_token(token: Token) -> bytes:
    """The value under `token_key`."""
    return encode_fields(
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
            sink=string(fields["sink"]),
            partition=whole(fields["partition"]),
            batch=whole(fields["batch"]),
            round=whole(fields["round"]),
            generation=whole(fields["generation"]),
            rows=whole(fields["rows"]),
            digest=string(fields["digest"]),
            topics=topics(fields.get("topics", {})),
        )
        # eo-kafka 0.1 had one key for all rounds
        if key not in (
            token_key(token.sink, token.partition),
            token_key(token.sink, token.partition, token.round),
        ):
            raise ValueError("the value belongs to another key")
        return token

    return decode_fields(key, value, build, encode_token)
