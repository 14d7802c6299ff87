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
from pipeline import build

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VARIABLE = re.compile(r"\$\{(\w+)\}")
FOLDER = Path(__file__).parent.resolve()


def config(*sections: str) -> dict[str, str]:
    """These sections of config.toml as text, a later one over an earlier one.

    `${NAME}` in a value is that variable of the environment: for secrets.
    """
    read = tomllib.loads((FOLDER / "config.toml").read_text(encoding="utf-8"))
    found = {name: text for one in sections for name, text in _flat(read[one]).items()}
    return {name: _filled(name, text) for name, text in found.items()}


def session() -> SparkSession:
    """Spark with the settings of config.toml, in this folder."""
    os.chdir(FOLDER)  # a checkpoint of dev lies here, from wherever this was started
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
    writer = build(session(), config("job", arguments.section))
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
        else:
            flat[f"{before}{name}"] = str(one).lower() if isinstance(one, bool) else str(one)
    return flat


if __name__ == "__main__":
    main()
