"""Refuses maps where keys lie elsewhere than their hash says.

What we put would be there twice, and programs with the map's partition strategy would not see it.
"""

from __future__ import annotations

import time

from ...clients.hazelcast.client import HazelcastSettings
from ...clients.hazelcast.placing import misplaced
from ...core.errors import EnvironmentRefused

_LOOK_S = 60.0  # an empty map shows nothing: others may begin to fill it later
_looked: dict[tuple[HazelcastSettings, str], float] = {}  # when this process did


def check_placed(settings: HazelcastSettings, name: str) -> None:
    """Raise EnvironmentRefused if a partition strategy has placed keys of map `name`. Looks once a
    minute in each process. Driver, or executor before a task's first put."""
    now = time.monotonic()
    if now - _looked.get((settings, name), -_LOOK_S) < _LOOK_S:
        return
    found = misplaced(settings, name)
    if found is not None:
        raise EnvironmentRefused(
            f"Map '{name}' of {settings.place} cannot be written: {found} "
            "(StringPartitioningStrategy, 'partition-attributes', or a class of your own), which "
            "eo-kafka does not know. What it puts would lie elsewhere, each key would be there "
            "twice, and programs with the strategy would not see it. Nothing was written now. "
            "Write the rows into a topic instead (format 'eo-kafka'), and let a program that has "
            "the strategy put them into the map; or write a map of another name, whose keys no "
            "strategy places."
        )
    _looked[settings, name] = now
