"""Ends transactions that were found, each by the options of its own job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...sinks.options import SinkOptions
from ...state.ledger.job import JOB_NAME, LEDGER, PREFIX
from .ending import Asked, Outcome, end
from .search import TransactionSearch
from .verdict import Judged


def end_found(
    search: TransactionSearch, found: Sequence[Judged], asked: Asked, given: Mapping[str, str]
) -> list[Outcome]:
    """End what of `found` may be ended; `given` are the options `kafka.*`. Raises Fenced if another
    driver took a job over meanwhile; nothing was ended then."""

    def options_of(one: Judged) -> SinkOptions:
        assert one.job is not None and one.parts is not None
        return options_for(given, one.job.job, one.job.topic, one.parts.prefix)

    return end(
        search,
        found,
        asked,
        options_of,
        lambda some, closed: search.judge(
            [one.described.transactional_id for one in some], closed=closed
        ),
    )


def options_for(
    given: Mapping[str, str], job: str | None, ledger: str = "", prefix: str = ""
) -> SinkOptions:
    """Those of a job's sink, or of a batch's without `job`. Raises OptionsError."""
    named = {JOB_NAME.name: job or "", LEDGER.name: ledger, PREFIX.name: prefix}
    told = {name: value for name, value in named.items() if value}
    return SinkOptions.parse({**given, **told}, streaming=job is not None)
