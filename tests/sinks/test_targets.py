"""`format("eo-target")` without Kafka: options, and what a class answers that keeps no promise."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from eo_kafka.core.errors import LedgerError, OptionsError, SinkError, SourceError, WriteFailed
from eo_kafka.sinks.marker import Marker
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.sinks.targets.custom import name_of, writer_of
from eo_kafka.sinks.targets.options import read_options
from eo_kafka.sinks.targets.target import Marks, encoded
from eo_kafka.sinks.targets.writing import TaskStaging
from eo_kafka.state.ledger.ledger import Ledger
from eo_kafka.targets import Target

GIVEN = {
    "target": f"{__name__}:Odd",
    "jobName": "j",
    "kafka.bootstrap.servers": "localhost:1",
}
COLUMNS = [("id", "bigint")]


class Odd(Target):
    """Answers what its options say."""

    def __init__(self, options: Mapping[str, str]) -> None:
        if options.get("asks") == "option":
            options["password"]
        if options.get("asks") == "environment":
            os.environ["NO_SUCH_VARIABLE"]
        if "raises" in options:
            raise {"value": ValueError, "key": KeyError, "other": RuntimeError}[options["raises"]](
                "it"
            )
        self.names: list[str] = []

    @property
    def place(self) -> str:
        return "odd"

    def stage(self, name: str, number: int, rows: pa.Table) -> None: ...

    def staged(self, writer: str) -> Mapping[str, int]:
        return dict.fromkeys(self.names, 1)

    def marker(self, writer: str) -> bytes | None:
        return "{}"  # type: ignore[return-value]

    def apply(
        self, writer: str, names: Mapping[str, int], before: bytes | None, after: bytes
    ) -> None: ...

    def discard(self, names: Collection[str]) -> None:
        self.names = [name for name in self.names if name not in names]


def read(**more: str):
    return read_options({**GIVEN, **more}, ["id"], COLUMNS)


def test_a_commit_by_the_tasks_is_refused() -> None:
    with pytest.raises(OptionsError, match="'commit' is 'idempotent'"):
        read(commit="idempotent")


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"target.raises": "value"}, OptionsError, "Option 'target' .*: it"),
        ({"target.raises": "key"}, SourceError, "could not be made: KeyError: 'it'"),
        ({"target.raises": "other"}, SourceError, "could not be made: RuntimeError: it"),
        ({"target.asks": "option"}, OptionsError, "'target.password' must be specified"),
        ({"target.asks": "environment"}, SourceError, "KeyError: 'NO_SUCH_VARIABLE'"),
    ],
)
def test_what_a_class_raises_when_it_is_made_is_told(given, error, said) -> None:
    with pytest.raises(error, match=said):
        read(**given)


class BadRow(SinkError):
    """Of the user's own, with arguments of its own."""

    def __init__(self, column: str, row: int) -> None:
        super().__init__(f"Column '{column}' of row {row} is odd.")


@pytest.mark.parametrize("error", [BadRow("a", 7), WriteFailed("Column 'a' of row 7 is odd.")])
def test_a_refusal_of_rows_is_told_by_a_class_that_everybody_knows(
    error: SinkError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stage(*_: object) -> None:
        raise error

    monkeypatch.setattr(Odd, "stage", stage)
    _, target = read()
    staging = TaskStaging(target, "name", TaskIdentity("q", 3, 0, 1))
    known = WriteFailed if isinstance(error, WriteFailed) else SinkError
    with pytest.raises(SinkError, match="Batch 3.*odd: Column 'a' of row 7 is odd") as told:
        list(staging.through(iter([pa.record_batch({"id": [1]})])))
    assert told.type is known


def test_names_of_another_writer_are_never_discarded() -> None:
    """Whatever a target answers: they may be decided."""
    options, target = read()
    writer = writer_of(options.job_and_ledger[0], options.sink)
    mine = name_of(writer, "id", 1, 0, 0)
    theirs = name_of(writer_of("another", ""), "id", 1, 0, 0)
    odd = target.made()
    odd.names = [mine, theirs]
    target.make_room(options, Ledger(topic_id="id"), 2)
    assert odd.names == [theirs]


def test_a_marker_that_is_text_is_told() -> None:
    options, target = read()
    with pytest.raises(LedgerError, match="is not what eo-kafka wrote"):
        Marks(target, options, Ledger(topic_id="id")).read()


class Kept(Odd):
    """Keeps its marker."""

    raw: bytes | None = None

    def marker(self, writer: str) -> bytes | None:
        return self.raw

    def apply(
        self, writer: str, names: Mapping[str, int], before: bytes | None, after: bytes
    ) -> None:
        self.raw = after


def spark_runs(folder: Path, batch: int) -> str:
    """A checkpoint when the tasks of a batch start."""
    for log, newest in (("offsets", batch), ("commits", batch - 1)):
        (folder / log).mkdir(exist_ok=True)
        for number in range(max(0, newest - 1), newest + 1):
            (folder / log / f"{number}").write_text(f'v1\n{{}}\n{{"in":{{"0":{number}}}}}')
    (folder / "metadata").write_text('{"id":"q"}')
    return str(folder)


@pytest.mark.parametrize("batch", [57, 40])  # the newest checkpoint, and an older copy
def test_a_batch_that_is_shown_by_a_ledger_that_is_gone_is_not_written_again(
    tmp_path, caplog, batch
) -> None:
    """The ledger's Kafka died when batch 57 was applied, and the job was given another one."""
    given = {"target": f"{__name__}:Kept", "target.n": f"{tmp_path}"}
    given["checkpointlocation"] = spark_runs(tmp_path, batch)
    options, target = read(**given)
    theirs = encoded(Marker("gone", 60, 57, 0, 60, "d"))
    target.made().raw = theirs
    for _ in range(2):
        with pytest.raises(LedgerError, match=rf"shows batch 57 .*Spark runs batch {batch} now"):
            target.check_same(options, Ledger(topic_id="new"), fenced=True)
        assert target.made().raw == theirs
    options, target = read(**given, failOnDataLoss="false")
    target.check_same(options, Ledger(topic_id="new"), fenced=True)
    assert "Going on" in caplog.text
    assert b'"ledger":"new"' in target.made().raw


@pytest.mark.parametrize(
    ("batch", "owner"),
    [
        (58, None),  # batch 57 was noted
        (0, None),  # a new query
        (57, "q"),  # the ledger knows the query: of a start from an export, say
        (None, None),
    ],
)
def test_a_new_ledger_goes_on_where_the_target_ends(tmp_path, batch, owner) -> None:
    given = {"target": f"{__name__}:Kept", "target.n": f"{tmp_path}"}
    if batch is not None:
        given["checkpointlocation"] = spark_runs(tmp_path, batch)
    options, target = read(**given)
    target.made().raw = encoded(Marker("gone", 60, 57, 0, 60, "d"))
    target.check_same(options, Ledger(owner=owner, topic_id="new"), fenced=True)
    assert b'"ledger":"new"' in target.made().raw
