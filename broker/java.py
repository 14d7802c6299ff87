"""Finds the Java that PySpark uses: `$JAVA_HOME/bin/java`, else the first on the PATH."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from .errors import BrokerError

MINIMUM = 17  # what Kafka 4's server asks for, and PySpark 4
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java() -> Path:
    """The path of a `java` that can run Kafka.

    Runs on the driver's machine; asks the JVM for its version once per path and process.
    Raises BrokerError when there is none or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        raise BrokerError(
            f"No Java was found: JAVA_HOME is not set and there is no 'java' on the PATH. "
            f"Install Java {MINIMUM} or newer, which PySpark needs too."
        )
    version = _major_version(found)
    if version < MINIMUM:
        raise BrokerError(
            f"{found} is Java {version}, and Kafka needs Java {MINIMUM} or newer. "
            f"Install one and point JAVA_HOME at it."
        )
    return Path(found)


@functools.cache
def _major_version(java: str) -> int:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerError(
            f"{java} could not be run ({error}). Point JAVA_HOME at Java {MINIMUM} or newer."
        ) from error
    match = _VERSION.search(answer.stderr + answer.stdout)
    if match is None:
        raise BrokerError(
            f"{java} did not tell its version ('{java} -version' ended with "
            f"{answer.returncode}). Point JAVA_HOME at Java {MINIMUM} or newer."
        )
    return int(match.group(1))
