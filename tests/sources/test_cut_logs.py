"""A log that was cut is found by the epochs of its leaders, and none is that was not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.core.offsets import Position, TopicPartition
from eo_kafka.sources import cut_logs
from eo_kafka.sources.cut_logs import CutLogs
from eo_kafka.sources.lookup import Ends
from eo_kafka.sources.settings.options import SourceOptions

AT = TopicPartition("t", 0)
OPTIONS = SourceOptions.parse(
    {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}, streaming=True
)
# What a log lives through: records, another leader with all of them, one that lacks the newest.
HISTORY = st.lists(
    st.tuples(st.sampled_from(["append", "elect", "elect", "cut"]), st.integers(0, 9)), max_size=12
)


class Log:
    """The epoch of the leader that wrote each record, as KIP-101 has it."""

    def __init__(self) -> None:
        self.written_by: list[int] = []
        self.epoch = 0
        self.shortest = 0  # since the position was told

    def live_through(self, history: list[tuple[str, int]]) -> None:
        for what, number in history:
            if what == "append":
                self.written_by += [self.epoch] * number
                continue
            self.epoch += 1
            if what == "cut":
                del self.written_by[max(0, len(self.written_by) - number) :]
                self.shortest = min(self.shortest, len(self.written_by))

    def epoch_ends(
        self, _: SourceOptions, asked: dict[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, int]:
        assert asked == {AT: (asked[AT][0], self.epoch)}
        later = (place for place, epoch in enumerate(self.written_by) if epoch > asked[AT][0])
        return {AT: next(later, len(self.written_by))}


@given(before=HISTORY, back=st.integers(0, 3), after=HISTORY)
def test_a_log_that_was_cut_below_the_position_is_found(
    before: list[tuple[str, int]], back: int, after: list[tuple[str, int]]
) -> None:
    log = Log()
    log.live_through(before)
    read = max(0, len(log.written_by) - back)  # a batch may end before the end that is told
    position = Position({AT: read}, epochs={AT: log.epoch})
    log.shortest = len(log.written_by)
    log.live_through(after)
    ends = Ends({AT: len(log.written_by)}, {AT: log.epoch})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cut_logs, "_epoch_ends", log.epoch_ends)
        logs = CutLogs(OPTIONS)
        found = logs.find(position, ends)
        patched.setattr(cut_logs, "_epoch_ends", None)
        assert logs.find(position, ends) == [], "an idle query asks again and again"
    assert bool(found) == (log.shortest < read <= len(log.written_by))
    assert all(f"was cut at offset {log.shortest}, and the query is at" in one for one in found)


@pytest.mark.parametrize(
    "epochs", [{}, {AT: 5}, {AT: 6}], ids=["not-known", "the-same", "of-an-old-leader"]
)
def test_nobody_is_asked_unless_a_leader_has_changed(
    epochs: dict[TopicPartition, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_logs, "_epoch_ends", None)
    ends = Ends({AT: 20}, {AT: 5})
    assert CutLogs(OPTIONS).find(Position({AT: 10}, epochs=epochs), ends) == []
