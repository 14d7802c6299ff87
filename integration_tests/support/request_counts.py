"""How many requests of each kind a batch costs the brokers: counted by a proxy, in the third and
later batches of a job that the sink's own code runs, without Spark.

    python integration_tests/support/request_counts.py

writes golden/requests.json anew: a line for each step and kind of request, a number for each job.
Its comments stay; a new line gets an empty one, which test_request_counts.py refuses: whoever adds
a request says what it is for.

What counts is the fewest that one of the batches got by with: who waits for something (the last
stable offset, a coordinator) asks once more. Fetch is left out: a consumer asks again until there
is something. Metadata and ApiVersions are bounded: librdkafka asks by itself, with each connection
and until it has heard of a topic's leader, which is a matter of milliseconds; and so is
AddPartitionsToTxn: it names a task's rows and its token together or apart; and a task's
FindCoordinator, which librdkafka sends again where the answer takes half a second. What only some
batches need (a tombstone now and then) is not seen here.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))  # conftest.py, when this is the program

import pyarrow as pa

from conftest import topic_maker
from eo_kafka.sinks.protocol import committer, one_phase, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.sinks.rows import plain_write
from eo_kafka.testing.proxy import Api, Proxy, proxied_broker
from hand_made_job import HandMadeJob, rows

GOLDEN = Path(__file__).parent / "golden" / "requests.json"
WARM_UP, COUNTED = 3, 9  # batches; nine use each slot of the transactional ids
BOUNDED = {Api.METADATA.name, Api.API_VERSIONS.name, Api.ADD_PARTITIONS_TO_TXN.name}
Lines = dict[str, dict[str, int]]  # "<step> <kind of request>" -> job -> how many


class Counted:
    """A job of `tasks` tasks, and what its batches sent through the proxy."""

    def __init__(self, proxy: Proxy, job: HandMadeJob, tasks: int, write: Any) -> None:
        self._proxy, self._job, self._tasks, self._write = proxy, job, tasks, write
        self._seen: dict[str, list[Counter[str]]] = {}

    def run(self) -> Lines:
        for batch in range(WARM_UP + COUNTED):
            if batch == WARM_UP:
                self._seen.clear()
            self._batch(batch)
        return {phase: fewest(seen) for phase, seen in self._seen.items()}

    def _batch(self, batch: int) -> None:
        job, options = self._job, self._job.options
        if self._write is plain_write.write:
            with self._phase("tasks"):
                for task in range(self._tasks):
                    plain_write.write(options, task, records(batch))
            return
        job.begin(batch)
        with self._phase("S1"):
            plan = make_plan(options)
        with self._phase("tasks"):
            reports = [
                self._write(options, plan, identity, records(batch))
                for identity in (
                    TaskIdentity(job.query, batch, task, batch * self._tasks + task, job.location)
                    for task in range(self._tasks)
                )
            ]
        with self._phase("commit"):
            committer.commit(options, reports, batch)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self._proxy.counts.clear()
        yield
        self._seen.setdefault(name, []).append(Counter(self._proxy.counts))


def records(batch: int) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"value": rows(batch)})])


def fewest(seen: list[Counter[int]]) -> dict[str, int]:
    """Of each kind the fewest in a batch."""
    kinds = {kind for counts in seen for kind in counts if kind != Api.FETCH}
    found = {name(kind): min(counts[kind] for counts in seen) for kind in kinds}
    return {kind: least for kind, least in found.items() if least}


def name(kind: int) -> str:
    return Api(kind).name if kind in set(Api) else f"API {kind}"


def count() -> Lines:
    """All kinds of jobs."""
    found: Lines = {}
    with proxied_broker() as (broker, proxy), tempfile.TemporaryDirectory() as folder:
        make_topic = topic_maker(broker.bootstrap_servers)
        for what, (tasks, write, extra) in KINDS.items():
            topic = make_topic("out", partitions=tasks)
            job = HandMadeJob(
                f"127.0.0.1:{proxy.port}",
                topic,
                f"job-{topic}",
                Path(folder) / topic,
                extra={"snapshots": "false", **extra},
            )
            for phase, counts in Counted(proxy, job, tasks, write).run().items():
                for kind, number in counts.items():
                    found.setdefault(f"{phase} {kind}", {})[what] = number
    return found


def expected() -> tuple[Lines, dict[str, str]]:
    """The golden numbers, and the comment of each line."""
    lines = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    return lines, {line: numbers.pop("why") for line, numbers in lines.items()}


def is_bounded(line: str) -> bool:
    return line.split()[1] in BOUNDED or line == f"tasks {Api.FIND_COORDINATOR.name}"


def renew() -> None:
    """Write the golden file; a bound that holds stays, another one gets some room."""
    before, why = expected()
    found = count()
    for line in filter(is_bounded, found):
        for what, number in found[line].items():
            bound = before.get(line, {}).get(what, 0)
            found[line][what] = bound if number <= bound else -(-number * 5 // 4)
    lines = {line: {"why": why.get(line, ""), **found[line]} for line in sorted(found)}
    GOLDEN.write_text(json.dumps(lines, indent=1) + "\n")


KINDS: dict[str, tuple[int, Callable[..., Any], dict[str, str]]] = {
    "two-phase, 1 task": (1, two_phase.write, {}),
    "two-phase, 4 tasks": (4, two_phase.write, {}),
    "idempotent, 1 task": (1, one_phase.write, {"commit": "idempotent"}),
    "idempotent, 4 tasks": (4, one_phase.write, {"commit": "idempotent"}),
    "two-phase with snapshots, 1 task": (1, two_phase.write, {"snapshots": "true"}),
    "at-least-once, 1 task": (1, plain_write.write, {"guarantee": "at-least-once"}),
}


if __name__ == "__main__":
    renew()
