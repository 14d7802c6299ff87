"""What the benchmark makes of its samples: medians, spreads, ratios and the printed tables."""

from __future__ import annotations

import pytest

from benchmarks.report import (
    Batch,
    Spread,
    cost_line,
    phase_medians,
    ratios,
    small_batch_table,
    steady_rate,
    throughput_table,
)
from benchmarks.typed import with_part


def batch(rows: int, milliseconds: float, **phases: float) -> Batch:
    return Batch(rows, {"triggerExecution": milliseconds, **phases})


def cells(table: str, first: str) -> list[str]:
    """The cells of the line that begins with `first`."""
    found = [line for line in table.splitlines() if line.startswith(f"| {first} ")]
    assert len(found) == 1, table
    return [cell.strip() for cell in found[0].strip("|").split("|")]


def test_the_first_and_the_last_batch_are_not_in_the_rate() -> None:
    measured = [batch(100, 60_000), batch(100, 500), batch(50, 1000), batch(100, 9000)]
    assert steady_rate(measured) == 100


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_rate_needs_a_third_batch(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} batches"):
        steady_rate([batch(100, 500)] * count)


def test_a_rate_needs_rows() -> None:
    with pytest.raises(ValueError, match="too few"):
        steady_rate([batch(100, 500), batch(0, 500), batch(100, 500)])


def test_spread() -> None:
    assert Spread.of([3, 1, 2]) == Spread(2, 1, 3)
    assert Spread.of([4, 1, 2, 3]) == Spread(2.5, 1, 4)
    with pytest.raises(ValueError, match="no values"):
        Spread.of([])


def test_ratios_are_taken_within_a_round() -> None:
    # the machine was four times slower in the second round: twice as fast holds in both
    assert ratios([200, 50, 220], [100, 25, 100]) == Spread(2, 2, 2.2)


def test_ratios_need_the_same_rounds() -> None:
    with pytest.raises(ValueError):
        ratios([1, 2], [1])


def test_throughput_table() -> None:
    table = throughput_table(
        "Title", {"ours": [3000, 1000, 2000], "kafka": [1000, 1000, 1000]}, "kafka"
    )
    assert table.startswith("Title\n\n| contender")
    assert cells(table, "ours") == ["ours", "2,000 (1,000-3,000)", "2.00 (1.00-3.00)"]
    assert cells(table, "kafka") == ["kafka", "1,000 (1,000-1,000)", "1.00 (1.00-1.00)"]
    lines = table.splitlines()[2:]
    assert len({len(line) for line in lines}) == 1, "columns line up"


def test_cost_line() -> None:
    rates = {"strong": [50.0, 90.0, 80.0], "weak": [100.0, 100.0, 100.0]}
    assert cost_line(rates, "strong", "weak") == "strong / weak: 0.80 (0.50-0.90)"


def test_phase_medians() -> None:
    batches = [batch(1, 100, addBatch=60), batch(1, 300), batch(1, 200, addBatch=80)]
    assert phase_medians(batches, ["triggerExecution", "addBatch"]) == {
        "triggerExecution": 200,
        "addBatch": 60,
    }
    with pytest.raises(ValueError, match="no values"):
        phase_medians([], ["addBatch"])


def test_small_batch_table() -> None:
    table = small_batch_table(
        "Title",
        {
            "nothing": [batch(1, 100, addBatch=40), batch(1, 120, addBatch=50)],
            "ours": [batch(1, 300, addBatch=200)],
            "quick": [batch(1, 50, addBatch=20)],
        },
        ["triggerExecution", "addBatch"],
        "nothing",
    )
    assert cells(table, "contender") == [
        "contender",
        "triggerExecution",
        "addBatch",
        "over nothing",
    ]
    assert cells(table, "nothing") == ["nothing", "110", "45", "+0"]
    assert cells(table, "ours") == ["ours", "300", "200", "+190"]
    assert cells(table, "quick") == ["quick", "50", "20", "-60"]


def test_a_format_has_one_part_of_the_page_of_typed_values() -> None:
    page = "# Title\n\nintro\n\n## JSON\n\nfirst\n"
    both = with_part(page, "## Avro\n\nfirst")
    assert both == page + "\n## Avro\n\nfirst\n"
    assert with_part(both, "## Avro\n\nsecond") == page + "\n## Avro\n\nsecond\n"
    assert with_part(both, "## JSON\n\nanew") == both.replace("JSON\n\nfirst", "JSON\n\nanew")
