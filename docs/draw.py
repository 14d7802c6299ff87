"""Draws README's pictures, and its table of the demo: `python docs/draw.py`.

The demo's figures are what `make demo` and `make demo FORMAT=kafka` printed (docs/demo/*.txt);
those of speed are in the tables of docs/benchmarks. The quick start's terminal is what
docs/record_quickstart.py saw. A test fails when a picture or README is stale.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

DOCS = Path(__file__).parent
README = DOCS.parent / "README.md"
FORMATS = ("kafka", "eo-kafka")
FACTS = ("flights", "records", "kills", "lost", "duplicates", "wrong")
BLUE, RED, GREY, INK = "#2f6fb3", "#c0392b", "#5f6b78", "#22303c"
MONOSPACE = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
PROMPTS, SAID = {"1": "#f0b35a", "2": "#7fc4f5", "3": "#8fd694"}, "#c9d3dc"
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
    'height="{height}" font-family="system-ui, sans-serif" font-size="14" fill="{ink}">\n'
    '<rect width="{width}" height="{height}" fill="#ffffff"/>\n'
)


def printed(name: str) -> dict[str, str]:
    """What the demo printed of a run: one line a fact."""
    text = (DOCS / "demo" / f"{name}.txt").read_text()
    return dict(re.findall(r"^(\w+) {2,}(\S.*)$", text, re.MULTILINE))


def side_by_side() -> str:
    """The facts of both runs, as README shows them."""
    runs = {name: printed(name) for name in FORMATS}
    rows = [("", *(f"format({name!r})" for name in FORMATS))]
    for fact in FACTS:
        rows.append((fact, *(_short(fact, runs[name][fact]) for name in FORMATS)))
    return "\n".join(f"{row[0]:<12}{row[1]:<30}{row[2]}".rstrip() for row in rows)


def _short(fact: str, value: str) -> str:
    """The number of kills alone: what was killed is in the picture."""
    return value.partition(":")[0] if fact == "kills" else value.partition(" committed")[0]


def demo() -> str:
    """Two jobs that are killed, and how many records each has written."""
    runs = {name: printed(name) for name in FORMATS}
    expected = _number(re.search(r"([\d,]+) windows", runs["kafka"]["records"])[1])  # type: ignore[index]
    most = max(_number(run["records"]) for run in runs.values())
    scale = 430 / most
    width, left, at = 860, 110, 560
    lines = [
        HEAD.format(width=width, height=250, ink=INK),
        _text(20, 28, "One job over 336,776 flights, killed while it runs", size=17, weight=600),
        _text(
            20, 50, f"✕ a SIGKILL    │ {expected:,} records: what a batch computation gives", GREY
        ),
    ]
    for row, name in enumerate(FORMATS):
        y = 82 + 84 * row
        targets = runs[name]["kills"].partition(": ")[2].split(", ")
        records, repeated = _number(runs[name]["records"]), _number(runs[name]["duplicates"])
        lines += [_text(20, y + 26, name, weight=600)]
        step = 430 / (len(targets) + 1)
        for place in range(1, len(targets) + 1):
            lines.append(_text(left + step * place, y, "✕", RED, size=18, anchor="middle"))
        good = records - repeated
        lines += [
            _bar(left, y + 8, good * scale, BLUE),
            _bar(left + good * scale, y + 8, repeated * scale, RED),
            _line(left + expected * scale, y + 2, y + 40),
            _text(at, y + 24, f"{records:,} records", weight=600),
            _text(at, y + 43, _verdict(runs[name]), RED if repeated else BLUE),
        ]
    last = runs["eo-kafka"]["kills"].rpartition(", ")[2]
    note = f"kafka: its JVM, each time while a batch was half written. eo-kafka, the last: {last}."
    return "".join([*lines, _text(20, 236, note, GREY, size=12), "</svg>\n"])


def _verdict(run: dict[str, str]) -> str:
    kinds = (("lost", "lost"), ("duplicates", "repeated"), ("wrong", "wrong"))
    return ", ".join(f"{run[fact]} {word}" for fact, word in kinds)


def quickstart() -> str:
    """What the quick start's commands printed, as a terminal shows it."""
    lines = (DOCS / "demo" / "quickstart.txt").read_text().splitlines()
    size, row, gap, margin = 13, 19, 8, 18
    drawn, y = [], margin - gap
    for line in lines:
        prompt = re.match(r"(\d)\$ (.*)", line)
        y += row + (gap if prompt else 0)
        if prompt:
            number, command = prompt.groups()
            words = f'<tspan fill="{PROMPTS[number]}">{number}$</tspan> {html.escape(command)}'
        else:
            words = f'<tspan fill="{SAID}">{html.escape(line)}</tspan>'
        drawn.append(f'<text x="{margin}" y="{y}" xml:space="preserve">{words}</text>\n')
    width, height = 2 * margin + round(0.62 * size * max(map(len, lines))), y + margin
    head = HEAD.replace("system-ui, sans-serif", MONOSPACE).replace("#ffffff", INK)
    head = head.replace('font-size="14"', f'font-size="{size}"')
    return "".join([head.format(width=width, height=height, ink="#ffffff"), *drawn, "</svg>\n"])


def speed() -> str:
    """Throughput as multiples of Spark's connector, medians with their extremes."""
    page = (DOCS / "benchmarks" / "throughput.md").read_text()
    scaling = (DOCS / "benchmarks" / "scaling.md").read_text()
    by_size = scaling.split("## By record size\n")[1].split("\n## ")[0]
    (line,) = (x for x in by_size.splitlines() if x.startswith("| 100,000 B "))
    _, copies_of_100_kb, *_ = _ratios(line)
    rows = []
    for label, title, contender in (
        ("read", "Read-only", "eo-kafka"),
        ("copy", "End to end (topic to topic)", "eo-kafka exactly-once"),
        ("direct lane", "End to end (topic to topic)", "eo-kafka direct"),
    ):
        for size, bytes_each in (("100 B", 100), ("1 KB", 1000)):
            section = page.split(f"## {title}, {bytes_each}-byte")[1].split("\n## ")[0]
            (line,) = (x for x in section.splitlines() if x.startswith(f"| {contender} "))
            rows.append((f"{label}, {size}", *_ratios(line)[-1]))
        if label == "copy":
            rows.append(("copy, 100 KB", *copies_of_100_kb))
    left, scale = 130, 190
    lines = [
        HEAD.format(width=720, height=78 + 34 * len(rows), ink=INK),
        _text(20, 28, "Throughput: eo-kafka as a multiple of Spark's kafka", size=17, weight=600),
        _text(20, 48, "copy: exactly once, beside kafka at least once; 2 cores; min to max", GREY),
    ]
    for row, (label, median, low, high) in enumerate(rows):
        y, color = 64 + 34 * row, BLUE if median >= 1 else RED
        middle = y + 11
        lines += [
            _text(20, y + 16, label),
            _bar(left, y, median * scale, color),
            f'<path d="M{left + low * scale:.0f} {middle}H{left + high * scale:.0f}" '
            f'stroke="{INK}" stroke-width="1.5"/>\n',
            _text(left + max(median, high) * scale + 8, y + 16, f"{median:.2f}", weight=600),
        ]
    bottom = 62 + 34 * len(rows)
    lines += [
        _line(left + scale, 58, bottom),
        _text(left + scale + 6, bottom + 8, "1 = kafka", GREY),
    ]
    return "".join([*lines, "</svg>\n"])


def _ratios(line: str) -> list[tuple[float, float, float]]:
    """The medians with their extremes in a table's row, left to right."""
    found = re.findall(r"([\d.]+) \(([\d.]+)-([\d.]+)\)", line)
    return [(float(median), float(low), float(high)) for median, low, high in found]


def _number(text: str) -> int:
    return int(text.split(maxsplit=1)[0].replace(",", ""))


def _text(
    x: float,
    y: float,
    words: str,
    color: str = INK,
    *,
    size: int = 14,
    weight: int = 400,
    anchor: str = "start",
) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" fill="{color}" font-size="{size}" '
        f'font-weight="{weight}" text-anchor="{anchor}">{words}</text>\n'
    )


def _bar(x: float, y: float, width: float, color: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="22" fill="{color}"/>\n'


def _line(x: float, top: float, bottom: float) -> str:
    return f'<path d="M{x:.1f} {top}V{bottom}" stroke="{INK}" stroke-width="2"/>\n'


PICTURES = {"demo.svg": demo, "quickstart.svg": quickstart, "speed.svg": speed}
if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (DOCS / name).write_text(draw())
    block = re.compile(r"(?<=output\.\n\n```\n).*?(?=\n```)", re.DOTALL)
    README.write_text(block.sub(side_by_side(), README.read_text()))
