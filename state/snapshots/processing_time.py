"""Tells from the checkpoint whether a query's state depends on more than its records.

A batch that is repeated has the same records and another time of day. Operators that are known to
go by records and watermarks only are listed here; of any other it is assumed that it looks at the
clock. Sources: StatefulOperatorsUtils, OperatorStateMetadataV2 of Spark 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import SnapshotFailed
from ...core.options import json_object
from . import operators
from .checkpoint import Checkpoint

_TIMELESS = {
    "stateStoreSave",
    "StatefulStreamlineAggregate",
    "symmetricHashJoin",
    "dedupe",
    "dedupeWithinWatermark",
    "sessionWindowStateStoreSaveExec",
    "globalLimit",
}
_BY_TIME_MODE = "transformWithState"  # how the names of its variants begin
_TIMELESS_MODES = ("NoTime", "EventTime")
_MARK = "eo_kafka_watermark_not_repeatable"  # a state of this name, which windows/fixed.py makes


def described_in(checkpoint: Checkpoint) -> dict[str, bytes]:
    """What Spark wrote of the query's stateful operators, by path. Raises SnapshotFailed."""
    described = {}
    try:
        for path in operators.descriptions(checkpoint.paths()):
            with checkpoint.open(path) as stream:
                described[path] = stream.read()
    except OSError as error:
        raise SnapshotFailed(
            f"The checkpoint '{checkpoint.url}' could not be read: {error}"
        ) from error
    return described


def operator_by_the_clock(described: Mapping[str, bytes]) -> str | None:
    """The name of an operator whose state may depend on the time of day; None if there is none.
    `described`: as `described_in` finds it."""
    for path, text in sorted(described.items()):
        try:
            fields = json_object(text.decode().partition("\n")[2])
            name = str(fields["operatorInfo"]["operatorName"])
            timeless = name in _TIMELESS or _time_mode(name, fields) in _TIMELESS_MODES
        except (LookupError, TypeError, ValueError):
            return f"described in {path} in a way not known here"
        if not timeless:
            return name
    return None


def _time_mode(name: str, fields: Mapping[str, Any]) -> str | None:
    if not name.startswith(_BY_TIME_MODE):
        return None
    properties = json_object(fields["operatorPropertiesJson"])
    if any(state["stateName"] == _MARK for state in properties.get("stateVariables", ())):
        return None
    return str(properties["timeMode"])
