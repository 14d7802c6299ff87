"""Formats a node's data folder and writes the cluster id into it."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import BrokerError
from .process import tail


def new_cluster_id() -> str:
    """Kafka's form of a random id; the first byte keeps it from looking like an option."""
    return base64.urlsafe_b64encode(b"\0" + os.urandom(15)).decode().rstrip("=")


def cluster_id_of(data: Path) -> str | None:
    """The cluster that the data in this folder belongs to, None if it is not formatted."""
    try:
        found = re.search(r"^cluster\.id=(.+)$", (data / "meta.properties").read_text(), re.M)
    except FileNotFoundError:
        return None
    return found.group(1) if found else None


def format_storage(
    java: Sequence[str], config: Path, cluster_id: str, features: Mapping[str, int]
) -> None:
    """Format the `log.dirs` of a `server.properties`. `java` is the command up to the class.

    Takes about a second. Raises BrokerError with Kafka's reason.
    """
    command = [
        *(*java, "kafka.tools.StorageTool", "format"),
        *("--cluster-id", cluster_id, "--config", str(config)),
        *(f"--feature={name}={level}" for name, level in features.items()),
    ]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise BrokerError(
            f"Kafka could not format the folder of {config}; it said: {tail(done.stdout)}"
        )
