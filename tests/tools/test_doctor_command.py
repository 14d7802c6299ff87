"""What the doctor makes of facts that our machines lack: old clients, other Pythons, clocks."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from eo_kafka.clients.kafka.needed_requests import NEEDED
from eo_kafka.state.ledger import topic_settings
from eo_kafka.tools.doctor import cluster_check, topic_check
from eo_kafka.tools.doctor.machine_check import (
    Level,
    check_lookup,
    check_machine,
    check_path,
    check_same,
    check_versions,
)
from eo_kafka.tools.doctor.request_check import offered
from eo_kafka.tools.doctor.topic_rehearsal import clock

GOOD = {
    "python": "3.11.7",
    "executable": "/venv/bin/python",
    "versions": {
        "pyspark": "4.3.0",
        "pyarrow": "26.0.1",
        "confluent-kafka": "2.16.1",
        "kafka-python": "3.0.12",
        "numba": "0.68.1",
    },
    "errors": {},
    "formats": {"pyspark_eo_kafka": "eo-kafka"},
    "broken": {},
}


def with_version(package: str, version: str) -> dict:
    return {**GOOD, "versions": {**GOOD["versions"], package: version}}


@pytest.mark.parametrize(
    ("package", "version", "level"),
    [
        ("pyspark", "3.5.9", Level.PROBLEM),
        ("pyspark", "4.0.0", Level.OK),
        ("pyspark", "4.2.0.dev3", Level.OK),
        ("confluent-kafka", "2.15.0", Level.PROBLEM),
        ("confluent-kafka", "3.0.0", Level.WARNING),
        ("kafka-python", "3.0.11", Level.PROBLEM),
        ("kafka-python", "3.1.0", Level.WARNING),
        ("numba", "0.61.0", Level.OK),
    ],
)
def test_versions_that_are_too_old_or_were_not_tested(package, version, level):
    found = {one.subject: one.level for one in check_versions(with_version(package, version))}
    assert found.pop(package) is level
    assert set(found.values()) == {Level.OK}


def test_a_package_that_does_not_import_is_a_problem_with_its_reason():
    versions = {name: text for name, text in GOOD["versions"].items() if name != "numba"}
    found = check_versions({**GOOD, "versions": versions, "errors": {"numba": "OSError: no llvm"}})
    (bad,) = [one for one in found if one.level is not Level.OK]
    assert (bad.level, bad.subject) == (Level.PROBLEM, "numba")
    assert "no llvm" in bad.text


def test_a_broken_neighbour_is_a_problem_and_a_sound_one_is_named():
    (fine,) = check_lookup({**GOOD, "formats": {**GOOD["formats"], "pyspark_other": "other"}})
    assert (fine.level, "pyspark_other" in fine.text) == (Level.OK, True)
    (bad,) = check_lookup({**GOOD, "broken": {"pyspark_other": "ImportError: x"}})
    assert (bad.level, "module pyspark_other fails" in bad.text) == (Level.PROBLEM, True)
    (gone,) = check_lookup({**GOOD, "formats": {}})
    assert (gone.level, "DATA_SOURCE_NOT_FOUND" in gone.text) == (Level.PROBLEM, True)


def test_a_path_with_a_space_is_a_problem():
    """Spark 4.0 to 4.3 does not quote it."""
    assert check_path("/opt/python") == []
    (bad,) = check_path("/home/me/my projects/.venv/bin/python")
    assert (bad.level, "PYSPARK_PYTHON=python" in bad.text) == (Level.PROBLEM, True)


def test_a_drivers_python_that_is_none_is_a_problem_with_a_way_out(monkeypatch):
    """Jupyter's own program, which Spark asks for Python's formats."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/usr/bin/false")
    (bad,) = [one for one in check_machine() if one.subject == "PYSPARK_DRIVER_PYTHON"]
    assert (bad.level, "eo_kafka.register(spark)" in bad.text) == (Level.PROBLEM, True)


def test_driver_and_workers_must_be_the_same():
    assert check_same(GOOD, {**GOOD, "python": "3.11.9"}).level is Level.OK
    other = check_same(GOOD, {**GOOD, "python": "3.12.1"})
    assert (other.level, "Python 3.11 / 3.12" in other.text) == (Level.PROBLEM, True)
    other = check_same(GOOD, with_version("pyarrow", "18.0"))
    assert (other.level, "pyarrow 26.0.1 / 18.0" in other.text) == (Level.PROBLEM, True)


@pytest.mark.parametrize(
    ("broker", "after", "level"),
    [(100.1, 100.2, Level.OK), (104.0, 100.2, Level.OK), (110.0, 100.2, Level.WARNING),
     (80.0, 100.2, Level.WARNING), (110.0, 130.0, Level.OK)],
)  # fmt: skip
def test_a_clock_is_wrong_only_where_the_measurement_is_sure(broker, after, level):
    assert clock(broker, 100.0, after).level is level


def test_a_broker_that_offers_less_than_the_protocol_needs_is_told_request_by_request():
    complete = {one.key: (0, one.version) for one in NEEDED}
    (fine,) = offered(1, complete)
    assert (fine.level, "Metadata stands in" in fine.text) == (Level.OK, True)
    (fine,) = offered(1, {**complete, 75: (0, 0)})
    assert "DescribeTopicPartitions" not in fine.text
    lacking = {key: versions for key, versions in complete.items() if key != 66}
    first, second = offered(2, {**lacking, 26: (0, 2)})
    assert first.level is second.level is Level.PROBLEM
    assert "node 2 does not offer EndTxn 3, for the driver" in first.text
    assert "node 2 does not offer ListTransactions 0, to find what" in second.text


@pytest.mark.parametrize(
    ("subject", "largest", "levels"),
    [
        ("state topic", "100000", [Level.OK, Level.PROBLEM]),
        ("export 'july'", "1000000", [Level.OK, Level.PROBLEM]),
        ("state topic", "1048588", [Level.OK]),  # a broker's own default
        ("ledger", "1048588", [Level.OK, Level.NOTE]),
        ("ledger", str(8 << 20), [Level.OK]),
        ("control topic", "100000", [Level.OK]),
    ],
)
def test_a_topic_that_takes_too_small_records_only_is_told(monkeypatch, subject, largest, levels):
    config = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    config["max.message.bytes"] = largest
    one = SimpleNamespace(replicas=[1, 2, 3], isrs=[1, 2, 3], leader=1)
    for module in (topic_check, topic_settings):
        monkeypatch.setattr(module, "partitions_of", lambda *_: {0: one, 1: one})
        monkeypatch.setattr(module, "settings_of", lambda *_: config)
    found = topic_check._kept(None, subject, "team.topic", 1, 3)
    assert [finding.level for finding in found] == levels
    said = [finding.text for finding in found if finding.level is not Level.OK]
    assert all(f"max.message.bytes={largest}" in text for text in said)


@pytest.mark.parametrize(
    ("subject", "config", "told"),
    [
        ("ledger", {"segment.ms": "604800000", "segment.bytes": "1073741824"},
         "--add-config segment.ms=14400000,segment.bytes=134217728"),
        ("ledger", {"segment.ms": "3600000", "segment.bytes": "1073741824"},
         "--add-config segment.bytes=134217728"),
        ("ledger", topic_settings.SEGMENTS, ""),
        ("ledger", {}, ""),  # they may not be seen
        ("state topic", {"segment.ms": "604800000"}, ""),
    ],
)  # fmt: skip
def test_a_ledger_that_is_compacted_late_is_told_with_the_command(subject, config, told):
    found = [one.text for one in topic_check._long_segments(subject, "l", config)]
    assert [text.endswith(f"--alter --topic l {told}") for text in found] == [True] * bool(told)


@pytest.mark.parametrize(
    ("topics", "ids", "told"), [("ab", {}, True), ("ab", {"a": "id"}, False), ("", {}, False)]
)
def test_a_cluster_without_ids_of_topics_is_told(topics, ids, told):
    view = SimpleNamespace(look=lambda others: SimpleNamespace(topic_ids=ids))
    admin = SimpleNamespace(
        list_topics=lambda timeout: SimpleNamespace(topics=dict.fromkeys(topics))
    )
    found = cluster_check._topic_ids(view, admin)
    assert [finding.level for finding in found] == [Level.WARNING] * told
