"""A Spark cluster of separate processes on separate hosts, as far as Spark can tell: a master, and
workers on 127.0.0.1, 127.0.0.2, and so on.

`local-cluster` has all its workers on one host, and Spark never starts a speculative attempt on the
host of the first one.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from ..broker.settings import free_port

SPARK_HOME = Path(pyspark.__file__).parent
# A second attempt is started soon after the first one has stopped.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    # Spark would kill the worker of the attempt that lost; a machine that hangs does not let it.
    "spark.python.task.killTimeout": "600s",
    "spark.executor.memory": "512m",
}


@contextmanager
def standalone(workers: int, folder: Path) -> Iterator[str]:
    """The master's URL; all of it is killed at the end. Logs and work go into `folder`."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    running = [_start(folder, "master", "127.0.0.1", "--port", str(port))]
    try:
        _await_log(folder / "master.log", "I have been elected leader")
        for number in range(1, workers + 1):
            host = f"127.0.0.{number}"
            arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), url]
            running.append(_start(folder, f"worker-{number}", host, *arguments))
        for number in range(1, workers + 1):
            _await_log(folder / f"worker-{number}.log", "Successfully registered with master")
        yield url
    finally:
        for process in running:
            _kill_tree(process)


def _start(folder: Path, name: str, host: str, *arguments: str) -> subprocess.Popen[bytes]:
    role = name.split("-", maxsplit=1)[0]
    main = f"org.apache.spark.deploy.{role}.{role.capitalize()}"
    words = ["--host", host, "--webui-port", "0", *arguments]
    variables = {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_IP": host,  # or its web page listens on all addresses
        "SPARK_LOCAL_DIRS": str(folder / "work"),
    }
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), main, *words],
            env={**os.environ, **variables},
            stdout=log,
            stderr=log,
        )


def _await_log(log: Path, sentence: str, timeout: float = 90) -> None:
    deadline = time.monotonic() + timeout
    while sentence not in log.read_text():
        assert time.monotonic() < deadline, f"no '{sentence}':\n{log.read_text()[-2000:]}"
        time.sleep(0.1)


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()
