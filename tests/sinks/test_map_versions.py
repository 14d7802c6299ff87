"""`onConflict=newest`: which of two JSON values is newer, by any number that JSON can hold."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from hazelcast.core import HazelcastJsonValue

from eo_kafka.errors import SinkError
from eo_kafka.sinks.maps.puts import _Writer

# The oldest first; doubles do not tell some neighbours apart
VERSIONS = [
    *("-1e999", "-9007199254740993", "-9007199254740992.5", "0", "1E-400", "0.1"),
    *("0.1000000000000000055", "1764398745.123456900", "1764398745.123456999"),
    *("9007199254740992", "9007199254740992.5", "9007199254740993", "1e999", "1e1000"),
]


def writer() -> _Writer:
    found = object.__new__(_Writer)
    found._options = SimpleNamespace(version_field="ts", place="map x")
    return found


def value(version: str, besides: str = "") -> HazelcastJsonValue:
    return HazelcastJsonValue(f'{{"ts": {version}{besides}}}')


def test_the_greater_number_is_newer_in_either_order() -> None:
    for older, newer in itertools.combinations(VERSIONS, 2):
        for pair in ((older, newer), (newer, older)):
            rows = [("k", value(one)) for one in pair]
            found = writer()._newest_of(iter(rows))["k"]
            assert found.to_string() == value(newer).to_string(), pair
    same = [("k", value(one)) for one in ("1.0", "1")]
    assert writer()._newest_of(iter(same))["k"] is same[0][1]


@pytest.mark.parametrize(
    "version", ["NaN", "Infinity", "-Infinity", '"5"', "true", "1e" + "9" * 30]
)
def test_what_is_no_number_says_nothing(version) -> None:
    with pytest.raises(SinkError, match="no number in field 'ts' .* key k"):
        writer()._version("k", value(version))
    assert writer()._version("k", value("5", f', "other": {version}')) == 5
