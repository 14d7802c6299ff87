"""S1 for `commit=idempotent`: what is recorded of the batch that is about to run; no broker."""

from __future__ import annotations

import pytest

from eo_kafka.core.transaction import Begun
from eo_kafka.sinks.protocol.one_phase_recovery import begins
from eo_kafka.state.ledger import records
from eo_kafka.state.ledger.ledger import Ledger

HERE, ELSEWHERE, BEFORE = Begun(7, "v1\n{}\n1"), Begun(7, "v1\n{}\n2"), Begun(6, "v1\n{}\n0")


@pytest.mark.parametrize(
    ("known", "mine", "may_be_torn", "is_written"),
    [
        (None, HERE, True, True),
        (BEFORE, HERE, True, True),
        (HERE, HERE, False, False),
        (HERE, None, False, False),
        # Tasks of it may have committed; once it is known that none has, it counts no more.
        (ELSEWHERE, HERE, True, False),
        (ELSEWHERE, HERE, False, True),
    ],
)
def test_a_batch_of_the_same_number_stays_while_it_may_be_torn(
    known: Begun | None, mine: Begun | None, may_be_torn: bool, is_written: bool
) -> None:
    written = begins(Ledger(begun=known), mine, may_be_torn=may_be_torn)

    assert written == ([(records.BEGUN_KEY, records.encode_begun(HERE))] if is_written else [])
