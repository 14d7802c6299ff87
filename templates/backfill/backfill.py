"""Writes what was there before the stream, once: `python backfill.py`, or `spark-submit backfill.py
production`. Run again, it ends what a killed run began, or does nothing."""

from __future__ import annotations

import job
from pipeline import backfill


def main() -> None:
    """Until it is written."""
    section = job.parser(__doc__).parse_args().section
    given = job.settings(section)
    backfill(job.session(), given)


if __name__ == "__main__":
    main()
