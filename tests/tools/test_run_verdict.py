"""What `eo-kafka run` does about each error: every class of the tree, and what a script leaves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eo_kafka.core.errors import EoKafkaError, Fenced, ForeignLedger
from eo_kafka.tools.run.verdict import (
    TO_DO,
    OurError,
    Way,
    error_of_script,
    last_error,
    to_do,
    tree,
    way_of,
)

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-a-job.md"
ROW = re.compile(r"^\| (`[^|]+`) \| ([^|]+) \|", re.MULTILINE)
SPARKS = (
    "pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED] Query [id = 1] "
    "terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call "
    "last):\n  File 'a.py', line 1, in commit\neo_kafka.errors.ForeignLedger: The ledger of 'j' is "
    "another query's.\n SQLSTATE: 38000\n"
)


FENCED = "eo_kafka.errors.Fenced: x\n"
TORN = (
    "org.apache.spark.SparkException: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when "
    "Python streaming data source perform commit: "
)
TASK = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.3 in stage 1.0 "
    "(TID 3) (host executor driver): org.apache.spark.api.python.PythonException: "
)


def test_every_class_of_the_tree_is_in_the_pages_table_with_what_is_done():
    rows = {
        name: way.strip()
        for names, way in ROW.findall(PAGE.read_text())
        for name in re.findall(r"`(\w+)`", names)
        if name in tree()
    }
    assert rows == {name: way_of(name).value for name in tree()}


def test_the_ways_are_those_of_the_classes():
    ways = {name: way_of(name) for name in tree()}
    assert {name for name, way in ways.items() if way is Way.RESTART} == {
        *("ReadTimeout", "WriteFailed", "SnapshotFailed", "Undecided", "ParticipantsLost"),
        *("OutcomeUnknown", "Unreachable", "CheckpointUnreadable"),
    }
    assert [name for name, way in ways.items() if way is Way.SUPERSEDED] == [Fenced.__name__]
    assert len(ways) > 20 and EoKafkaError.__name__ in ways


def test_who_is_told_to_do_something_is_told_what():
    stopped = {name for name in tree() if way_of(name) is not Way.RESTART}
    assert set(TO_DO) <= stopped
    own = {name for name in stopped if tree()[name].__module__ == ForeignLedger.__module__}
    assert own - set(TO_DO) == {"EoKafkaError", "SourceError", "SinkError", "LedgerError"}
    assert all(to_do(name).endswith(".") for name in stopped)
    assert "repair" not in to_do("RepairNeeded")  # a table that refuses rows is changed instead


def test_the_last_error_of_ours_is_found_in_sparks_message():
    found = last_error(f"eo_kafka.errors.WriteFailed: first.\n{SPARKS}")
    assert found == OurError("ForeignLedger", "The ledger of 'j' is another query's.")
    assert found.way is Way.PERSON
    assert last_error("java.lang.OutOfMemoryError: Java heap space") is None
    assert last_error("eo_kafka.core.crash_points.CrashPointReached: S1") is None, "not of the tree"


@pytest.mark.parametrize(
    ("code", "stderr", "name"),
    [
        (1, SPARKS, "ForeignLedger"),
        (1, "eo_kafka.broker.errors.PortTaken: 9092 is taken.\n", "PortTaken"),
        (1, "java.lang.OutOfMemoryError: Java heap space\n", None),
        (0, SPARKS, None),
        (-9, SPARKS, None),  # it lived on after it
        (137, SPARKS, None),
        (1, f"{SPARKS}py4j.protocol.Py4JNetworkError: Answer from Java side is empty\n", None),
        (1, f"ConnectionRefusedError: [Errno 111]\n{SPARKS}", "ForeignLedger"),
        (1, f"{TORN}eo_kafka.errors.BatchMismatch: x", "BatchMismatch"),
        (1, f"ENDED\n{TORN.partition(': ')[2]}eo_kafka.errors.BatchMismatch: x", "BatchMismatch"),
        (1, f"Caused by: {TASK}eo_kafka.errors.WriteFailed: x\n", "WriteFailed"),
        (1, f"calling o57.save.\n: org.apache.spark.SparkException: {TASK}{FENCED}", "Fenced"),
        (1, f"  | {FENCED}", "Fenced"),
        # What a program says of a record is not what ended it
        (1, f"INFO row name={FENCED}ConnectionError: geocoder is away\n", None),
        (1, f"[INFO] row: {FENCED}ConnectionError: geocoder is away\n", None),
        (1, f"ValueError: no answer for {FENCED}", None),
        (1, f"{SPARKS}INFO row: {FENCED}", "ForeignLedger"),
    ],
)
def test_what_ended_a_script(code, stderr, name):
    found = error_of_script(code, stderr)
    assert (found and found.name) == name
