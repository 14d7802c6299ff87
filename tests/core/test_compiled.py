"""Compiled loops that are kept are those of the code that is there, and need no numba."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import llvmlite
import numpy as np
import pytest

from eo_kafka.core import librdkafka, loops
from eo_kafka.core.loops import Loop

pytestmark = pytest.mark.skipif(
    librdkafka.available() is not None, reason=str(librdkafka.available())
)
LOOP = """
from eo_kafka.core.compiled import i64, part
from package.far.away.parts import answer

@part
def asked(number):
    return answer(number)

@part
def all_kinds(number, yes, words, pair, table):
    table[1, 0] = words[0] + pair[0][1]
    return number + pair[1] if yes else number, table.shape[0]
"""
PART = """
from eo_kafka.core.compiled import part

@part
def answer(number):
    return number + {added}
"""
ASK = """
import sys
from eo_kafka.core.loops import Loop

print(Loop("package.near.loop", "asked", results=1)(1), "numba" in sys.modules)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in (("near/loop", LOOP), ("far/away/parts", PART.format(added=1))):
        file = tmp_path.joinpath("package", name).with_suffix(".py")
        file.parent.mkdir(parents=True)
        file.write_text(text)
    (tmp_path / "package" / "__init__.py").touch()
    return tmp_path


def asked(package: Path, cache: str = "cache", before: str = "", said: str = "") -> list[str]:
    """What a process prints that runs `before` first, and has `said` as warnings."""
    env = {**os.environ, "XDG_CACHE_HOME": str(package / cache)}
    env["PYTHONPATH"] = os.pathsep.join([str(package), *filter(None, sys.path)])
    program = [sys.executable, "-c", f"import os\n{before}{ASK}"]
    run = subprocess.run(program, env=env, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert (said in run.stderr) if said else run.stderr == ""
    return run.stdout.split()


def kept(package: Path) -> list[Path]:
    return list(package.joinpath("cache").rglob("*.loop"))


def test_a_loop_is_compiled_once_and_anew_when_a_part_of_it_was_changed(package: Path) -> None:
    assert asked(package) == ["2", "True"]
    assert asked(package) == ["2", "False"]
    package.joinpath("package/far/away/parts.py").write_text(PART.format(added=10))
    assert asked(package) == ["11", "True"]
    assert len(kept(package)) == 2


@pytest.mark.parametrize("spoil", [lambda code: code[:-7], lambda code: code + b"!", lambda _: b""])
def test_what_is_not_whole_in_the_cache_is_compiled_anew(package: Path, spoil) -> None:
    asked(package)
    (loop,) = kept(package)
    good = loop.read_bytes()
    loop.write_bytes(spoil(good))
    assert asked(package) == ["2", "True"]
    assert loop.read_bytes() == good
    assert asked(package) == ["2", "False"]


def test_where_nothing_can_be_kept_each_process_compiles(package: Path) -> None:
    package.joinpath("a file").touch()
    said = "Compiled loops cannot be kept in this user's cache folder (Not a directory)"
    assert asked(package, cache="a file", said=said) == ["2", "True"]
    assert asked(package, cache="a file", said=said) == ["2", "True"]


def test_a_user_without_name_and_home_compiles(package: Path) -> None:
    """As in a container: `Path.home` knows none."""
    before = "del os.environ['XDG_CACHE_HOME'], os.environ['HOME']\nos.getuid = lambda: 2**31 - 3\n"
    said = "(this user has no home directory): each process compiles them anew"
    assert asked(package, before=before, said=said) == ["2", "True"]


def test_a_full_disk_keeps_no_part_of_a_loop(package: Path) -> None:
    before = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (99, 99))\n"
    assert asked(package, before=before, said="(File too large)") == ["2", "True"]
    assert [path.name for path in package.joinpath("cache").rglob("*.*")] == []


def test_a_folder_that_a_stranger_may_write_to_is_not_used(package: Path) -> None:
    assert asked(package, before="os.umask(0)\n") == ["2", "True"]
    (loop,) = kept(package)
    for path in (loop, loop.parent, loop.parent.parent):
        assert path.stat().st_mode & 0o022 == 0
    assert asked(package) == ["2", "False"]
    loop.parent.parent.chmod(0o1777)
    assert asked(package, said="loops is another user's, or open to all)") == ["2", "True"]
    loop.parent.parent.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(loop.parent, 4711, -1)
        assert asked(package, said="is another user's, or open to all)") == ["2", "True"]


def test_a_loop_in_an_archive_is_kept_too(package: Path) -> None:
    archive = package / "package.zip"
    subprocess.run(
        [sys.executable, "-m", "zipfile", "-c", archive, "package"], cwd=package, check=True
    )
    package.joinpath("package").rename(package / "gone")
    for numba in ("True", "False"):
        env = {"XDG_CACHE_HOME": str(package / "cache")}
        env["PYTHONPATH"] = os.pathsep.join([str(archive), *filter(None, sys.path)])
        run = subprocess.run(
            [sys.executable, "-c", ASK],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert run.stdout.split() == ["2", numba], run.stderr


def test_all_kinds_of_arguments_arrive(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.setenv("XDG_CACHE_HOME", str(package / "cache"))
    loop = Loop("package.near.loop", "all_kinds", results=2)
    words, inner = np.array([40, 0], np.uint8), np.array([0, -2], np.int32)
    table = np.zeros((3, 2), np.int64)
    assert loop(2**62, True, words, (inner, -5), table) == (2**62 - 5, 3)
    assert table.tolist() == [[0, 0], [38, 0], [0, 0]]
    assert loop(np.int32(-1), np.bool_(False), words[1:], (inner[1:], 0), table)[0] == -1
    assert loop(7, False, words, (inner.astype(np.int64), 0), table) == (7, 3)
    assert table[1, 0] == 38
    assert len(kept(package)) == 2  # one for each set of types
    with pytest.raises(ValueError, match="contiguous"):
        loop(7, False, words, (inner, 0), table.T)


def test_a_loop_whose_functions_are_not_there_is_an_error_and_not_the_end(monkeypatch) -> None:
    code = loops.ObjectCode("f", ["rd_kafka_no_such_function"], b"")
    with pytest.raises(RuntimeError, match="has no rd_kafka_no_such_function"):
        loops._load(code)


def test_versions_are_found_without_a_look_into_archives(tmp_path, monkeypatch):
    """Spark puts its jar and its zip files before all others: listing them took 0.2 s a worker."""
    archive = tmp_path / "spark.jar"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("org/apache/spark/Some.class", "")
    monkeypatch.syspath_prepend(str(archive))
    opened = []
    monkeypatch.setattr(zipfile, "Path", opened.append)
    assert loops._version("llvmlite") == llvmlite.__version__
    assert opened == []


def test_a_version_that_is_not_beside_its_package_is_looked_for_everywhere(monkeypatch):
    monkeypatch.setattr(loops, "find_spec", lambda name: None)
    assert loops._version("llvmlite") == llvmlite.__version__
