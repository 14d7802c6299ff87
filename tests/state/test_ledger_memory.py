"""What a process remembers of a ledger, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from eo_kafka.core.process import moment
from eo_kafka.state.ledger import ledger_memory, records
from eo_kafka.state.ledger.ledger_memory import LedgerMemory


def test_what_was_read_before_the_machine_slept_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Meanwhile 'job reset' may have removed a batch, and compaction what says so. The clock that
    others measure by stood still."""
    log = [(0, records.GENERATION_KEY, records.encode_generation(5))]
    monkeypatch.setattr(
        ledger_memory,
        "read_records",
        lambda settings, topic, at, begin, end: [one for one in log if begin <= one[0] < end],
    )
    settings: Any = {"bootstrap.servers": "slept"}
    first = LedgerMemory(settings, "ledger")
    first.recall("id", 1)
    assert first.read_to(1).generation == 5
    first.keep()
    log.clear()
    now = moment.seconds()
    monkeypatch.setattr(moment, "seconds", lambda: now + 7 * 24 * 3600)
    again = LedgerMemory(settings, "ledger")
    again.recall("id", 8)
    assert again.read_to(8).generation == 0
