"""Whether a target that decisions name otherwise is the one that the options name now.

A table's name in a decision has its server's address and the spelling of the option. After a
fail-over, or with its schema before it, it is the same table: by the database's own name of it,
which staged rows have, and by the marker. Driver.
"""

from __future__ import annotations

from collections.abc import Callable

from ...state.ledger.ledger import Ledger
from ..options import SinkOptions


def is_other_name(
    options: SinkOptions, ledger: Ledger, wrote: str, ledger_id: Callable[[], str] | None = None
) -> bool:
    """Whether `wrote`, the target in decisions of `ledger`, is the one that `options` name by
    another name. Of the job's own ledger, S1 has compared the marker; of another one, its
    `ledger_id` is asked for. Raises what the target does where it cannot be reached."""
    if options.staging is None or _shape(wrote) != _shape(options.target):
        return False
    places = {
        part.staged.place
        for decision in ledger.of_sink(options.sink).values()
        if decision.target == wrote
        for part in decision.participants
        if part.staged
    }
    if len(places) != 1:
        return False
    (place,) = places
    return options.staging.is_same(place, options.sink, ledger_id() if ledger_id else None)


def _shape(target: str) -> tuple[str, str]:
    """What kind of target it is, and the topic beside it."""
    return target.partition(" ")[0], target.partition(" and topic '")[2]
