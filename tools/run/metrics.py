"""What `eo-kafka run --metrics` answers: the supervisor's own metrics, and its driver's.

The driver writes those of its queries into a file. So one address answers for all of a job's
drivers, one after the other, and while there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import OptionsError
from .health import Answer, Page

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector
    from pyspark.sql import SparkSession

PHASES = ("starting", "running", "ending", "waiting", "standby", "suspended")
RUNNING = ("running", "ending")


def check_installed() -> None:
    """Raises OptionsError."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise OptionsError(
            ["--metrics needs prometheus-client: pip install 'eo-kafka[metrics]'."]
        ) from None


class DriverMetrics:
    """In the driver: those of all queries of its session."""

    def __init__(self, session: SparkSession, path: Path) -> None:
        from prometheus_client import CollectorRegistry

        from ...connectors.monitoring.query_metrics import QueryMetrics

        self._registry, self._path = CollectorRegistry(), path
        session.streams.addListener(QueryMetrics(self._registry))

    def write(self) -> None:
        """Every second. A full disk ends no query: the supervisor then answers with what it had."""
        from prometheus_client import write_to_textfile

        with suppress(OSError):
            write_to_textfile(str(self._path), self._registry)


def exposed(view: Callable[[], dict[str, Any]], path: Path) -> Answer:
    """In the supervisor: what to answer. `view` is Supervisor.view; `path` a driver's file."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(_OfSupervisor(view))
    registry.register(_OfDriver(view, path))
    return lambda accepted: encoded(registry, accepted)


def encoded(registry: Collector, accepted: str) -> Page:
    """In the format that a scraper asks for: OpenMetrics, or the text that all can read."""
    from prometheus_client.exposition import choose_encoder

    encoder, kind = choose_encoder(accepted)
    return 200, kind, encoder(registry)


class _OfDriver:
    def __init__(self, view: Callable[[], dict[str, Any]], path: Path) -> None:
        self._view, self._path = view, path

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.parser import text_string_to_metric_families

        if self._view()["phase"] in RUNNING:  # else it is a dead driver's
            with suppress(FileNotFoundError):
                found = text_string_to_metric_families(self._path.read_text())
                # When a counter began is a metric of its own in this text, and none in OpenMetrics
                yield from (one for one in found if not one.name.endswith("_created"))


class _OfSupervisor:
    def __init__(self, view: Callable[[], dict[str, Any]]) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        seen = self._view()
        told = "how often a driver was started again"
        yield CounterMetricFamily("eo_kafka_run_restarts", told, value=seen["restarts"])
        if seen["stuck"] is not None:  # of a script it is not known
            told = "1: no batch has ended for --stuck-after, and there is something to do"
            yield GaugeMetricFamily("eo_kafka_run_stuck", told, value=float(seen["stuck"]))
        phases = GaugeMetricFamily("eo_kafka_run_phase", "1: what it is in", labels=["phase"])
        for one in PHASES:
            phases.add_metric([one], float(one == seen["phase"]))
        yield phases
