"""The report: one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import html
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from eo_kafka.testing.history import Event
from soak.checker import Anomaly, Observed, story

TIMELINE = ("start", "end", "fault", "void", "late rows", "settled")
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem;
       color: #1c1c1c; background: #fff }
table { border-collapse: collapse; margin: .5rem 0 1.5rem }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid #ddd }
td.n { text-align: right; font-variant-numeric: tabular-nums }
pre { overflow-x: auto; background: #f6f6f4; padding: .8rem; font-size: 12px; line-height: 1.4 }
img { max-width: 100% }
.good { color: #14703c } .bad { color: #b3261e }
"""


@dataclass(frozen=True)
class Result:
    """All that a report tells."""

    seed: int
    minutes: float
    nodes: int
    observed: Sequence[Observed]
    events: Sequence[Event]
    anomalies: Sequence[Anomaly]


@dataclass(frozen=True)
class Recovery:
    """How long after the end of a fault a job's next batch was DONE, in seconds."""

    t: float
    kind: str
    job: str
    seconds: float


def recoveries(events: Sequence[Event]) -> list[Recovery]:
    """Of each fault: for the job that it hit, or for all jobs if it hit the brokers."""
    jobs = sorted({event.who for event in events if event.what == "done"})
    found = []
    for fault in (event for event in events if event.what == "fault"):
        for job in [fault.who] if fault.who in jobs else jobs:
            after = (
                event.t
                for event in events
                if event.t > fault.t and (event.who, event.what) == (job, "done")
            )
            first = next(after, None)
            if first is not None:
                found.append(Recovery(fault.t, fault.details["kind"], job, first - fault.t))
    return found


def write_report(result: Result, path: Path) -> None:
    """Write the page."""
    path.write_text(page(result))


def page(result: Result) -> str:
    """The page as text."""
    times = recoveries(result.events)
    verdict = (
        f'<p class="bad"><b>{len(result.anomalies)} anomalies.</b></p>'
        if result.anomalies
        else '<p class="good"><b>No anomaly.</b></p>'
    )
    parts = [
        f"<h1>Soak of {result.minutes:g} minutes, seed {result.seed}</h1>",
        f"<p>{result.nodes} broker(s), {len(result.observed)} jobs side by side.</p>",
        verdict,
        *(_anomaly(one, result) for one in result.anomalies),
        "<h2>Jobs</h2>",
        _jobs(result),
        "<h2>Faults</h2>",
        _faults(result.events, times),
        "<h2>Recovery: from the end of a fault to the job's next batch that is DONE</h2>",
        _plot(times),
        "<h2>How drivers ended</h2>",
        _ends(result.events),
        "<h2>Time line</h2>",
        f"<pre>{_lines(event for event in result.events if event.what in TIMELINE)}</pre>",
    ]
    title = f"<title>Soak, seed {result.seed}</title>"
    head = f'<meta charset="utf-8">{title}<style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def _anomaly(anomaly: Anomaly, result: Result) -> str:
    told = html.escape(f"{anomaly.kind} ({anomaly.job}): {anomaly.text}")
    return f'<h3 class="bad">{told}</h3><pre>{_lines(story(anomaly, result.events))}</pre>'


def _lines(events: Iterable[Event]) -> str:
    return html.escape("\n".join(map(str, events)))


def _jobs(result: Result) -> str:
    rows = []
    for seen in result.observed:
        mine = [event for event in result.events if event.who == seen.job]
        kinds = Counter(event.what for event in mine)
        rows.append(
            (
                seen.job,
                len(seen.source),
                len(seen.output),
                len(seen.watched),
                kinds["done"],
                kinds["void"],
                kinds["start"],
                sum(1 for one in result.anomalies if one.job == seen.job),
            )
        )
    names = ("job", "input", "output", "watched", "batches", "void", "starts", "anomalies")
    return table(names, rows)


def _faults(events: Sequence[Event], times: Sequence[Recovery]) -> str:
    counts = Counter(event.details["kind"] for event in events if event.what == "fault")
    rows = []
    for kind, count in sorted(counts.items()):
        seconds = sorted(one.seconds for one in times if one.kind == kind)
        middle = f"{seconds[len(seconds) // 2]:.1f}" if seconds else ""
        longest = f"{seconds[-1]:.1f}" if seconds else ""
        rows.append((kind, count, middle, longest))
    rows.append(("all", counts.total(), "", ""))
    return table(("fault", "times", "recovery, median s", "longest s"), rows)


def _ends(events: Sequence[Event]) -> str:
    ends = [event for event in events if event.what == "end"]
    counts = Counter((event.who, event.details["why"]) for event in ends)
    told = {(event.who, event.details["why"]): event.details["told"] for event in ends}
    rows = [(*which, count, told[which][:160]) for which, count in sorted(counts.items())]
    return table(("job", "ended", "times", "for example"), rows)


def table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table; numbers stand right."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td class="n">{value:,}</td>'
    return f"<td>{html.escape(str(value))}</td>"


def _plot(times: Sequence[Recovery]) -> str:
    if not times:
        return "<p>No batch was DONE after a fault.</p>"
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    kinds = sorted({one.kind for one in times}, reverse=True)
    jobs = sorted({one.job for one in times})
    figure, axes = pyplot.subplots(figsize=(10, 0.32 * len(kinds) + 1.2), layout="constrained")
    for number, job in enumerate(jobs):
        mine = [one for one in times if one.job == job]
        heights = [kinds.index(one.kind) + 0.18 * (number - (len(jobs) - 1) / 2) for one in mine]
        axes.scatter([one.seconds for one in mine], heights, s=18, alpha=0.7, label=job)
    axes.set_yticks(range(len(kinds)), kinds)
    axes.set_xlabel("seconds")
    axes.set_xlim(left=0)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower right")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    pyplot.close(figure)
    encoded = base64.b64encode(picture.getvalue()).decode()
    return f'<img alt="recovery times by fault" src="data:image/png;base64,{encoded}">'
