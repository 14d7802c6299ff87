"""Shows transactions as a table, in detail, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..shared.command_line import duration, on_terminal, table
from .verdict import Judged

TITLES = ("transactional id", "state", "age", "left", "ledger, token")


def listing(found: Sequence[Judged], now_ms: int) -> str:
    """A line for each transaction, and below what must be done about some."""
    lines = [table(TITLES, [cells(one, now_ms) for one in found], right="age left")]
    for one in found:
        if reason := one.needs_attention(now_ms):
            lines += ["", on_terminal(one.described.transactional_id), f"  {reason}"]
    return "\n".join(lines)


def cells(one: Judged, now_ms: int) -> tuple[str, ...]:
    """A transaction's line, as `TITLES` names its cells."""
    return (
        one.described.transactional_id,
        one.described.state.value if not one.hung else "hung",
        _age(one, now_ms),
        _left(one, now_ms),
        _summary(one),
    )


def _summary(one: Judged) -> str:
    if one.decision is None:
        return one.standing.value
    return f"batch {one.decision.batch} {one.decision.state.value}, {one.token.value}"


def _age(one: Judged, now_ms: int) -> str:
    open_ms = one.open_for_ms(now_ms)
    return duration(open_ms / 1000) if open_ms else "-"


def _left(one: Judged, now_ms: int) -> str:
    if not one.is_open or one.described.start_ms < 0:
        return "-"
    return duration(one.described.remaining_ms(now_ms) / 1000)


def details(one: Judged, now_ms: int) -> str:
    """Everything known about one transaction, a line for each fact."""
    lines = "".join(f"\n  {name:<12}{text}" for name, text in facts(one, now_ms))
    return f"{on_terminal(one.described.transactional_id)}{lines}"


def facts(one: Judged, now_ms: int) -> list[tuple[str, str]]:
    """The same, as names and texts."""
    described, parts = one.described, one.parts
    lines = [
        (
            "state",
            f"{described.state.value}, producer {described.producer_id}, epoch {described.epoch}",
        )
    ]
    if parts is not None:
        job = (
            f"{one.job.job} (ledger {one.job.topic}, generation {one.job.ledger.generation})"
            if one.job
            else f"{parts.job_hash} (a hash; no ledger found)"
        )
        lines.append(("job", job))
        if parts.task is not None:
            sink = "main" if parts.task.is_of("main") else parts.task.sink_hash
            lines.append(
                (
                    "sink",
                    f"{sink}, partition {parts.task.partition}, generation slot "
                    f"{parts.task.generation_slot}, attempt slot {parts.task.attempt_slot}",
                )
            )
    if one.is_open:
        timeout = duration(described.timeout_ms / 1000)
        lines.append(("open", f"for {_age(one, now_ms)}; {_left(one, now_ms)} left of {timeout}"))
    if described.partitions:
        where = ", ".join(f"{topic}-{number}" for topic, number in sorted(described.partitions))
        lines.append(("partitions", where))
    lines.append(("ledger", ledger_says(one)))
    lines.append(("token", one.token.value))
    if reason := one.needs_attention(now_ms):
        lines.append(("attention", reason))
    return lines


def ledger_says(one: Judged) -> str:
    """What the ledger says, for a sentence."""
    if one.decision is None or one.participant is None:
        return one.standing.value
    return (
        f"batch {one.decision.batch}, round {one.participant.round}: {one.decision.state.value} "
        f"({one.participant.rows} rows, EndTxn version {one.decision.end_txn_version})"
    )


def as_json(one: Judged, now_ms: int) -> dict[str, Any]:
    """Everything known, under names that stay."""
    described, task = one.described, one.parts.task if one.parts else None
    return {
        "transactionalId": described.transactional_id,
        "job": one.job.job if one.job else None,
        "ledgerTopic": one.job.topic if one.job else None,
        "generation": one.job.ledger.generation if one.job else None,
        "partition": task.partition if task else None,
        "generationSlot": task.generation_slot if task else None,
        "attemptSlot": task.attempt_slot if task else None,
        "state": described.state.value,
        "producerId": described.producer_id,
        "epoch": described.epoch,
        "startMs": described.start_ms,
        "timeoutMs": described.timeout_ms,
        "remainingMs": described.remaining_ms(now_ms) if described.start_ms > 0 else None,
        "partitions": sorted(f"{topic}-{number}" for topic, number in described.partitions),
        "ledger": one.standing.value,
        "batch": one.decision.batch if one.decision else None,
        "round": one.participant.round if one.participant else None,
        "decision": one.decision.state.value if one.decision else None,
        "rows": one.participant.rows if one.participant else None,
        "token": one.token.value,
        "hungOn": sorted(f"{where.topic}-{where.partition}" for where in one.hung),
        "hungCommitted": one.ended.commit if one.ended else None,
        "idsNotSeen": one.not_all or None,
        "attention": one.needs_attention(now_ms),
    }
