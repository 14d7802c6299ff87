"""eo-kafka: exactly-once Kafka sources and sinks for PySpark Structured Streaming.

What a program calls besides `.format("eo-kafka")` is here, imported when it is first used: workers
import this package all the time, and must be quick about it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from eo_kafka.connectors.consumer_group import ConsumerGroup as ConsumerGroup
    from eo_kafka.connectors.consumer_group import offsets_behind_latest as offsets_behind_latest
    from eo_kafka.connectors.foreach_batch import foreach_batch as foreach_batch
    from eo_kafka.connectors.maps.side_input import SideInput as SideInput
    from eo_kafka.connectors.registration import register as register
    from eo_kafka.connectors.repartition import repartition as repartition
    from eo_kafka.connectors.restored_start import start as start
    from eo_kafka.connectors.state_view import StateView as StateView
    from eo_kafka.formats.columns import from_avro as from_avro
    from eo_kafka.formats.columns import to_avro as to_avro
    from eo_kafka.state.snapshots.restoring import restore as restore
    from eo_kafka.state.snapshots.search import snapshots as snapshots
    from eo_kafka.tools.snapshots.exporting import cancel_and_export as cancel_and_export
    from eo_kafka.tools.snapshots.exporting import delete_snapshot as delete_snapshot
    from eo_kafka.tools.snapshots.exporting import export_snapshot as export_snapshot
    from eo_kafka.tools.snapshots.exporting import verify_snapshot as verify_snapshot
    from eo_kafka.tools.snapshots.start_from import start_from as start_from

_HOMES = {
    "ConsumerGroup": "eo_kafka.connectors.consumer_group",
    "offsets_behind_latest": "eo_kafka.connectors.consumer_group",
    "SideInput": "eo_kafka.connectors.maps.side_input",
    "StateView": "eo_kafka.connectors.state_view",
    "cancel_and_export": "eo_kafka.tools.snapshots.exporting",
    "delete_snapshot": "eo_kafka.tools.snapshots.exporting",
    "export_snapshot": "eo_kafka.tools.snapshots.exporting",
    "foreach_batch": "eo_kafka.connectors.foreach_batch",
    "from_avro": "eo_kafka.connectors.avro",
    "register": "eo_kafka.connectors.registration",
    "repartition": "eo_kafka.connectors.repartition",
    "restore": "eo_kafka.state.snapshots.restoring",
    "snapshots": "eo_kafka.state.snapshots.search",
    "start": "eo_kafka.connectors.restored_start",
    "start_from": "eo_kafka.tools.snapshots.start_from",
    "to_avro": "eo_kafka.connectors.avro",
    "verify_snapshot": "eo_kafka.tools.snapshots.exporting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'eo_kafka' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
