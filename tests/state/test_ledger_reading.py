"""Reading a ledger that is long, and a read that breaks off."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eo_kafka.core.errors import ReadTimeout
from eo_kafka.core.transaction import Decision, DecisionState
from eo_kafka.state.ledger import ledger_memory, log_reader, records
from eo_kafka.state.ledger.ledger import fold
from eo_kafka.state.ledger.topic_settings import SEGMENTS, wanted_settings


def log() -> list[tuple[bytes, bytes | None]]:
    found: list[tuple[bytes, bytes | None]] = []
    for n in range(6):
        found.append((records.GENERATION_KEY, records.encode_generation(n + 1)))
        decided = Decision("main", n, 0, DecisionState.DONE, n + 1, 5, 1, 0, ())
        found.append(records.decision_record(decided))
        if n > 1:
            found.append((records.decision_key("main", n - 2, 0), None))
    return found


@pytest.mark.parametrize("breaks_at", range(len(log())))
def test_a_read_that_breaks_off_has_read_what_came_before(monkeypatch, breaks_at):
    asked = []

    def read(_settings, _topic, _partition, start, end):
        asked.append(start)
        for offset in range(start, end):
            if offset == breaks_at and len(asked) == 1:
                raise ReadTimeout("the broker is away")
            yield offset, *log()[offset]

    monkeypatch.setattr(ledger_memory, "read_records", read)
    memory = ledger_memory.LedgerMemory({}, "l")
    memory.recall("id", len(log()))
    with pytest.raises(ReadTimeout):
        memory.read_to(len(log()))
    assert memory.ledger.decisions == fold(log()[:breaks_at]).decisions
    assert memory.read_to(len(log())).decisions == fold(log()).decisions
    assert asked == [0, breaks_at]
    assert memory.position == len(log())


def test_a_read_that_takes_long_is_told_of(monkeypatch, caplog):
    """Once, and again after twice the time."""
    now = iter(range(0, 10_000, 4))
    monkeypatch.setattr(log_reader, "time", SimpleNamespace(monotonic=lambda: next(now)))

    def message(offset):
        return SimpleNamespace(
            error=lambda: None, topic=lambda: "l", partition=lambda: 0, offset=lambda: offset,
            key=lambda: b"k", value=lambda: b"v",
        )  # fmt: skip

    found = iter(range(20))
    consumer = SimpleNamespace(poll=lambda _: message(next(found)), consume=lambda *_, **__: [])
    assert len(list(log_reader._until(consumer, "l", 0, (0, 20), 1, False))) == 20
    said = [one for one in caplog.messages if "Reading l-0 takes long: it is" in one]
    assert 3 <= len(said) <= 5
    assert said[0].endswith("at offset 1 of 20 after 16 s.")


def test_a_ledger_is_made_so_that_it_is_compacted_soon():
    wanted = wanted_settings(3)
    assert {name: wanted[name] for name in SEGMENTS} == SEGMENTS
    assert int(wanted["segment.ms"]) <= 4 * 3600 * 1000
    assert int(wanted["segment.bytes"]) <= 128 << 20
    assert int(wanted["segment.bytes"]) > 4 * int(wanted["max.message.bytes"])
