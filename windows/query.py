"""`tumbling`, `sliding` and `session`: windows over a streaming DataFrame that lose no late row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .aggregates import Aggregate
from .asked import Asked
from .watermarks import Watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def tumbling(
    events: DataFrame,
    *,
    time: str,
    size: str,
    aggregates: Mapping[str, Aggregate],
    watermark: str | Watermark,
    by: Sequence[str] = (),
    allowed_lateness: str = "0",
    early: bool = False,
) -> DataFrame:
    """Windows of one size, one after the other, with the rows that came too late for them.

    What the windows are stays as long as the checkpoint: with another `size`, `time`, `by`,
    `allowed_lateness` or other `aggregates` a start stops. What the functions of a `fold` do is not
    seen.

    Each row is in one window, from `window_start` to before `window_end`; windows begin at whole
    multiples of `size` since 1970. The result comes out when the watermark has passed the window's
    end, and again with each batch that brings rows of it within `allowed_lateness`. Later rows, and
    rows without a time, come out as they are. So rows in the newest results plus late rows are the
    rows of the input. Nothing depends on the clock: a batch that runs again gives the same rows.

    Runs on the driver, once, when the query is made. Needs PySpark 4.1 or newer, pandas and
    protobuf (`pip install 'eo-kafka[state]'`), and Spark's RocksDB state store.

    Args:
        events: A streaming DataFrame without a watermark.
        time: Its column of type TIMESTAMP with the event time.
        size: How long a window is, such as `1 minute`.
        aggregates: What to compute: `{column of the output: aggregate}`.
        watermark: A policy, or a time such as `10 seconds`, for `lag` of it.
        by: Columns: each combination of their values has windows of its own. None of TIMESTAMPs.
        allowed_lateness: How long after its end the watermark may have come and a window still
            take rows.
        early: Also give out the results of windows that are still open, with each batch that
            changes them.

    Returns:
        A streaming DataFrame for append mode. Its columns are those of `by`, `window_start`,
        `window_end`, those of `aggregates`, and

        - `kind`: `early`; `on_time`, the first result after the end; `correction`, one that
          replaces it; `late`, a row of the input
        - `revision`: numbers the results of a window from 0; the highest one counts
        - `late_row`: the row of the input, whole, in a row of kind `late`; else null

    Raises:
        OptionsError: Bad arguments, all together; or the session has another state store.
        EnvironmentRefused: This Spark has no such windows, or a package is missing.

    Examples:
        >>> counts = eo_kafka.windows.tumbling(
        ...     clicks,
        ...     time="at",
        ...     size="1 minute",
        ...     by=["page"],
        ...     aggregates={"clicks": eo_kafka.windows.count()},
        ...     watermark="10 seconds",
        ...     allowed_lateness="10 minutes",
        ... )
    """
    asked = Asked(events, time, by, aggregates, watermark, allowed_lateness, early)
    length = asked.span("size", size)
    return asked.fixed(length, length)


def sliding(
    events: DataFrame,
    *,
    time: str,
    size: str,
    slide: str,
    aggregates: Mapping[str, Aggregate],
    watermark: str | Watermark,
    by: Sequence[str] = (),
    allowed_lateness: str = "0",
    early: bool = False,
) -> DataFrame:
    """Windows of one size that overlap: one begins with each `slide`.

    A row is in each window that covers its time. It comes out as a late row once for each of them
    that it is too late for, with that window's bounds.

    Runs on the driver, once, when the query is made.

    Args:
        events: As `tumbling`.
        time: As `tumbling`.
        size: How long a window is, such as `10 minutes`.
        slide: The time from one window's start to the next, at most `size`.
        aggregates: As `tumbling`.
        watermark: As `tumbling`.
        by: As `tumbling`.
        allowed_lateness: As `tumbling`.
        early: As `tumbling`.

    Returns:
        A streaming DataFrame, as `tumbling`.

    Raises:
        OptionsError: As `tumbling`.
        EnvironmentRefused: As `tumbling`.

    Examples:
        >>> counts = eo_kafka.windows.sliding(
        ...     clicks,
        ...     time="at",
        ...     size="10 minutes",
        ...     slide="1 minute",
        ...     aggregates={"clicks": eo_kafka.windows.count()},
        ...     watermark="10 seconds",
        ... )
    """
    asked = Asked(events, time, by, aggregates, watermark, allowed_lateness, early)
    length, step = asked.span("size", size), asked.span("slide", slide)
    if step > length:
        asked.problems.append("slide: must not be longer than size: rows would be in no window.")
    return asked.fixed(length, step)


def session(
    events: DataFrame,
    *,
    time: str,
    gap: str,
    aggregates: Mapping[str, Aggregate],
    watermark: str | Watermark,
    by: Sequence[str] = (),
    allowed_lateness: str = "0",
    early: bool = False,
) -> DataFrame:
    """Windows that last as long as rows come: a session ends `gap` after its last row.

    Sessions that touch become one. If one of them has come out already, it comes out once more
    before, with kind `retracted`, its old bounds and its old values: take it back. A row is late
    if the session that it makes, alone or with others, is closed.

    Runs on the driver, once, when the query is made.

    Args:
        events: As `tumbling`.
        time: As `tumbling`.
        gap: How long nothing may come within a session, such as `30 minutes`.
        aggregates: As `tumbling`.
        watermark: As `tumbling`.
        by: As `tumbling`.
        allowed_lateness: As `tumbling`.
        early: As `tumbling`.

    Returns:
        A streaming DataFrame, as `tumbling`. A late row has the bounds of a session of its own.

    Raises:
        OptionsError: As `tumbling`.
        EnvironmentRefused: As `tumbling`.

    Examples:
        >>> visits = eo_kafka.windows.session(
        ...     clicks,
        ...     time="at",
        ...     gap="30 minutes",
        ...     by=["page"],
        ...     aggregates={"clicks": eo_kafka.windows.count()},
        ...     watermark="10 seconds",
        ... )
    """
    asked = Asked(events, time, by, aggregates, watermark, allowed_lateness, early)
    length = asked.span("gap", gap)
    return asked.sessions(length)
