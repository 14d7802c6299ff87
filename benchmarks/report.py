"""From samples to medians, spreads, ratios and text. Pure: no Spark, no Kafka, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

Rates = Mapping[str, Sequence[float]]  # contender -> records/s, one a round, in order of rounds


@dataclass(frozen=True)
class Batch:
    """One micro-batch, as Spark's progress report tells: rows, and milliseconds by phase."""

    rows: int
    phases_ms: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """The whole batch, from planning to the commit log."""
        return self.phases_ms["triggerExecution"] / 1000


@dataclass(frozen=True)
class Spread:
    """A median and the extremes around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ValueError when there are none."""
        if not values:
            raise ValueError("no values were measured")
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def steady(batches: Sequence[Batch]) -> Sequence[Batch]:
    """All batches but the first and the last."""
    return batches[1:-1]


def steady_rate(batches: Sequence[Batch]) -> float:
    """Records/s of all batches but the first and the last.

    The first also pays for starting workers and clients; in the last a reader can be left waiting
    at the end of the log, where a stream that has more to read never is. Raises ValueError when
    nothing is left, or nothing was read.
    """
    counted = steady(batches)
    rows = sum(batch.rows for batch in counted)
    if not rows:
        raise ValueError(f"{len(batches)} batches with rows are too few: a rate needs three")
    return rows / sum(batch.seconds for batch in counted)


def ratios(rates: Sequence[float], baseline: Sequence[float]) -> Spread:
    """How many times `baseline` each round made, compared within the round.

    A round is minutes on the same machine under the same load: the quotient within it holds where
    the quotient of two medians would compare different minutes. Raises ValueError when the number
    of rounds differs.
    """
    return Spread.of([mine / base for mine, base in zip(rates, baseline, strict=True)])


def throughput_table(title: str, rates: Rates, baseline: str) -> str:
    """One line a contender: records/s and the ratio to `baseline`."""
    rows = [("contender", "records/s, median (min-max)", f"x {baseline}, median (min-max)")]
    for contender, measured in rates.items():
        speed = Spread.of(measured)
        rows.append(
            (
                contender,
                f"{speed.median:,.0f} ({speed.low:,.0f}-{speed.high:,.0f})",
                str(ratios(measured, rates[baseline])),
            )
        )
    return _table(title, rows)


def cost_line(rates: Rates, stronger: str, weaker: str) -> str:
    """What the stronger guarantee keeps of the weaker one's throughput."""
    return f"{stronger} / {weaker}: {ratios(rates[stronger], rates[weaker])}"


def phase_medians(batches: Sequence[Batch], phases: Sequence[str]) -> dict[str, float]:
    """Median milliseconds of each phase; a phase that a batch does not report took none.

    Raises ValueError when there are no batches.
    """
    return {
        phase: Spread.of([batch.phases_ms.get(phase, 0.0) for batch in batches]).median
        for phase in phases
    }


def small_batch_table(
    title: str, batches: Mapping[str, Sequence[Batch]], phases: Sequence[str], floor: str
) -> str:
    """One line a contender: median milliseconds by phase; the first phase is the whole batch, and
    the last column what it takes longer than `floor`."""
    medians = {name: phase_medians(measured, phases) for name, measured in batches.items()}
    whole = phases[0]
    rows = [("contender", *phases, f"over {floor}")]
    for name, phase in medians.items():
        over = phase[whole] - medians[floor][whole]
        rows.append((name, *(f"{phase[key]:.0f}" for key in phases), f"{over:+.0f}"))
    return _table(title, rows)


def _table(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Markdown, readable as it is: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        return f"| {' | '.join(cells)} |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([title, "", line(rows[0]), line(rule), *map(line, rows[1:])])
