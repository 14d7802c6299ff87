"""What `benchmarks.latency` makes of what it saw."""

from __future__ import annotations

import numpy as np

from benchmarks.latency import Latency, render
from benchmarks.latency_ends import STAMP, Load

LOAD = Load("127.0.0.1:1", "t", 2, rate=100, size=100, warm_s=2, counted_s=10)


def test_only_what_came_after_the_first_seconds_counts() -> None:
    assert (LOAD.records, LOAD.counted) == (1200, 1000)
    seconds = np.concatenate([np.full(200, 9.0), np.arange(1, 1001) / 1000])
    found = Latency.of(seconds, LOAD, [100.0, 300.0, 200.0])
    assert (found.p50, round(found.p99, 2), found.most, found.batch_ms) == (
        500.5,
        990.01,
        1000,
        200,
    )


def test_the_page_has_medians_and_extremes_of_each_contender() -> None:
    runs = [Latency(300.0 + n, 500.0 + n, 900.0, 200.0) for n in (0, 10, 40)]
    without = [Latency(1.0, 2.0, 3.0, None)]
    text = render({"cores": 2}, 10_000, {"eo-kafka": runs, "Flink": without})
    rest = "900 (900 to 900) | 200 (200 to 200) |"
    assert f"| eo-kafka | 310 (300 to 340) | 510 (500 to 540) | {rest}" in text
    assert "| Flink | 1 (1 to 1) | 2 (2 to 2) | 3 (3 to 3) | - |" in text
    assert "10,000 records a second" in text and "cores 2" in text
    assert STAMP.size <= LOAD.size, "each record holds its number and time"
