"""Why a task's transaction could not be prepared, as the error for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...clients.kafka.transactional_producer import transaction_failure
from ...core.errors import EnvironmentRefused, WriteFailed
from ..rows.plain import ArrowProducer, is_denied


def not_prepared(
    who: str,
    reason: str,
    producer: Any,
    rows: ArrowProducer,
    topics: Iterable[str | None],
    token: Any,
    ledger: str | None,
) -> WriteFailed | EnvironmentRefused:
    """`reason`: where no report of a record gives one. `token`: Kafka's error for a record of ours.
    `ledger`: if not all of those have landed."""
    ended = transaction_failure(producer)  # records only say that they were purged
    if token is not None:
        reason = f"the ledger did not take the record of the rows: {token.str()}"
    told = f"{who}: {rows.failures or reason}."
    told += f" The transaction failed: {ended.str()}." if ended else ""
    codes = [rows.first_code, *(error.code() for error in (ended, token) if error)]
    if not any(map(is_denied, codes)):
        return WriteFailed(f"{told} Nothing of the batch is visible.")
    places = [f"topic '{name}'" for name in dict.fromkeys(topics) if name]
    if rows.acknowledged == rows.rows:
        places = []
    if ledger:
        places.append(f"ledger '{ledger}'")
    return EnvironmentRefused(
        f"{told} Nothing of the batch is visible. The principal needs Write and Describe on "
        f"{' and on '.join(places)}: grant it, and start the query again."
    )
