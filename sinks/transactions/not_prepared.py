"""Why a task's transaction could not be opened or prepared, as the error for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...clients.kafka import outages
from ...clients.kafka.control_plane import ControlPlane
from ...core.errors import EnvironmentRefused, EoKafkaError, SinkError, Unreachable, WriteFailed
from ..options import SinkOptions
from ..rows.plain import ArrowProducer, is_denied, not_written


def not_opened(who: str, name: str, options: SinkOptions, error: Any) -> EnvironmentRefused:
    """`name`: the transactional id. `error`: Kafka's."""
    login = outages.refused_login()
    told = (
        f"{who}: no transaction could be opened under '{name}': {error.str()}.{login} Nothing was "
        "written."
    )
    if login:
        return EnvironmentRefused(
            f"{told} Correct the 'kafka.*' settings of the login, or what the brokers know of the "
            "principal, and start the query again."
        )
    if outages.is_no_answer(error):
        return Unreachable(
            f"{told} Is Kafka up, with enough brokers, and room on their disks, for its "
            "transaction log? Start the query again when it is: the batch runs again."
        )
    return EnvironmentRefused(
        f"{told} The principal needs Write and Describe on transactional ids that begin with "
        f"'{options.prefix}'; kafka.transaction.timeout.ms ({options.transaction_timeout_ms}) may "
        "not exceed the broker's transaction.max.timeout.ms."
    )


def not_prepared(
    who: str,
    reason: str,
    ended: Any,
    rows: ArrowProducer,
    topics: Iterable[str | None],
    token: Any,
    ledger: str | None,
    control: ControlPlane,
) -> SinkError | EnvironmentRefused:
    """`reason`: where no report of a record gives one. `ended`: what the transaction failed of, if
    it did: records may only say that they were purged. `token`: Kafka's error for a record of ours.
    `ledger`: if not all of those have landed."""
    if token is not None:
        reason = f"the ledger did not take the record of the rows: {token.str()}"
    told = f"{who}: {rows.failures or reason}."
    if ended and ended.str() not in told:
        told += f" The transaction failed: {ended.str()}."
    codes = [rows.first_code, *(error.code() for error in (ended, token) if error)]
    if not any(map(is_denied, codes)):
        return not_written(f"{told} Nothing of the batch is visible.", rows.first_code)
    names = [] if rows.acknowledged == rows.rows else [name for name in topics if name]
    lacking = _not_writable(control, [*names, *([ledger] if ledger else [])])
    places = [f"{'ledger' if name == ledger else 'topic'} '{name}'" for name in lacking]
    return EnvironmentRefused(
        f"{told} Nothing of the batch is visible. The principal needs Write and Describe on "
        f"{' and on '.join(places)}: grant it, and start the query again."
    )


def _not_writable(control: ControlPlane, names: Iterable[str]) -> list[str]:
    """Those of the topics that the principal may not write, by what Kafka says now; all, if it does
    not say. Which one a transaction failed of, librdkafka keeps to itself."""
    asked = list(dict.fromkeys(names))
    try:
        rows = control.call(control.admin.describe_topics, asked)
    except EoKafkaError:
        return asked
    allowed = {row["name"] for row in rows if "WRITE" in (row.get("authorized_operations") or ())}
    return [name for name in asked if name not in allowed] or asked


def too_slow(who: str, open_s: float, options: SinkOptions) -> WriteFailed:
    """Kafka has ended the transaction for its age."""
    return WriteFailed(
        f"{who}: the task took {open_s:.0f} s from its first row on, of "
        f"{options.transaction_timeout_ms / 1000:g} s that option 'transactionTimeout' allows, and "
        "Kafka has aborted its transaction. Nothing of it is visible. Raise the option, or make "
        "batches smaller (maxOffsetsPerTrigger): a start with the same options fails in the same "
        "way while the task takes as long."
    )
