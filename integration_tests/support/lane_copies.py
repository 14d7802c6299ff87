"""Copies by the direct lane into what is no topic."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from harness import Copy, kill_driver_at, produce, read_ledger

VALUES = [b"%d" % number for number in range(1000)]


class LaneCopy(Copy):
    """Of a topic, into the place that `into` says, by two batches of two tasks."""

    into: dict[str, str]
    schema: str | None = None  # as the source has them

    def as_job(self) -> dict[str, object]:
        options = {**self.sink_options, **self.into}
        del options["topic"]
        if "hazelcast.members" in options and options.get("commit") != "two-phase":
            mine = ("kafka.", "jobName")  # such puts have no ledger
            options = {name: of for name, of in options.items() if not name.startswith(mine)}
        return {**super().as_job(), "sink_options": options, "schema": self.schema}


def lane_copy(broker, make_topic, tmp_path: Path, into: dict[str, str]) -> LaneCopy:
    """With its records in the source."""
    source = make_topic("in", partitions=2)
    found = LaneCopy(
        servers=broker.bootstrap_servers,
        source_topic=source,
        sink_topic="none",
        checkpoint=tmp_path / "checkpoint",
        job_name=f"job-{source}",
        per_batch=500,
        source="direct",
    )
    found.into = into
    produce(found.servers, found.source_topic, VALUES)
    return found


def die_twice(copy: LaneCopy, points, task: str, driver: str, log: Path) -> None:
    """A task dies with some of its rows out, and the driver later in that batch."""
    points.arm(task, "kill")
    kill_driver_at(copy, points, driver, log)
    assert points.reached(task)


def assert_done(copy: LaneCopy, found: Counter) -> None:
    """Every record is there once, and every batch is DONE."""
    wanted = Counter(VALUES)
    assert found == wanted, f"lost {(wanted - found).total()}, strange {(found - wanted).total()}"
    assert {one.state.value for one in read_ledger(copy).decisions.values()} == {"DONE"}
