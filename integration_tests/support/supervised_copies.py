"""The copy job as a supervisor runs it: again, if it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.errors import StreamingQueryException

from conftest import topic_maker
from harness import JOB_TIMEOUT_S, Copy, CrashPoints, make_copy, wait_until
from kafka_containers import KafkaContainers

VALUES = [b"%d" % number for number in range(600)]
RUNS = 5


def job_on(kafka: KafkaContainers, tmp_path: Path) -> Copy:
    """A copy of VALUES on this Kafka."""
    servers = kafka.bootstrap_servers
    return make_copy(servers, topic_maker(servers), tmp_path, VALUES)


def finish(job: Copy, spark) -> None:
    """Run to the end; an error may end a run, not all of them."""
    said: list[str] = []
    while len(said) < RUNS:
        try:
            job.run(spark)
        except StreamingQueryException as error:
            said.append(str(error))
        else:
            return
    raise AssertionError("\n\n".join(said))


@contextmanager
def stopped_at(moment: str, job: Copy, spark, crash_points: CrashPoints) -> Iterator[None]:
    """The block runs while the job waits at a crash point. Then this run ends, or fails."""
    crash_points.arm(moment, "wait")
    with job.running(spark) as query:
        wait_until(lambda: crash_points.reached(moment), f"the job is at {moment}", JOB_TIMEOUT_S)
        yield
        crash_points.release(moment)
        with suppress(StreamingQueryException):
            assert query.awaitTermination(JOB_TIMEOUT_S), "the query hangs"


def copy_while(job: Copy, spark, happens: Callable[[], None]) -> None:
    """Run the job, again and again, until something else has happened, which has a thread."""
    with ThreadPoolExecutor(1) as pool:
        happening = pool.submit(happens)
        while not happening.done():
            finish(job, spark)
        happening.result()
