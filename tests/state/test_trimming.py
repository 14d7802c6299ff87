"""However many batches a job writes, and however they are committed, its ledger stays as long as
the last hundred: what a thousand commits write, folded as compaction does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from eo_kafka.clients.kafka import control_plane
from eo_kafka.clients.kafka.control_requests import Look
from eo_kafka.core.transaction import Described, Identity, Participant, TransactionState
from eo_kafka.sinks.batches.committable import TaskReport
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer
from eo_kafka.sinks.protocol.finisher import Outcome
from eo_kafka.state.ledger.appender import Record
from eo_kafka.state.ledger.coordinator import Write
from eo_kafka.state.ledger.ledger import DECISIONS_KEPT, Ledger, fold

BATCHES = 1000
MINE = Identity("id", 1, 1)


class Log:
    """A ledger's decision partition, and a coordinator that nobody fences."""

    def __init__(self) -> None:
        self.live: dict[bytes, bytes] = {}
        self.ledger = Ledger(generation=1)

    def write(self, _generation: int, attempt: Callable[[Ledger], Write | None]) -> None:
        found = attempt(self.ledger)
        assert found is not None
        self.try_append(found.records)

    def try_append(self, written: Sequence[Record]) -> bool:
        fold(written, self.ledger)
        for key, value in written:
            if value is None:
                self.live.pop(key, None)
            else:
                self.live[key] = value
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_named: None


class Open:
    """A control plane that knows all transactions as open, with all their time left; no token."""

    def look(self, ids: Sequence[str], topics: Sequence[str], others: object) -> Look:
        described = {
            name: Described(name, TransactionState.ONGOING, 1, 1, 10**9, 10**15) for name in ids
        }
        return Look(described, [], {}, 2)

    def end_offset(self, *_: object, **_named: object) -> int:
        return 0


class Finished:
    """A finisher whose transactions all commit."""

    aborted = 0

    def __init__(self, *_: object, **__: object) -> None: ...

    def finish(self, _decision: object) -> Outcome:
        return Outcome()

    def forget(self, _decision: object) -> None: ...

    def end_others(self, _decision: object) -> None: ...


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    made = Log()
    monkeypatch.setattr(committer, "Coordinator", lambda *_: made)
    monkeypatch.setattr(committer, "Finisher", Finished)
    monkeypatch.setattr(control_plane, "shared", lambda _: Open())
    yield made


@pytest.mark.parametrize(
    ("commit", "rows"),
    [("two-phase", 5), ("two-phase", 0), ("idempotent", 5), ("idempotent", 0)],
)
def test_a_thousand_batches_leave_what_a_hundred_leave(log: Log, commit: str, rows: int) -> None:
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "jobName": "j", "commit": commit}
    options = SinkOptions.parse(given, streaming=True)
    part = Participant(0, 0, 1, MINE, rows, "digest") if rows else None
    one_phase = commit == "idempotent"
    for batch in range(BATCHES):
        report = TaskReport(
            0, batch, 0, False, "q", 1, 5, 0, rows, "digest", part, one_phase and rows > 0
        )
        committer.commit(options, [report], batch)
    assert len(log.live) <= DECISIONS_KEPT + 2, "a decision each, the newest one, and the owner"
    assert (options.sink, BATCHES - 1) in log.ledger.decisions
