"""What `eo-kafka doctor` checks without a broker: Python, Spark's lookup of formats, clients, Java.

Runs on the machine of the command only. What executors on other machines have, it cannot see.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from ..prepare import bytecode

FORMAT_MODULE = "pyspark_eo_kafka"
JAVA_MINIMUM = 17
_DRIVER = "PYSPARK_DRIVER_PYTHON"
_PROBE = Path(__file__).with_name("interpreter_probe.py")
_PROBE_TIMEOUT_S = 120
# package -> (oldest that works, first that no test ran with)
_TESTED = {
    "pyspark": ((4, 0), (5,)),
    "pyarrow": ((18,), None),
    "confluent-kafka": ((2, 16), (3,)),
    "kafka-python": ((3, 0, 12), (3, 1)),
    "numba": ((0, 61), None),
}


class Level(str, Enum):
    """How bad a finding is. Only PROBLEM makes the doctor fail."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's: what was looked at, what was found and what to do about it."""

    level: Level
    subject: str
    text: str


def check_machine() -> list[Finding]:
    """All checks of this machine."""
    asked = os.environ.get(_DRIVER)  # where it is set, Spark asks this one for Python's formats
    driver = asked or sys.executable
    workers = os.environ.get("PYSPARK_PYTHON")
    findings = []
    if workers is None:
        findings.append(
            Finding(
                Level.WARNING,
                "PYSPARK_PYTHON",
                "not set: Spark runs its workers with the first 'python3' on the PATH "
                f"({shutil.which('python3') or 'there is none'}). Set it to {sys.executable}.",
            )
        )
        workers = "python3"
    here = ask(driver)
    there = here if shutil.which(workers) == shutil.which(driver) else ask(workers)
    findings += [_unanswered_driver(driver, here)] if "error" in here else []
    findings += [_unanswered("PYSPARK_PYTHON", workers, there)] if "error" in there else []
    findings += check_path(asked or workers)
    looks = here if asked else there
    findings += check_lookup(looks) if "error" not in looks else []
    findings += check_versions(there) if "error" not in there else []
    if "error" not in here and "error" not in there:
        findings.append(check_same(here, there))
    return [*findings, check_fast_path(), check_bytecode(), check_java()]


def check_path(python: str) -> list[Finding]:
    """Of the Python that Spark asks for formats: it asks a shell for that one without quotes
    (`Utils.checkCommandAvailable` in its core), and looks for no format where that fails."""
    if not any(character.isspace() for character in python):
        return []
    text = (
        f"has a space in it ({python}): Spark does not find it, and every query fails with "
        "DATA_SOURCE_NOT_FOUND. Put its folder on the PATH and set PYSPARK_PYTHON=python; or call "
        "eo_kafka.register(spark)."
    )
    return [Finding(Level.PROBLEM, "PYSPARK_PYTHON", text)]


def ask(python: str) -> dict[str, Any]:
    """What `interpreter_probe` says in that interpreter; {"error": why} if it says nothing."""
    try:
        answer = subprocess.run(
            [python, "-c", _PROBE.read_text()],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
        found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
        return found
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _unanswered(subject: str, python: str, found: dict[str, Any]) -> Finding:
    return Finding(Level.PROBLEM, subject, f"{python} cannot be run ({found['error']})")


def _unanswered_driver(python: str, found: dict[str, Any]) -> Finding:
    text = (
        f"{python} is no Python that can be run ({found['error']}). Spark asks it for Python's "
        "formats and finds none: every query fails with DATA_SOURCE_NOT_FOUND. Where it is to be "
        "so, as with jupyter, call eo_kafka.register(spark) before the first query."
    )
    return Finding(Level.PROBLEM, _DRIVER, text)


def check_lookup(found: dict[str, Any]) -> list[Finding]:
    """Whether Spark's lookup, which imports every module `pyspark_*`, gets to our format."""
    broken = [
        Finding(
            Level.PROBLEM,
            "Spark's lookup",
            f"module {name} fails to import ({reason}), and that hides every Python format, ours "
            "too. Repair or uninstall the package it belongs to.",
        )
        for name, reason in found["broken"].items()
    ]
    if FORMAT_MODULE in found["broken"] or FORMAT_MODULE in found["formats"]:
        others = sorted(set(found["formats"]) - {FORMAT_MODULE})
        more = f"; besides it: {', '.join(others)}" if others else ""
        return broken or [
            Finding(Level.OK, "Spark's lookup", f"finds format eo-kafka ({FORMAT_MODULE}){more}")
        ]
    text = (
        f"{found['executable']} has no module {FORMAT_MODULE}: install eo-kafka there, or every "
        "query fails with DATA_SOURCE_NOT_FOUND."
    )
    return [*broken, Finding(Level.PROBLEM, "Spark's lookup", text)]


def check_versions(found: dict[str, Any]) -> list[Finding]:
    """Whether the workers' packages are there, and of versions that were tested."""
    findings = []
    for package, (oldest, too_new) in _TESTED.items():
        version = found["versions"].get(package)
        if version is None:
            text = f"cannot be imported ({found['errors'].get(package)}): pip install it"
            findings.append(Finding(Level.PROBLEM, package, text))
        elif _numbers(version) < oldest:
            text = f"{version} is too old: {_dotted(oldest)} or newer is needed"
            findings.append(Finding(Level.PROBLEM, package, text))
        elif too_new is not None and _numbers(version) >= too_new:
            text = f"{version} was not tested; {_dotted(oldest)} up to {_dotted(too_new)} was"
            findings.append(Finding(Level.WARNING, package, text))
        else:
            findings.append(Finding(Level.OK, package, version))
    return findings


def check_same(here: dict[str, Any], there: dict[str, Any]) -> Finding:
    """Whether driver and workers run the same Python and packages."""
    different = [
        f"{name} {mine or 'missing'} / {theirs or 'missing'}"
        for name, mine, theirs in (
            ("Python", _minor(here["python"]), _minor(there["python"])),
            *(
                (name, here["versions"].get(name), there["versions"].get(name))
                for name in sorted({*here["versions"], *there["versions"]})
            ),
        )
        if mine != theirs
    ]
    if different:
        text = (
            f"differ (driver / worker): {', '.join(different)}. PySpark refuses another Python, "
            "and what one pickled may not load in the other. Use one environment."
        )
        return Finding(Level.PROBLEM, "driver and workers", text)
    text = f"the same: Python {there['python']}, {there['executable']}"
    return Finding(Level.OK, "driver and workers", text)


def check_fast_path() -> Finding:
    """Whether compiled loops can be used by this interpreter."""
    from ...core import librdkafka

    reason = librdkafka.available()
    if reason is None:
        return Finding(Level.OK, "compiled loops", "can be used")
    return Finding(Level.WARNING, "compiled loops", f"cannot be used, it will be slow: {reason}")


def check_bytecode() -> Finding:
    """Whether Spark's Python processes compile PySpark anew, each for itself."""
    subject = "PySpark's bytecode"
    archives = bytecode.archives()
    if not archives:
        return Finding(Level.NOTE, subject, "not looked at: no archives of a Spark are found here")
    slow = [str(path) for path in archives if not bytecode.has_bytecode(path)]
    if slow:
        text = (
            f"{', '.join(slow)} has none for this Python, so each process that Spark starts "
            "compiles PySpark anew, for half a second of CPU. 'eo-kafka prepare' adds it."
        )
        return Finding(Level.NOTE, subject, text)
    return Finding(Level.OK, subject, "Spark's Python processes compile nothing")


def check_java() -> Finding:
    """Whether there is a Java that PySpark 4 runs on."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    try:
        if java is None:
            raise OSError("JAVA_HOME is not set and there is no 'java' on the PATH")
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
        match = re.search(r'version "(?:1\.)?(\d+)[^"]*"', answer.stderr + answer.stdout)
        if match is None:
            raise OSError(f"'{java} -version' does not tell one")
    except (OSError, subprocess.TimeoutExpired) as error:
        text = f"not found ({error}): install Java {JAVA_MINIMUM}"
        return Finding(Level.PROBLEM, "Java", text)
    if int(match[1]) < JAVA_MINIMUM:
        text = f"{java} is {match[1]}; PySpark needs {JAVA_MINIMUM} or newer"
        return Finding(Level.PROBLEM, "Java", text)
    return Finding(Level.OK, "Java", f"{match[0].removeprefix('version ')}, {java}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
