"""S1 for `commit=idempotent`: what is recorded of the batch that is about to run; no broker."""

from __future__ import annotations

import pytest

from eo_kafka.core.transaction import Begun
from eo_kafka.sinks.protocol.one_phase_recovery import begins
from eo_kafka.state.ledger import records
from eo_kafka.state.ledger.ledger import Ledger

HERE, ELSEWHERE, BEFORE = Begun(7, "v1\n{}\n1"), Begun(7, "v1\n{}\n2"), Begun(6, "v1\n{}\n0")
UNKNOWN = Begun(7, "")


@pytest.mark.parametrize(
    ("known", "mine", "may_be_torn", "is_written"),
    [
        (None, HERE, True, True),
        (BEFORE, HERE, True, True),
        (HERE, HERE, False, False),
        (HERE, None, False, False),
        (None, UNKNOWN, True, False),  # there is nothing to take back
        (BEFORE, UNKNOWN, True, False),
        (HERE, UNKNOWN, True, False),
        (HERE, UNKNOWN, False, True),
        # Tasks of it may have committed; once it is known that none has, it counts no more.
        (ELSEWHERE, HERE, True, False),
        (ELSEWHERE, HERE, False, True),
    ],
)
def test_a_batch_of_the_same_number_stays_while_it_may_be_torn(
    known: Begun | None, mine: Begun | None, may_be_torn: bool, is_written: bool
) -> None:
    written = begins(Ledger(begun=known), mine, may_be_torn=may_be_torn)

    wanted = [(records.BEGUN_KEY, records.encode_begun(mine))] if is_written and mine else []
    assert written == wanted


@pytest.mark.parametrize("may_be_torn", [True, False])
def test_where_an_older_version_has_run_it_is_looked_first(may_be_torn: bool) -> None:
    written = begins(Ledger(one_phase_from=3), HERE, may_be_torn=may_be_torn)

    assert bool(written) is not may_be_torn
