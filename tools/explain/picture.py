"""An explanation as text for people: the verdict, a line for each part of the query, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..shared.command_line import wrapped
from .facts import Guarantee

if TYPE_CHECKING:
    from .verdict import Explanation, Line

VERDICTS = {
    "exactly-once": "EXACTLY ONCE: nothing is lost and nothing is written twice.",
    "at-least-once": "AT LEAST ONCE: nothing is lost, and rows may be written twice.",
    "none": "NO GUARANTEE: rows may be lost, written twice or differ.",
    "not-known": "NOT KNOWN: explain cannot tell.",
}
AT_BEST = {
    "exactly-once": "At best exactly once",
    "at-least-once": "At best at least once",
}
MARKS = {
    Guarantee.EXACTLY_ONCE.word: "ok",
    Guarantee.AT_LEAST_ONCE.word: "weak",
    Guarantee.NOT_KNOWN.word: "?",
    Guarantee.NONE.word: "NO",
}


def picture(explanation: Explanation) -> str:
    """All of it, with a line's end after the last line."""
    return "\n".join(_text(explanation)) + "\n"


def _text(explanation: Explanation) -> Iterator[str]:
    verdict = VERDICTS[explanation.guarantee]
    if explanation.guarantee == "not-known" and explanation.at_best in AT_BEST:
        verdict += f" {AT_BEST[explanation.at_best]}, if what is marked '?' holds."
    yield verdict
    yield ""
    yield from _lines(explanation.lines)
    for title, sentences in (
        ("Because", explanation.why),
        ("To raise it", explanation.remedies),
        ("It takes for granted", explanation.needs),
        ("Look at this", explanation.warnings),
    ):
        if sentences:
            yield ""
            yield f"{title}:"
            for sentence in sentences:
                yield wrapped("- ", sentence)


def _lines(lines: Sequence[Line]) -> Iterator[str]:
    heads = [(line.place, line.name, MARKS[line.allows]) for line in lines]
    widths = [min(30, max(len(head[at]) for head in heads)) for at in range(3)]
    for line, (place, name, mark) in zip(lines, heads, strict=True):
        cells = (place.ljust(widths[0]), name.ljust(widths[1]), mark.ljust(widths[2]))
        word = "" if line.sentence.startswith(line.word) else f"{line.word}: "
        yield wrapped("  ".join(cells) + "  ", f"{word}{line.sentence}")
