"""Which of our formats options are for, where no word says it: by an option that only one has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ..core.maps import BACKEND

_BY_OPTION = {
    BACKEND.key: "eo-map",
    "table": "eo-postgres",
    "target": "eo-target",
    "path": "eo-files",
}
_OF_TOPICS = ("key.format", "value.format", "key.schema", "value.schema")
_WITH_COLUMNS = ("eo-files", "eo-postgres", "eo-target")  # each by its own type


def format_of(options: Iterable[str]) -> str:
    """The word after `format`, of the names of a sink's options; topics need no word."""
    given = {name.lower() for name in options}
    return next((of for key, of in _BY_OPTION.items() if key in given), "eo-kafka")


def problems_of(options: Iterable[str]) -> list[str]:
    """What the format itself cannot tell, as it was not asked, or ignores."""
    given = sorted({name.lower() for name in options})
    choosing = [name for name in given if name in _BY_OPTION]
    found = [
        f"Unknown option '{name}': did you mean '{close[0]}'?"
        for name in given
        if name not in _BY_OPTION
        and (close := difflib.get_close_matches(name, _BY_OPTION, n=1, cutoff=0.8))
    ]
    if len(choosing) > 1:
        found.append(
            f"Options {' and '.join(map(repr, choosing))} say two formats, "
            f"{' and '.join(repr(_BY_OPTION[name]) for name in choosing)}: take one of them away."
        )
    if format_of(given) in _WITH_COLUMNS:
        found += [
            f"Option '{name}' of the sink is for topics: a column is written by its own type."
            for name in given
            if name in _OF_TOPICS
        ]
    return found
