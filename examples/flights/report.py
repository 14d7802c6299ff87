"""What the demo tells: a table, and a chart of the delays with the kills marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from compare import Key, Row
from nemesis import Kill

mpl.use("agg")

import matplotlib.dates as mdates
import matplotlib.pyplot as plt

MARKS = {"JVM": "#c0392b", "Python driver": "#8e44ad", "all processes": "#111111"}
COUNTS = ["flights", "cancelled", "delayed", "minutes", "worst"]


def as_table(windows: Sequence[tuple[Key, Row]]) -> pd.DataFrame:
    """The output topic's windows, a row each."""
    table = pd.DataFrame([{"carrier": key[0], "hour": key[1], **row} for key, row in windows])
    table["hour"] = pd.to_datetime(table["hour"], utc=True)
    return table.reindex(columns=["airline", "carrier", "hour", *COUNTS])


def airlines(table: pd.DataFrame, most: int = 16) -> str:
    """Airlines by the share of their flights that left late."""
    sums = table.groupby("airline")[["flights", "cancelled", "delayed", "minutes"]].sum()
    departed = sums["flights"] - sums["cancelled"]
    sums["late %"] = 100 * sums["delayed"] / departed
    sums["mean delay"] = sums["minutes"] / departed
    sums["worst"] = table.groupby("airline")["worst"].max()
    sums = sums.sort_values("late %", ascending=False).head(most)
    rows = [f"  {'airline':<28}{'flights':>9}{'cancelled':>11}{'late':>8}{'mean':>9}{'worst':>8}"]
    for name, row in sums.iterrows():
        rows.append(
            f"  {name:<28}{row['flights']:>9,.0f}{row['cancelled']:>11,.0f}{row['late %']:>7.1f}%"
            f"{row['mean delay']:>5.0f} min{row['worst'] / 60:>6.1f} h"
        )
    return "\n".join(rows)


def sample(table: pd.DataFrame, most: int = 5) -> str:
    """The windows with the most late flights."""
    worst = table.sort_values(["delayed", "minutes"], ascending=False).head(most)
    return "\n".join(
        f"  {row.hour:%d %b %H:%M} UTC  {row.airline:<26}{row.delayed:>3.0f} of {row.flights:>2.0f}"
        f" flights late, {row.minutes:>5,.0f} minutes in all"
        for row in worst.itertuples()
    )


def chart(table: pd.DataFrame, kills: Sequence[Kill], title: str, path: Path) -> None:
    """Mean departure delay in each hour, and in the week around it; kills at the event time the
    job had reached, by number: what was killed is below the title, where no line is."""
    sums = table.groupby("hour")[["minutes", "flights", "cancelled"]].sum().astype(float)
    departed = sums["flights"] - sums["cancelled"]
    hourly = (sums["minutes"] / departed).where(departed >= 5)  # a mean of few is noise
    weekly = (
        sums["minutes"].rolling("7D", center=True).sum() / departed.rolling("7D", center=True).sum()
    )
    figure, axes = plt.subplots(figsize=(13, 5.5), dpi=110, layout="constrained")
    axes.plot(hourly.index, hourly, color="#9cc3e6", linewidth=0.5, label="each hour")
    axes.plot(weekly.index, weekly, color="#1f4e79", linewidth=2.2, label="7 days around it")
    top = hourly.quantile(0.998)
    axes.set_ylim(min(-5, hourly.quantile(0.002)), top * 1.05)
    at_once: dict[str, list[int]] = {}
    for number, kill in enumerate(kills, start=1):
        if kill.event_time:
            at_once.setdefault(kill.event_time, []).append(number)
    for event_time, numbers in at_once.items():
        at, color = pd.Timestamp(event_time), MARKS.get(kills[numbers[0] - 1].target, "#d68910")
        axes.axvline(at, color=color, linewidth=1.4, linestyle="--")
        axes.text(
            at,  # type: ignore[arg-type]
            1.01,
            ", ".join(map(str, numbers)),
            transform=axes.get_xaxis_transform(),
            color=color,
            ha="center",
        )
    killed = ", ".join(f"{number} {kill.target}" for number, kill in enumerate(kills, start=1))
    axes.set_title(title, loc="left", pad=42)
    axes.text(0, 1.07, f"Kills: {killed}", transform=axes.transAxes)
    axes.set_ylabel("mean departure delay, minutes")
    axes.set_xlabel("event time: scheduled departure")
    axes.xaxis.set_major_formatter(mdates.DateFormatter("%d %b"))  # type: ignore[no-untyped-call]
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1.1), ncols=2, frameon=False)
    figure.savefig(path)
    plt.close(figure)
