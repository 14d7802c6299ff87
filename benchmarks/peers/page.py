"""The page docs/benchmarks/peers.md and its plots, out of what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from benchmarks.peers.contenders import BARE_COPY, EO_KAFKA, FLINK, LANE, OURS, QUIX, SPARK
from benchmarks.peers.visible import Seen
from benchmarks.report import Rates, Spread, ratios, throughput_table

BARE = "bare librdkafka loop in C"
_METHOD = Path(__file__).with_name("method.md")
_PAGE, _COPIES_PLOT, _READS_PLOT = "peers.md", "peers_copy.svg", "peers_read.svg"


@dataclass(frozen=True)
class Results:
    """Bytes a record -> contender -> what came out, one a round."""

    copies: dict[int, dict[str, list[Seen]]]
    reads: dict[int, dict[str, list[float]]]

    def copy_rates(self, size: int) -> Rates:
        """Records/s by contender."""
        return {name: [one.rate for one in runs] for name, runs in self.copies[size].items()}


@dataclass(frozen=True)
class Goal:
    """That `mine` makes at least `times` what `theirs` makes."""

    mine: str
    theirs: str
    times: float | tuple[float, ...]  # for all sizes, or one each

    def line(self, by_size: Mapping[int, Rates]) -> str:
        """A row of the table of goals."""
        goals = self.times if isinstance(self.times, tuple) else (self.times,) * len(by_size)
        cells = []
        for rates, times in zip(by_size.values(), goals, strict=True):
            found = ratios(rates[self.mine], rates[self.theirs])
            verdict = "met" if found.median >= times else "**not met**"
            cells.append(f"{found}, {verdict}")
        told = "; ".join(f"{times:g}" for times in dict.fromkeys(goals))
        return f"| {self.mine} / {self.theirs} | {told} | {' | '.join(cells)} |"


# The bare copy shows which goals this client leaves possible
COPY_GOALS = (
    Goal(LANE, FLINK, 1.3),
    Goal(BARE_COPY, FLINK, 1.3),
    Goal(LANE, SPARK, 1.7),
    Goal(LANE, BARE_COPY, (0.45, 0.6)),
    Goal(LANE, QUIX, (8, 4)),
)
READ_GOALS = (Goal(EO_KAFKA, BARE, 0.6),)


def write(facts: Mapping[str, Any], results: Results, folder: Path) -> str:
    """Write page and plots into `folder`; the page."""
    copies = {size: results.copy_rates(size) for size in results.copies}
    plot(copies, "topic to topic", folder / _COPIES_PLOT)
    plot(results.reads, "read path, without Spark", folder / _READS_PLOT)
    text = render(facts, results)
    (folder / _PAGE).write_text(text)
    return text


def render(facts: Mapping[str, Any], results: Results) -> str:
    """The page as Markdown."""
    copies = {size: results.copy_rates(size) for size in results.copies}
    return Template(_METHOD.read_text()).substitute(
        facts=", ".join(f"{name} {value}" for name, value in facts.items()),
        rounds=_rounds(facts["rounds"]),
        goals=goals(copies, results.reads),
        copies="\n\n".join(
            throughput_table(f"### {size}-byte records", rates, OURS)
            + f"\n\n{intervals(results.copies[size])}"
            for size, rates in copies.items()
        ),
        reads="\n\n".join(
            throughput_table(f"### {size}-byte records", rates, BARE)
            for size, rates in results.reads.items()
        ),
        copies_plot=_COPIES_PLOT,
        reads_plot=_READS_PLOT,
    )


def _rounds(number: int) -> str:
    if number >= 3:
        return f"Rounds: {number}."
    return f"Rounds: {number}, where a judgement needs three or more: a first look."


def goals(copies: Mapping[int, Rates], reads: Mapping[int, Rates]) -> str:
    """What was to be reached, and whether it was, by the median of the rounds."""
    sizes = [f"{size}-byte records" for size in copies]
    lines = [
        f"| ratio | goal | {' | '.join(sizes)} |",
        f"|:--|--:|{'--:|' * len(sizes)}",
        *(goal.line(copies) for goal in COPY_GOALS),
        *(goal.line(reads) for goal in READ_GOALS),
    ]
    return "\n".join(lines)


def intervals(copies: Mapping[str, Sequence[Seen]]) -> str:
    """What says whether the commit intervals were comparable."""
    found = (
        f"{name} {Spread.of([one.interval_s for one in runs]).median:.2f} s"
        for name, runs in copies.items()
    )
    return f"Between two changes of what a reader may see, on average: {'; '.join(found)}."


def plot(by_size: Mapping[int, Rates], what: str, path: Path) -> None:
    """A bar a contender, its median, with a line from the slowest round to the quickest."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    tallest = max(len(rates) for rates in by_size.values())
    figure, panels = plt.subplots(
        1, len(by_size), figsize=(10, 1.2 + 0.4 * tallest), sharey=True, squeeze=False
    )
    for axes, (size, rates) in zip(panels[0], by_size.items(), strict=True):
        names = list(rates)[::-1]  # the first one on top
        spreads = [Spread.of(rates[name]) for name in names]
        medians = [one.median for one in spreads]
        whiskers = [
            [one.median - one.low for one in spreads],
            [one.high - one.median for one in spreads],
        ]
        colors = ["tab:orange" if name.startswith(EO_KAFKA) else "tab:blue" for name in names]
        axes.barh(names, medians, xerr=whiskers, color=colors, capsize=3)
        axes.set(xlabel="records/s", title=f"{what}, {size}-byte records")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f} k")
        axes.locator_params(axis="x", nbins=5)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
