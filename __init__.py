"""eo-kafka: exactly-once Kafka sources and sinks for PySpark Structured Streaming.

What a program calls besides `.format("eo-kafka")` is here, imported when it is first used: workers
import this package all the time, and must be quick about it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import targets as targets
    from . import windows as windows
    from .connectors.direct.frames import pandas_frames as pandas_frames
    from .connectors.direct.frames import polars_frames as polars_frames
    from .connectors.direct.lookup import Lookup as Lookup
    from .connectors.direct.start import direct as direct
    from .connectors.direct.start import direct_batch as direct_batch
    from .connectors.foreach_batch import foreach_batch as foreach_batch
    from .connectors.maps.side_input import SideInput as SideInput
    from .connectors.monitoring.consumer_group import ConsumerGroup as ConsumerGroup
    from .connectors.monitoring.query_metrics import QueryMetrics as QueryMetrics
    from .connectors.monitoring.query_progress import progress as progress
    from .connectors.monitoring.query_traces import QueryTraces as QueryTraces
    from .connectors.repartition import repartition as repartition
    from .connectors.restored_start import start as start
    from .connectors.state_view import StateView as StateView
    from .formats.columns import from_avro as from_avro
    from .formats.columns import to_avro as to_avro
    from .registration import register as register
    from .state.snapshots.restoring import restore as restore
    from .state.snapshots.search import snapshots as snapshots
    from .tools.explain.explaining import explain as explain
    from .tools.snapshots.exporting import cancel_and_export as cancel_and_export
    from .tools.snapshots.exporting import delete_snapshot as delete_snapshot
    from .tools.snapshots.exporting import export_snapshot as export_snapshot
    from .tools.snapshots.exporting import verify_snapshot as verify_snapshot
    from .tools.snapshots.start_from import start_from as start_from

_HOMES = {
    "ConsumerGroup": ".connectors.monitoring.consumer_group",
    "Lookup": ".connectors.direct.lookup",
    "QueryMetrics": ".connectors.monitoring.query_metrics",
    "QueryTraces": ".connectors.monitoring.query_traces",
    "SideInput": ".connectors.maps.side_input",
    "StateView": ".connectors.state_view",
    "cancel_and_export": ".tools.snapshots.exporting",
    "delete_snapshot": ".tools.snapshots.exporting",
    "direct": ".connectors.direct.start",
    "direct_batch": ".connectors.direct.start",
    "explain": ".tools.explain.explaining",
    "export_snapshot": ".tools.snapshots.exporting",
    "foreach_batch": ".connectors.foreach_batch",
    "from_avro": ".connectors.avro",
    "pandas_frames": ".connectors.direct.frames",
    "polars_frames": ".connectors.direct.frames",
    "progress": ".connectors.monitoring.query_progress",
    "register": ".registration",
    "repartition": ".connectors.repartition",
    "restore": ".state.snapshots.restoring",
    "snapshots": ".state.snapshots.search",
    "start": ".connectors.restored_start",
    "start_from": ".tools.snapshots.start_from",
    "to_avro": ".connectors.avro",
    "verify_snapshot": ".tools.snapshots.exporting",
}

_PACKAGES = ("targets", "windows")


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module 'eo_kafka' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, *_PACKAGES, "__version__"])
