"""Runs the job until it is ended: `python job.py`, or `spark-submit job.py production`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import eo_kafka
from pipeline import Settings, build
from streams import typed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VARIABLE = re.compile(r"\$\{(\w+)\}")
URL = re.compile(r"[A-Za-z][\w+.-]*:")
FOLDER = Path(__file__).parent.resolve()


def config(*sections: str) -> dict[str, str]:
    """These sections of config.toml as text, a later one over an earlier one.

    `${NAME}` in a value is that variable of the environment: for secrets.
    """
    try:
        read = tomllib.loads((FOLDER / "config.toml").read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SystemExit(f"config.toml: {error}.") from None
    if missing := [one for one in sections if one not in read]:
        raise SystemExit(f"config.toml has no section [{missing[0]}].")
    found = {name: text for one in sections for name, text in _flat(read[one]).items()}
    filled = {name: _filled(name, text) for name, text in found.items()}
    place = filled.get("checkpoint")
    if place and not URL.match(place):  # in this folder, from wherever Spark was started
        filled["checkpoint"] = str(FOLDER / place)
    return filled


def settings(section: str) -> dict[str, str]:
    """The job's, checked: that takes no Spark, which is slow to start."""
    found = config("job", section)
    try:
        typed(Settings, found)
    except ValueError as error:
        raise SystemExit(f"config.toml, [job] and [{section}]: {error}") from None
    return found


def session() -> SparkSession:
    """Spark with the settings of config.toml, in this folder."""
    os.chdir(FOLDER)  # for what Spark leaves, as spark-warehouse
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    for name, value in config("spark").items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def parser(description: str | None) -> argparse.ArgumentParser:
    """Of a command line with a section of config.toml."""
    found = argparse.ArgumentParser(description=description)
    sections: dict[str, Any] = {"choices": ("dev", "production"), "default": "dev"}
    found.add_argument("section", nargs="?", help="of config.toml", **sections)
    return found


def main() -> None:
    """Until the query ends, or with `--once` until it has read what is there now."""
    words = parser(__doc__)
    words.add_argument("--once", action="store_true", help="end when all that is there is read")
    arguments = words.parse_args()
    given = settings(arguments.section)
    writer = build(session(), given)
    query = eo_kafka.start(writer.trigger(availableNow=True) if arguments.once else writer)
    query.awaitTermination()


def _filled(name: str, text: str) -> str:
    try:
        return VARIABLE.sub(lambda found: os.environ[found[1]], text)
    except KeyError as error:
        raise SystemExit(
            f"config.toml: '{name}' names {error}, and the environment has no such variable."
        ) from None


def _flat(found: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """`kafka.security.protocol`, and not a table in a table."""
    flat: dict[str, str] = {}
    for name, one in found.items():
        if isinstance(one, dict):
            flat |= _flat(one, f"{before}{name}.")
        elif isinstance(one, list):
            raise SystemExit(f"config.toml: '{before}{name}' must be text, as \"a,b\".")
        else:
            flat[f"{before}{name}"] = str(one).lower() if isinstance(one, bool) else str(one)
    return flat


if __name__ == "__main__":
    main()
