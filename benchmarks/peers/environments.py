"""The peers' own environments: made on first use in the cache folder, outside the repository.

<cache>/eo-kafka/peers/flink-2.2.1/          a virtual environment with apache-flink
<cache>/eo-kafka/peers/quix-3.28.1/          one with quixstreams
<cache>/eo-kafka/flink-connector-kafka-.../  its jars, resolved and checked as the broker's are
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from eo_kafka.broker.jars import Bundle, fetched
from eo_kafka.core.process.user_cache import user_cache

FLINK_VERSION, CONNECTOR_VERSION, CLIENTS_VERSION = "2.2.1", "5.0.0-2.2", "4.2.0"
QUIX_VERSION = "3.28.1"
FLINK_FACTS = {  # for reports
    "Flink": FLINK_VERSION,
    "flink-connector-kafka": f"{CONNECTOR_VERSION} with kafka-clients {CLIENTS_VERSION}",
}
FACTS = {**FLINK_FACTS, "Quix Streams": QUIX_VERSION}
_FLINK_PYTHONS = ((3, 9), (3, 12))  # oldest and newest that apache-flink has wheels for

# Exactly this kafka-clients: the exactly-once sink sets private fields of the producer, which newer
# ones call otherwise. slf4j is in Flink.
_FLINK_JARS = Bundle(
    title=f"Flink's Kafka connector {CONNECTOR_VERSION}",
    folder=f"flink-connector-kafka-{CONNECTOR_VERSION}",
    main=f"flink-connector-kafka-{CONNECTOR_VERSION}.jar",
    dependencies=f"""
    <dependency org="org.apache.flink" name="flink-connector-kafka" rev="{CONNECTOR_VERSION}"
                conf="default->compile,runtime,master">
      <exclude org="org.slf4j"/>
    </dependency>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="{CLIENTS_VERSION}"
                conf="default->compile,runtime,master">
      <exclude org="org.slf4j"/>
    </dependency>""",
)

# Maven Central has no flink-sql-avro of this Flink, which would have all in one jar.
FLINK_AVRO = Bundle(
    title=f"Flink's Avro format {FLINK_VERSION}",
    folder=f"flink-avro-{FLINK_VERSION}",
    main=f"flink-avro-{FLINK_VERSION}.jar",
    dependencies=f"""
    <dependency org="org.apache.flink" name="flink-avro" rev="{FLINK_VERSION}"
                conf="default->compile,runtime,master">
      <exclude org="org.slf4j"/>
    </dependency>""",
)

# All in one jar, which works with the patch releases of its Flink.
FLINK_AVRO_CONFLUENT = Bundle.of_one_jar(
    "Flink's Avro format with a schema registry 2.2.0",
    "flink-sql-avro-confluent-registry-2.2.0",
    *("org.apache.flink", "flink-sql-avro-confluent-registry", "2.2.0"),
)


class PeerMissing(Exception):
    """A peer cannot be installed or built on this machine; the text says what is missing."""


@dataclass(frozen=True)
class Environments:
    """Python of each peer, and the jars that Flink is given."""

    flink: Path
    flink_jars: tuple[Path, ...]
    quix: Path


def installed(python: str | None = None) -> Environments:
    """All peers, installed where they are not yet: a few minutes, once.

    `python` is what they run with; None takes this one, or another one of this machine that Flink
    has wheels for. Raises PeerMissing, and BrokerError for jars that cannot be had.
    """
    chosen = _suitable(python)
    return Environments(
        flink=_environment(f"flink-{FLINK_VERSION}", f"apache-flink=={FLINK_VERSION}", chosen),
        flink_jars=tuple(sorted(fetched(_FLINK_JARS).glob("*.jar"))),
        quix=_environment(f"quix-{QUIX_VERSION}", f"quixstreams=={QUIX_VERSION}", chosen),
    )


def _suitable(python: str | None) -> str:
    """`python` if Flink has wheels for it, or without one the first such Python there is."""
    (major, oldest), (_, newest) = _FLINK_PYTHONS
    others = (f"python{major}.{minor}" for minor in range(newest, oldest - 1, -1))
    candidates = [python] if python else [sys.executable, *others]
    for candidate in candidates:
        if _FLINK_PYTHONS[0] <= _version(candidate) <= _FLINK_PYTHONS[1]:
            return candidate
    raise PeerMissing(
        f"apache-flink {FLINK_VERSION} needs Python {major}.{oldest} to {major}.{newest}, and of "
        f"{', '.join(candidates)} none is: name another one with --python."
    )


def _version(python: str) -> tuple[int, ...]:
    """Of an interpreter; () when there is none of that name that runs."""
    program = "import sys; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ()
    return tuple(map(int, answer.stdout.split()))


def _environment(name: str, requirement: str, python: str) -> Path:
    """The interpreter of a virtual environment with `requirement` in it."""
    folder = user_cache() / "peers" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    complete = folder / "complete"  # written last: an install that was broken off is made anew
    with folder.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
            print(f"installing {requirement} in {folder} (once) ...", file=sys.stderr, flush=True)
            _run([python, "-m", "venv", str(folder)], requirement)
            _run([str(folder / "bin/pip"), "install", "--quiet", requirement], requirement)
            complete.touch()
    return folder / "bin" / "python"


def _run(command: list[str], requirement: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=own())
    if done.returncode:
        raise PeerMissing(f"{requirement} could not be installed: {done.stderr.strip()[-500:]}")


def own() -> dict[str, str]:
    """This process's environment without what would lead a peer's Python to our packages."""
    ours = ("PYTHONPATH", "PYSPARK_PYTHON", "VIRTUAL_ENV", "SPARK_HOME")
    return {name: value for name, value in os.environ.items() if name not in ours}
