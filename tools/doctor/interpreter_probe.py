"""Asks an interpreter what Spark will find in it: `python -c <this file>` prints one JSON object.

Imports nothing of ours and runs on any Python 3: the interpreter asked may be another one than the
one that asks, without this package in it.
"""

import importlib
import json
import pkgutil
import sys

PACKAGES = ("pyspark", "pyarrow", "confluent-kafka", "kafka-python", "numba", "eo-kafka")
MODULES = {"confluent-kafka": "confluent_kafka", "kafka-python": "kafka", "eo-kafka": "eo_kafka"}


def probe() -> dict[str, object]:
    """Versions of the packages that import, why others do not, and each module `pyspark_*`."""
    found: dict[str, object] = {"python": "{}.{}.{}".format(*sys.version_info[:3])}
    versions, errors = {}, {}
    for package in PACKAGES:
        try:
            module = importlib.import_module(MODULES.get(package, package))
            versions[package] = str(getattr(module, "__version__", "?"))
        except BaseException as error:  # a broken package may raise anything
            errors[package] = f"{type(error).__name__}: {error}"
    formats, broken = {}, {}
    for info in pkgutil.iter_modules():
        if info.name.startswith("pyspark_"):
            try:
                source = importlib.import_module(info.name)
                formats[info.name] = (
                    source.DefaultSource.name() if hasattr(source, "DefaultSource") else None
                )
            except BaseException as error:
                broken[info.name] = f"{type(error).__name__}: {error}"
    return {
        **found,
        "executable": sys.executable,
        "versions": versions,
        "errors": errors,
        "formats": formats,
        "broken": broken,
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(probe()) + "\n")
