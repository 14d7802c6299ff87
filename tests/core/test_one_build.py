"""A driver and its tasks are of one build of this package, or say that they are not."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import BinaryType, StructField, StructType

from eo_kafka.connectors import ledger_writer
from eo_kafka.connectors.kafka_sink import KafkaBatchWriter, KafkaStreamWriter
from eo_kafka.connectors.kafka_source import KafkaBatchReader, KafkaStreamReader
from eo_kafka.connectors.ledger_writer import LedgerWriter, Report
from eo_kafka.connectors.one_build import OneBuild
from eo_kafka.core import build
from eo_kafka.core.process.moment import Moment
from eo_kafka.errors import EnvironmentRefused, Undecided
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sources.settings.options import SourceOptions

ROWS = StructType([StructField("value", BinaryType())])
OTHER = "0.1.0 build 0123456789ab"
OURS = Path(build.__file__).parents[1]


def writer() -> KafkaStreamWriter:
    """As Spark makes one, for a topic that nobody is asked for."""
    given = {"kafka.bootstrap.servers": "localhost:1", "topic": "out", "jobName": "job"}
    made = KafkaStreamWriter({**given, "checkpointLocation": "/c"}, ROWS, overwrite=False)
    made._plan = object()  # as after S1
    return made


def reader() -> KafkaStreamReader:
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "in"}
    return KafkaStreamReader(SourceOptions.parse(given, streaming=True))


def in_another(made: Any, monkeypatch: pytest.MonkeyPatch, mark: str = OTHER) -> Any:
    """Pickled here, and unpickled by another build."""
    pickled = CloudPickleSerializer().dumps(made)
    with monkeypatch.context() as patch:
        patch.setattr(build, "mark", lambda: mark)
        return pickle.loads(pickled)


@pytest.mark.parametrize("make", [reader, writer])
def test_a_task_of_another_build_unpickles_nothing(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EnvironmentRefused) as refused:
        in_another(make(), monkeypatch)
    said = str(refused.value)
    assert build.mark() in said
    assert OTHER in said
    assert "read and written nothing" in said


@pytest.mark.parametrize("make", [reader, writer])
def test_one_of_the_same_build_does(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(in_another(make(), monkeypatch, build.mark()), OneBuild)


def test_the_mark_is_the_first_that_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else is in there may have no class in an older version."""
    monkeypatch.setattr(sys.modules[__name__], "Gone", type("Gone", (), {}), raising=False)
    gone = sys.modules[__name__].Gone  # type: ignore[attr-defined]
    gone.__module__, gone.__qualname__ = __name__, "Gone"
    made = reader()
    made._reading = gone()
    pickled = pickle.dumps(made)
    monkeypatch.delattr(sys.modules[__name__], "Gone")
    monkeypatch.setattr(build, "mark", lambda: OTHER)
    with pytest.raises(EnvironmentRefused):
        pickle.loads(pickled)


@pytest.mark.parametrize("kind", [KafkaBatchReader, KafkaBatchWriter, LedgerWriter])
def test_others_say_it_too(kind: type) -> None:
    assert issubclass(kind, OneBuild)


def test_a_build_that_cannot_be_read_is_compared_by_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = build.mark()
    version = mine.partition(" build ")[0]
    assert mine != version
    assert build.is_this(version)
    assert not build.is_this("0.0.9")
    assert not build.is_this("")
    monkeypatch.setattr(build, "mark", lambda: version)
    assert build.is_this(mine)
    assert build.is_this(OTHER.replace("0.1.0", version))


@pytest.mark.parametrize(("told", "named"), [("", "an older one"), (OTHER, OTHER)])
def test_a_report_of_another_build_is_not_decided(
    told: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eo_kafka.sinks.protocol import committer

    decided: list[Any] = []
    monkeypatch.setattr(committer, "commit", lambda *given: decided.append(given))
    reports = [Report(build=build.mark()), None, Report(build=told)]
    with pytest.raises(EnvironmentRefused, match=f"{named}.*Nothing was decided"):
        writer().commit(reports, 7)
    assert decided == []


@pytest.mark.parametrize("told", [[0, None], [0, 0], [0, 2]])
def test_a_write_of_which_a_task_said_nothing_is_not_decided(
    told: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from eo_kafka.sinks.protocol import batch, committer

    decided: list[Any] = []
    for module in (batch, committer):
        monkeypatch.setattr(module, "commit", lambda *given: decided.append(given))
    reports: list[Any] = [
        None if one is None else Report(SimpleNamespace(partition=one), build=build.mark())
        for one in told
    ]
    with pytest.raises(Undecided, match=r"no report of partitions \[1\].*Start the query"):
        writer().commit(reports, 7)
    saving = object.__new__(KafkaBatchWriter)
    given = {"kafka.bootstrap.servers": "localhost:1", "topic": "out"}
    saving._options = SinkOptions.parse(given, streaming=False)
    saving._batch = batch.BatchIdentity("batch", 2)
    with pytest.raises(Undecided, match=r"no report of partitions \[1\]"):
        saving.commit(reports)
    assert decided == []


def test_a_task_reports_its_build() -> None:
    made = writer()
    made._began = Moment.now()
    assert made._reported(None).build == build.mark()
    assert ledger_writer.Report.build == "", "what a report of an older version has"


MARK = "import eo_kafka.core.build as b; print(b.mark()); print(b.__file__)"


def marked(path: Path, tmp_path: Path) -> str:
    """The mark of a process that has the package from `path`."""
    others = [one for one in sys.path if one and not Path(one, "eo_kafka").exists()]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), *others])}
    run = subprocess.run(
        [sys.executable, "-c", MARK], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    mark, file = run.stdout.splitlines()
    assert file.startswith(str(path))
    return mark


def zipped(archive: Path) -> Path:
    """The package as an installation has it: without tests."""
    rooms = [OURS / room for room in build._ROOMS]
    with zipfile.ZipFile(archive, "w") as made:
        for path in [*OURS.glob("*.py"), *(one for room in rooms for one in room.rglob("*.py"))]:
            made.write(path, Path("eo_kafka", path.relative_to(OURS)))
    return archive


def test_a_checkout_a_zip_and_an_installation_of_it_are_one_build(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "package.zip")
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(tmp_path / "installed")
    mark = build.mark()
    assert " build " in mark
    assert marked(archive, tmp_path) == marked(tmp_path / "installed", tmp_path) == mark
    (tmp_path / "installed/eo_kafka/core/moment.py").open("a").write("# another\n")
    assert marked(tmp_path / "installed", tmp_path) != mark


def test_it_costs_little_and_once() -> None:
    build.mark.cache_clear()
    build.digest.cache_clear()
    began = time.process_time()
    build.mark()
    first = time.process_time() - began
    began = time.process_time()
    build.mark()
    assert time.process_time() - began < 0.001
    assert first < 0.5, "0.01 s on a quiet machine"
