"""`eo-kafka job metrics`: all jobs of a cluster for Prometheus, also those whose driver is dead.

Each scrape looks at the cluster as `job list` does: it only reads. What a driver has left open, and
when Kafka ends it, only an onlooker can tell.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...broker.foreground import AskedToEnd, end_when_asked
from ...core.errors import EoKafkaError, OptionsError
from ..run.health import Answer, Page, address, served
from ..run.metrics import check_installed, encoded
from .standing import Standing, State
from .survey import Onlooking

if TYPE_CHECKING:
    from prometheus_client.core import Metric

BY_JOB = ("job_name",)  # Prometheus has a `job` of its own


def serve(settings: Mapping[str, str], listen: str) -> None:
    """Answer until SIGTERM or SIGINT. Raises OptionsError, EnvironmentRefused, OutcomeUnknown."""
    problems: list[str] = []
    where = address("--listen", listen, problems)
    if problems:
        raise OptionsError(problems)
    check_installed()
    onlooking = Onlooking(settings)
    onlooking.look()  # what is wrong is told at once, and not to each scrape
    with suppress(AskedToEnd):
        end_when_asked()
        with served("--listen", where, {"metrics": page(onlooking.look)}):
            print(f"Answers on http://{where[0]}:{where[1]}/metrics", flush=True)
            while True:
                signal.pause()


def page(look: Callable[[], Sequence[Standing]]) -> Answer:
    """What a scrape is answered: 503 and a sentence while Kafka does not answer."""
    from prometheus_client import CollectorRegistry

    one_at_a_time = threading.Lock()

    def answer(accepted: str) -> Page:
        try:
            with one_at_a_time:
                found = look()
        except EoKafkaError as error:
            return 503, "text/plain", f"{error}\n".encode()
        registry = CollectorRegistry()
        registry.register(_Collected(found))
        return encoded(registry, accepted)

    return answer


class _Collected:
    def __init__(self, found: Sequence[Standing]) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        return families(self._found, int(time.time() * 1000))


def families(found: Sequence[Standing], now_ms: int) -> Iterator[Metric]:
    """What is not known of a job has no sample."""
    from prometheus_client.core import GaugeMetricFamily

    states = GaugeMetricFamily("eo_kafka_job_state", "1: what it is in", labels=(*BY_JOB, "state"))
    gauges = {
        name: GaugeMetricFamily(f"eo_kafka_job_{name}", told, labels=BY_JOB)
        for name, told in (
            ("batch", "number of the newest batch"),
            ("written_timestamp_seconds", "when the newest batch that is done was"),
            ("lag_records", "offsets of its input beyond the newest batch; at least so many"),
            ("input_deleted", "1: input was deleted before a batch read it"),
            ("open_transactions", "transactions that are open"),
            ("oldest_transaction_seconds", "age of the oldest of them"),
            ("transaction_timeout_seconds", "until Kafka ends the first of them"),
            ("snapshot_timestamp_seconds", "when the newest snapshot was made"),
        )
    }
    for one in found:
        for state in State:
            states.add_metric((one.job, state.value), float(one.state is state))
        head = one.tail.ledger.snapshot if one.tail else None
        for name, value in (
            ("batch", one.newest.batch if one.newest else None),
            ("written_timestamp_seconds", _seconds(one.written_ms)),
            ("lag_records", one.lag.behind),
            ("input_deleted", None if one.lag.behind is None else bool(one.lag.gone)),
            ("open_transactions", one.open_count),
            ("oldest_transaction_seconds", _seconds(one.oldest_ms and now_ms - one.oldest_ms)),
            ("transaction_timeout_seconds", _seconds(one.left_ms)),
            ("snapshot_timestamp_seconds", _seconds(head.made_ms if head else None)),
        ):
            if value is not None:
                gauges[name].add_metric((one.job,), value)
    yield from (states, *gauges.values())


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
