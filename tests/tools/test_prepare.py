"""`eo-kafka prepare`: bytecode in Spark's archives, and loops that are compiled ahead."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

import spark_home
from eo_kafka.clients.kafka import outages
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.tools.cli import main
from eo_kafka.tools.doctor.machine_check import Level, check_bytecode
from eo_kafka.tools.prepare import bytecode, loops

INSTALLED = Path(pyspark.__file__).parent


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark with archives of its own; its folder of archives."""
    spark = tmp_path / "spark"
    spark_home.as_it_came(spark)
    monkeypatch.setenv("SPARK_HOME", str(spark))
    return spark / "python" / "lib"


def imported(home: Path, module: str) -> str:
    """Where a process that Spark starts would have the module from."""
    code = f"import {module}, sys; print(sys.modules['{module}'].__file__)"
    path = os.pathsep.join(map(str, home.glob("*.zip")))
    env = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_sparks_processes_find_bytecode(
    home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert imported(home, "pyspark.worker") == str(home / "pyspark.zip/pyspark/worker.py")
    told = check_bytecode()
    assert told.level == Level.NOTE
    assert "'eo-kafka prepare' adds it" in told.text
    assert main(["prepare"]) == 0
    for module in ("pyspark.worker", "pyspark.sql.worker.write_into_data_source"):
        place = f"pyspark.zip/{module.replace('.', '/')}.pyc"
        assert imported(home, module) == str(home / place)
    assert imported(home, "py4j.java_gateway").endswith(".pyc")
    assert check_bytecode().level == Level.OK
    assert sorted(path.name for path in home.iterdir()) == sorted(
        path.name for path in (INSTALLED / "python" / "lib").glob("*.zip")
    )
    assert ": got bytecode of " in capsys.readouterr().out
    assert main(["prepare"]) == 0
    assert "has bytecode already" in capsys.readouterr().out


def test_folders_may_take_the_archives_place(
    home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archives = {path.name: path.read_bytes() for path in home.iterdir()}
    (small,) = home.glob("py4j*.zip")
    bytecode.add(small)  # what is prepared already may be unpacked
    archives[small.name] = small.read_bytes()
    assert main(["prepare", "--unpack"]) == 0
    assert capsys.readouterr().out.count(" is a folder now, bytecode of ") == 2
    worker = home / "pyspark.zip/pyspark/worker.py"
    assert imported(home, "pyspark.worker") == str(worker)
    cached = Path(importlib.util.cache_from_source(str(worker)))
    assert cached.read_bytes()[: len(importlib.util.MAGIC_NUMBER)] == importlib.util.MAGIC_NUMBER
    assert str(worker).encode() in cached.read_bytes(), "tracebacks name another place"
    assert check_bytecode().level == Level.OK
    assert main(["prepare", "--unpack"]) == 0
    assert capsys.readouterr().out.count("has bytecode already") == 2
    for name, content in archives.items():
        assert (home / f"{name}.packed").read_bytes() == content, "no way back"
    assert len(list(home.iterdir())) == 2 * len(archives)


def test_a_folder_serves_several_pythons(home: Path) -> None:
    (small,) = home.glob("py4j*.zip")
    modules = bytecode.unpack(small)
    for path in small.rglob("*.pyc"):
        path.rename(path.with_name(path.name.replace(sys.implementation.cache_tag, "cpython-39")))
    assert not bytecode.has_bytecode(small)
    assert check_bytecode().level == Level.NOTE
    assert bytecode.add(small) == modules
    assert bytecode.has_bytecode(small)


def test_what_cannot_be_put_in_an_archives_place_leaves_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (small,) = home.glob("py4j*.zip")
    rename, content = Path.rename, small.read_bytes()

    def refuse(path: Path, target: Path) -> Path:
        if path.is_dir():
            raise PermissionError("Permission denied")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(EnvironmentRefused, match="as the user that installed PySpark"):
        bytecode.unpack(small)
    assert small.read_bytes() == content
    assert {path.name for path in home.iterdir()} == {small.name, "pyspark.zip"}


def test_a_process_that_has_the_old_archive_open_goes_on(home: Path) -> None:
    """It knows where in the archive each module is that it has yet to import."""
    env = {**os.environ, "PYTHONPATH": str(home / "pyspark.zip")}
    with subprocess.Popen(
        [sys.executable, "-ic", "import pyspark; print('ready', flush=True)"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        bytecode.add(home / "pyspark.zip")
        told, _ = running.communicate("import pyspark.worker\nprint(pyspark.worker.__file__)\n")
    assert told.strip() == str(home / "pyspark.zip/pyspark/worker.py")


def test_what_is_in_the_archive_stays_as_it_was(home: Path) -> None:
    (small,) = home.glob("py4j*.zip")
    with zipfile.ZipFile(small) as whole:
        before = {name: whole.read(name) for name in whole.namelist()}
    bytecode.add(small)
    with zipfile.ZipFile(small) as whole:
        after = {name: whole.read(name) for name in whole.namelist()}
    assert before.items() < after.items()
    assert {Path(name).suffix for name in after.keys() - before.keys()} == {".pyc"}


def test_bytecode_of_another_python_is_not_ours(home: Path) -> None:
    (small,) = home.glob("py4j*.zip")
    with zipfile.ZipFile(small, "a") as whole:
        whole.writestr("py4j/__init__.pyc", bytes(len(importlib.util.MAGIC_NUMBER)))
    assert not bytecode.has_bytecode(small)
    with pytest.raises(EnvironmentRefused, match="Reinstall PySpark"):
        bytecode.add(small)


def test_an_archive_that_cannot_be_written_is_a_sentence(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("Permission denied")

    monkeypatch.setattr(shutil, "copy2", refuse)  # these tests may be root's, whom nothing stops
    (small,) = home.glob("py4j*.zip")
    with pytest.raises(EnvironmentRefused, match="as the user that installed PySpark"):
        bytecode.add(small)
    assert not list(home.glob(".*"))


def test_loops_that_cannot_be_kept_are_not_said_to_be(home: Path, tmp_path: Path) -> None:
    """In a process of its own, which has compiled none yet."""
    (tmp_path / "a file").touch()
    command = [sys.executable, "-m", "eo_kafka.tools.cli", "prepare"]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "a file")}
    ran = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (ran.returncode, "compiled loops: in" in ran.stdout) == (1, False)
    assert "were not kept: see the warning" in ran.stderr
    assert "(Not a directory): each process compiles them anew" in ran.stderr


@pytest.mark.parametrize("use", loops.USES.values(), ids=loops.USES)
def test_using_the_loops_looks_for_no_broker(
    use: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is told to be away would frighten whoever reads it."""
    told: list[object] = []
    monkeypatch.setattr(outages, "told", told.append)
    assert use()
    assert not told
