"""Virtual environments with the built wheel in them and nothing of this tree."""

from __future__ import annotations

import configparser
import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def one_build() -> Iterator[None]:
    """One at a time, of all processes: each clears away the tree's folder `build`."""
    with (ROOT / "pyproject.toml").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree."""
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT]
    with one_build():
        built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def interpreter(version: str) -> Path | None:
    """A Python of this version ("3.12") on this machine, on the PATH or pyenv's; None if there is
    none."""
    found = [shutil.which(f"python{version}"), *pyenv_pythons(version)]
    for python in filter(None, found):  # pyenv puts shims on the PATH that lead nowhere
        if subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
            return Path(python)
    return None


def pyenv_pythons(version: str) -> list[str]:
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    return sorted(map(str, versions.glob(f"{version}.*/bin/python")))


def new_environment(folder: Path, python: Path, *packages: str | Path) -> Path:
    """The interpreter of a new virtual environment with `packages` in it."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    made = folder / "bin" / "python"
    pip = [made, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *packages], check=True)
    return made


def lowest(*extras: str) -> list[str]:
    """What setup.cfg requires, each package as the lowest version that it allows."""
    of_project = configparser.ConfigParser()
    of_project.read(ROOT / "setup.cfg")
    offered = of_project["options.extras_require"]
    required = [of_project["options"]["install_requires"], *(offered[extra] for extra in extras)]
    bound = re.compile(r"^([\w-]+)(?:\[.+\])?>=([\d.]+)[^;\n]*(.*)", re.MULTILINE)
    return ["{}=={}{}".format(*found) for found in bound.findall("\n".join(required))]


def bare_environment(folder: Path) -> Path:
    """The interpreter of a new environment with what these tests run on, but for this package."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("eo_kafka", "pyspark_eo_", "__editable__")):
            (packages / path.name).symlink_to(path)
    return folder / "bin" / "python"


def variables(python: Path, home: Path) -> dict[str, str]:
    """What a process in that environment is given of this one's variables: next to nothing, so
    that the wheel is what it imports."""
    kept = ("JAVA_HOME", "JDK_JAVA_OPTIONS", "EO_KAFKA_CRASH_POINTS")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PATH": os.environ["PATH"] if "JAVA_HOME" not in os.environ else "/usr/bin:/bin",
        "PYSPARK_PYTHON": str(python),
        "HOME": str(home),
    }
