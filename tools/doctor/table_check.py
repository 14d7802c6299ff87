"""What `eo-kafka doctor` checks of a table of PostgreSQL, and of what jobs have beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from ...clients.postgres.client import connected
from ...clients.postgres.pooling import check_own_session
from ...core.errors import EoKafkaError
from ...sinks.tables.schema import problems
from ...sinks.tables.target import StagedTable
from ..transactions.search import TransactionSearch
from ..transactions.staged_tables import look_beside, target_of
from .machine_check import Finding, Level

STAGING = "staging tables"


def check_table(
    config: Path, kafka: Mapping[str, str] | None, job: str | None, ledgers: Mapping[str, str]
) -> list[Finding]:
    """The table that `config` names, whether its role may write it, and with `kafka` what is left
    beside it (of `job`, if it is given). Raises OptionsError."""
    target = target_of(config)
    try:
        with connected(target.postgres) as connection:
            check_own_session(connection, target.postgres)
            wrong = problems(connection, target)
    except EoKafkaError as error:
        return [Finding(Level.PROBLEM, "table", str(error))]
    findings = [Finding(Level.PROBLEM, "table", sentence) for sentence in wrong]
    if not wrong:
        text = f"{target.place} is there and can take rows by this role"
        findings.append(Finding(Level.OK, "table", text))
    if kafka is None:
        text = "not looked at: --bootstrap-servers or --config names the Kafka of their ledgers"
        return [*findings, Finding(Level.NOTE, STAGING, text)]
    try:
        with closing(TransactionSearch(kafka, ledgers)) as search:
            return [*findings, *_beside(search, target, job)]
    except EoKafkaError as error:
        return [*findings, Finding(Level.PROBLEM, STAGING, str(error))]


def _beside(search: TransactionSearch, target: StagedTable, job: str | None) -> Iterator[Finding]:
    beside = look_beside(search, target, job)
    for one in beside.tables:
        if one.attention:
            text = f"'{one.found.name}' of job '{one.found.job}': {one.attention}"
            yield Finding(Level.WARNING, STAGING, text)
    if not any(one.attention for one in beside.tables):
        text = f"{len(beside.tables)} beside the table, none left over for a day"
        yield Finding(Level.OK, STAGING, text)
