"""A real RabbitMQ on this machine, as a context manager.

    with RabbitMQ() as server:
        frame = spark.readStream.format("eo-queue").option("url", server.url)

A node that listens on 127.0.0.1 only, with RabbitMQ's defaults but for its addresses. It is the
installed one (Debian's package `rabbitmq-server`); its data, its log, its cookie and its Erlang
port mapper are its own. For tests and trying things out, Linux only.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from .errors import BrokerError
from .process import OneProcess, ServerProcess
from .server import Server
from .settings import LOOPBACK, free_port

START_TIMEOUT = 90.0
# Debian's script in /usr/sbin changes the user, and knows one place for everything.
_PROGRAMS = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")
_NEEDED = (
    "RabbitMQ is not installed on this machine: apt-get install --no-install-recommends "
    "rabbitmq-server (it need not run)."
)


def why_not() -> str | None:
    """A sentence, where there is no RabbitMQ to start."""
    return None if _program() else _NEEDED


def _program() -> str | None:
    return next((found for name in _PROGRAMS if (found := shutil.which(name))), None)


class RabbitMQ(OneProcess, Server):
    """One node; its data goes with it. It can be killed and started again. `settings` are lines of
    its configuration file, over RabbitMQ's defaults. Methods raise BrokerError."""

    called = "RabbitMQ"
    stop_timeout = 90.0

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        self._settings = dict(settings or {})
        self.port = 0
        self._ports = (0, 0)  # of Erlang's port mapper, and of the node for its tools
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._mapper: ServerProcess | None = None

    @property
    def url(self) -> str:
        """What clients are given: option `url`."""
        return f"amqp://guest:guest@{LOOPBACK}:{self.port}/%2F"

    def start(self) -> None:
        """Start it, for the first time or again, and return once it takes connections."""
        if self._folder is None:
            self._make()
        deadline = time.monotonic() + START_TIMEOUT
        self._process = ServerProcess(
            ["/usr/bin/env", *self._variables(), str(_program())], self._home / "output"
        )
        while "completed with" not in self._said():
            if not self.running or time.monotonic() > deadline:
                raise BrokerError(f"RabbitMQ did not start. Its log ends with: {self._log_end()}")
            time.sleep(0.05)

    def close(self) -> None:
        """End it, and delete all. `with` calls this."""
        self.kill()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper = None
        if self._folder is not None:
            with suppress(OSError):
                self._folder.cleanup()
            self._folder = None
        atexit.unregister(self.close)

    @property
    def _home(self) -> Path:
        if self._folder is None:
            raise BrokerError("RabbitMQ was not started: use 'with'.")
        return Path(self._folder.name)

    def _make(self) -> None:
        if _program() is None:
            raise BrokerError(_NEEDED)
        self._folder = tempfile.TemporaryDirectory(prefix="eo-kafka-rabbitmq-")
        atexit.register(self.close)
        self.port = free_port(0, "RabbitMQ")
        self._ports = free_port(0, "RabbitMQ"), free_port(0, "RabbitMQ")
        (self._home / "config").mkdir()
        (self._home / "config" / "enabled_plugins").write_text("[].\n")
        lines = [f"{name} = {value}\n" for name, value in self._settings.items()]
        (self._home / "config" / "rabbitmq.conf").write_text("".join(lines))
        mapper = [str(shutil.which("epmd")), "-address", LOOPBACK, "-port", str(self._ports[0])]
        self._mapper = ServerProcess(mapper, self._home / "epmd")

    def _variables(self) -> list[str]:
        home, config = self._home, self._home / "config"
        loopback = "{127,0,0,1}"
        wanted = {
            "HOME": home,  # the cookie
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": self._ports[0],
            "RABBITMQ_NODENAME": f"eo-kafka-{os.getpid()}-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_DIST_PORT": self._ports[1],
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {loopback}",
            "RABBITMQ_MNESIA_BASE": home / "data",
            "RABBITMQ_LOG_BASE": home / "log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": config / "rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": config / "advanced.config",
            "RABBITMQ_CONF_ENV_FILE": config / "rabbitmq-env.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": config / "enabled_plugins",
            "RUNNING_UNDER_SYSTEMD": "true",  # its script then becomes the node, whose id is ours
        }
        return [f"{name}={value}" for name, value in wanted.items()]
