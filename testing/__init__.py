"""Proves jobs of your own under crashes: pytest fixtures, faults by name, checkers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.crash_points import OTHER_POINTS as OTHER_CRASH_POINTS  # noqa: F401
    from ..core.crash_points import STREAM_POINTS as CRASH_POINTS  # noqa: F401
    from .brokers import Broker as Broker
    from .checks import assert_deterministic as assert_deterministic
    from .checks import assert_exactly_once as assert_exactly_once
    from .checks import assert_nothing_open as assert_nothing_open
    from .checks import assert_order as assert_order
    from .checks import assert_sum as assert_sum
    from .checks import assert_windows as assert_windows
    from .errors import Anomaly as Anomaly
    from .errors import CheckRefused as CheckRefused
    from .errors import FaultMissed as FaultMissed
    from .errors import JobFailed as JobFailed
    from .job import Job as Job
    from .records import Record as Record
    from .runs import HALF_WRITTEN as HALF_WRITTEN
    from .target_suite import check_target as check_target
    from .topics import Topic as Topic

# Imported when first used: pytest loads the plug-in in every project that has eo-kafka installed.
_HOMES = {
    "Anomaly": (".errors", "Anomaly"),
    "Broker": (".brokers", "Broker"),
    "CRASH_POINTS": ("..core.crash_points", "STREAM_POINTS"),
    "CheckRefused": (".errors", "CheckRefused"),
    "FaultMissed": (".errors", "FaultMissed"),
    "HALF_WRITTEN": (".runs", "HALF_WRITTEN"),
    "Job": (".job", "Job"),
    "JobFailed": (".errors", "JobFailed"),
    "OTHER_CRASH_POINTS": ("..core.crash_points", "OTHER_POINTS"),
    "Record": (".records", "Record"),
    "Topic": (".topics", "Topic"),
    "assert_deterministic": (".checks", "assert_deterministic"),
    "assert_exactly_once": (".checks", "assert_exactly_once"),
    "assert_nothing_open": (".checks", "assert_nothing_open"),
    "assert_order": (".checks", "assert_order"),
    "assert_sum": (".checks", "assert_sum"),
    "assert_windows": (".checks", "assert_windows"),
    "check_target": (".target_suite", "check_target"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'eo_kafka.testing' has no attribute '{name}'")
    module, attribute = _HOMES[name]
    return getattr(import_module(module, __name__), attribute)


def __dir__() -> list[str]:
    return sorted(_HOMES)
