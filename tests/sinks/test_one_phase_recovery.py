"""S1 for `commit=idempotent`: what is recorded of the batch that is about to run; no broker."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from eo_kafka.core.errors import LedgerError
from eo_kafka.core.transaction import Begun, Decision, DecisionState
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol.one_phase_recovery import begins, lost_tokens
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


@pytest.mark.parametrize(
    ("told", "then", "one_phase_from", "is_lost"),
    [
        (22, 22, 0, False),
        (21, 22, 0, False),  # by a leader that was cut off
        (21, 21, 0, True),
        (21, 21, None, False),  # tokens count by decisions only
        (22, 22, 23, True),
    ],
)
@pytest.mark.parametrize("by_hand", [False, True])
def test_new_tokens_do_not_land_before_where_they_are_looked_for(
    told: int, then: int, one_phase_from: int | None, is_lost: bool, by_hand: bool
) -> None:
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "jobName": "job"}
    options = SinkOptions.parse(given, streaming=True)
    done = Decision("main", 7, 0, DecisionState.DONE, 1, 5, 1, 20, (), token_until=22)
    ledger = Ledger(decisions={("main", 7): done}, one_phase_from=one_phase_from)
    control: Any = Mock(reach=lambda *_: then)
    if not is_lost or by_hand:
        found = lost_tokens(options, control, ledger, told, by_hand=by_hand)
        assert (found is not None) == is_lost
        return
    with pytest.raises(LedgerError, match=r"Batch 8 of .*ends at offset 2\d, .*--batch 8 --acc"):
        lost_tokens(options, control, ledger, told, by_hand=False)
