"""S6, before the decision: checks that every participant can still commit, by no wall clock."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.control_requests import TopicPartition
from ...core.errors import Undecided
from ...core.transaction import Participant, alarm_ms, gone_topics
from ...state.ledger.ledger import Ledger
from ..options import SinkOptions
from .batch_identity import BatchIdentity
from .committable import TaskReport, torn_of

log = logging.getLogger(__name__)


def check_prepared(
    control: ControlPlane,
    reports: Sequence[TaskReport],
    options: SinkOptions,
    identity: BatchIdentity,
    ledger: Ledger,
    wrote_to: set[TopicPartition],
) -> list[tuple[str, str]]:
    """Every transaction that waits for the decision must be open, as itself, with time left, and
    every topic it wrote to be there. Raises Undecided.

    Returns the topics that the sources read, with their ids: asked for in the same request. Adds
    to `wrote_to` the partitions that are written to.
    """
    prepared = [report.prepared for report in reports if report.prepared is not None]
    if options.staging is not None:
        options.staging.check_staged(options, ledger, reports[0].batch, prepared)
    mine = [part for part in prepared if part.has_transaction]
    wrote = [part for report in reports if (part := report.participant)]
    torn = torn_of(reports)
    wrote += torn.committed if torn else ()  # they count as written, too
    outputs = {name for part in wrote for name, _ in part.topics}
    sources = identity.topics_asked_for - outputs
    if not wrote and identity.ends == identity.starts:
        return identity.sources(options, ledger, {})  # nothing was read
    ids = [part.identity.transactional_id for part in mine]
    found_now = control.look(ids, topics=outputs, others=sources)
    described = found_now.described
    wrote_to.update(at for found in described.values() for at in found.partitions)
    open_s = {report.partition: report.open_s for report in reports}
    began = reports[0].began
    at_most_s = began.age_s() if began else None
    if gone := gone_topics(wrote, found_now.topic_ids):
        problem = f"topics {gone} were deleted, or made again, after its rows were written to them"
        raise _undecided(reports, options, problem)
    for part in mine:
        found, at_least_s = described[part.identity.transactional_id], open_s[part.partition]
        _warn_of_age(part, at_least_s, found.timeout_ms)
        if not found.is_open(part.identity):
            problem = f"is not open any more (its id is {found.state.value}, epoch {found.epoch})"
        elif not _has_time(found.timeout_ms / 1000, at_most_s, at_least_s):
            problem = f"was open for {at_least_s:.0f} s of {found.timeout_ms / 1000:.0f} when its "
            problem += "task had ended"
        else:
            continue
        raise _undecided(
            reports,
            options,
            f"the transaction of partition {part.partition} {problem}",
            " If this happens again, raise option 'transactionTimeout' "
            f"({options.timeout_text} now): a batch must fit in, from its first row to its commit.",
        )
    seen = {name: found for name, found in found_now.topic_ids.items() if name in sources}
    return identity.sources(options, ledger, seen)


def _undecided(
    reports: Sequence[TaskReport], options: SinkOptions, problem: str, advice: str = ""
) -> Undecided:
    visible = "Nothing of it is visible."
    if options.one_phase:
        visible = "What its tasks have committed is visible and is not repeated."
    return Undecided(
        f"Batch {reports[0].batch} is not decided: {problem}. {visible} This may be tried again: "
        "the query, started again by you or by what supervises it, runs the batch from the same "
        f"offsets.{advice}"
    )


def _has_time(timeout_s: float, at_most_s: float | None, at_least_s: float) -> bool:
    """Whether Kafka leaves a transaction open for long enough to be ended. How long it is open
    already lies between two ages, each by one machine's own clock: since S1, which was before it
    (unless this is another machine), and from its first row to S5.

    In between nobody knows; it is open now, and if Kafka aborts it after the decision, S7 finds
    that out and the replay writes what is missing.
    """
    margin_s = min(10.0, timeout_s / 5)
    if at_most_s is not None and timeout_s - at_most_s >= margin_s:
        return True
    return timeout_s - at_least_s >= margin_s


def _warn_of_age(part: Participant, open_s: float, timeout_ms: int) -> None:
    """Kafka lets a transaction be open for as long as its timeout, which may be days."""
    if open_s * 1000 > alarm_ms(timeout_ms):
        log.warning(
            "The transaction of partition %d was open for %.0f s when its task had ended, of %.0f "
            "s that Kafka allows (option transactionTimeout). As long as it is open, read_committed"
            " readers of the output wait at its first row.",
            part.partition,
            open_s,
            timeout_ms / 1000,
        )
