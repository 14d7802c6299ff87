"""What a supervisor tells a driver program, and what that says of itself: in files of theirs.

Times are of this machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

# With `-c`, what is imported is looked for where the user is, and never beside the program's file.
COMMAND = "from eo_kafka.tools.run.driver_program import main; main()"

# For a driver to have a query. A restore of a terabyte or a queue of YARN takes hours, and whoever
# is ended in it begins anew; a start that hangs is ended some day.
START_S = 6 * 3600.0


@dataclass(frozen=True)
class DriverWords:
    """What the program is told."""

    function: str
    config: dict[str, str]
    conf: dict[str, str]  # Spark's settings
    once: bool
    grace_s: float
    status: str  # the file to write that into
    job: str = ""  # whose control topic is obeyed; empty: of none
    metrics: str = ""  # the file for those of its queries; empty: nobody asks


@dataclass
class Status:
    """Of one run of a driver."""

    pid: int = 0
    query: str | None = None  # its id, once it is started
    batch: int | None = None  # the newest one that has ended in this run
    busy_since_s: float | None = None  # has been at work without ending a batch
    told_s: float = 0.0
    ended: bool = False  # the query has, and the process is about to
    error: str | None = None  # an error's class, if it is of ours
    said: str = ""

    def write(self, path: Path) -> None:
        """Whole or not at all."""
        self.told_s = time.monotonic()
        staged = path.with_suffix(".new")
        staged.write_text(json.dumps(asdict(self)))
        staged.replace(path)

    @staticmethod
    def read(path: Path) -> Status:
        """What was told last; nothing yet: as a new one."""
        try:
            return Status(**json.loads(path.read_text()))
        except FileNotFoundError:
            return Status()

    def stuck_for_s(self, now_s: float) -> float:
        """For how long there was something to do and no batch ended, or nothing was told at all; or
        for how long a start has taken more than `START_S`."""
        if self.ended or not self.told_s:
            return 0.0
        if not self.query:  # the driver says nothing between its own start and its query's
            return max(0.0, now_s - self.told_s - START_S)
        since = self.told_s if self.busy_since_s is None else min(self.busy_since_s, self.told_s)
        return now_s - since
