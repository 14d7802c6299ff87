"""A real Hazelcast on this machine, as a context manager: one member, or several.

    with HazelcastCluster(members=2, maps={"orders": journal(capacity=100_000)}) as grid:
        client = hazelcast.HazelcastClient(cluster_members=grid.addresses)
        grid.members[0].kill()

Every member is a JVM that listens on 127.0.0.1 only. What it holds is in memory: a member that ends
takes its part with it, unless another one has a copy. For tests and trying things out, POSIX only.
"""

from __future__ import annotations

import atexit
import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import BrokerError, PortTaken
from .hazelcast_settings import CLUSTER_NAME, journal, member_settings
from .jars import HAZELCAST_VERSION, hazelcast_jars
from .java import find_java
from .process import OneProcess, ServerProcess
from .server import Server
from .settings import LOOPBACK, free_port

START_TIMEOUT = 120.0  # seconds; 4 on an idle machine
_PORT_ATTEMPTS = 5
_STARTER = "com.hazelcast.core.server.HazelcastMemberStarter"
_SIZE = re.compile(r"Members \{size:(\d+)")
_JVM_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
)


class HazelcastMember(OneProcess):
    """One member; made and held by a HazelcastCluster. If it is stopped, what it holds goes to the
    others first. Methods raise BrokerError."""

    called = "The member"

    def __init__(self, folder: Path, port: int, version: str, settings: str) -> None:
        self.port = port
        self.version = version
        self.log_path = folder / f"member-{port}.log"
        self._config = folder / f"member-{port}.yaml"
        self._config.write_text(settings)

    @property
    def address(self) -> str:
        """`127.0.0.1:PORT`."""
        return f"{LOOPBACK}:{self.port}"

    def epitaph(self) -> str:
        """A sentence about a member that ended without being asked to."""
        return (
            f"Hazelcast {self.version} at {self.address} ended by itself. "
            f"Its log ends with: {self._log_end()}"
        )

    def launch(self) -> None:
        """Start the JVM without waiting for it."""
        self._process = ServerProcess(
            [
                *(str(find_java()), *_JVM_OPTIONS, f"-Dhazelcast.config={self._config}"),
                *("-cp", f"{hazelcast_jars(self.version)}/*", _STARTER),
            ],
            self.log_path,
        )

    def await_ready(self, members: int, timeout: float = START_TIMEOUT) -> None:
        """Return once it serves requests and sees so many members, itself among them."""
        deadline = time.monotonic() + timeout
        while not self._is_ready(members):
            if not self.running:
                raise self._died()
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"Hazelcast {self.version} at {self.address} saw no cluster of {members} "
                    f"within {timeout:.0f} seconds. Its log, {self.log_path}, ends with: "
                    f"{self._log_end()}"
                )
            time.sleep(0.05)

    def _is_ready(self, members: int) -> bool:
        output = self._said()
        sizes = _SIZE.findall(output)
        return f"{self.address} is STARTED" in output.replace("[", "").replace("]", "") and (
            # alone, it prints no list of members
            (int(sizes[-1]) if sizes else 1) == members
        )

    def _died(self) -> BrokerError:
        if "Address already in use" in self._said():
            return PortTaken(
                f"Hazelcast could not listen on {self.address}: another process holds that port. "
                "Choose another one, or 0 for any that is free."
            )
        return BrokerError(self.epitaph())


class HazelcastCluster(Server):
    """Members that form one Hazelcast.

    `port` is the first one's, 0 picks free ones; they stay the same through restarts. `maps` are
    settings of maps by name or pattern, as in Hazelcast's own file; by default every map has a
    journal. `settings` go over everything else in that file. Methods raise BrokerError.
    """

    def __init__(
        self,
        members: int = 1,
        maps: Mapping[str, Mapping[str, object]] | None = None,
        *,
        port: int = 0,
        version: str = HAZELCAST_VERSION,
        cluster_name: str = CLUSTER_NAME,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.version = version
        self.cluster_name = cluster_name
        self._size = members
        self._port = port
        self._maps = dict(maps) if maps is not None else {"*": journal()}
        self._settings = settings
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.members: tuple[HazelcastMember, ...] = ()

    @property
    def addresses(self) -> list[str]:
        """All members, as clients are given them."""
        return [member.address for member in self.members]

    def start(self) -> None:
        """Start the members that do not run, and return once all see each other."""
        if not self.members:
            self._first_start()
        else:
            self._launch()

    def restart(self) -> None:
        """End all members at once, and start them again: all that they held is lost."""
        for member in self.members:
            member.kill()
        self._launch()

    def close(self) -> None:
        """End all members, and delete their logs. `with` calls this."""
        for member in self.members:
            member.kill()  # nothing is kept that an orderly end could save
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        atexit.unregister(self.close)

    def _first_start(self) -> None:
        """Choose ports and start. A port that was free may be taken a moment later."""
        self._folder = tempfile.TemporaryDirectory(prefix="eo-kafka-hazelcast-")
        atexit.register(self.close)
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            ports = self._choose_ports()
            self.members = tuple(self._member(port, ports) for port in ports)
            try:
                self._launch()
            except PortTaken:
                for member in self.members:
                    member.kill()
                if attempt == _PORT_ATTEMPTS or self._port:
                    raise
            else:
                return

    def _choose_ports(self) -> list[int]:
        found = [free_port(self._port, "Hazelcast")]
        while len(found) < self._size:
            port = free_port(0, "Hazelcast")
            if port not in found:
                found.append(port)
        return found

    def _member(self, port: int, ports: Sequence[int]) -> HazelcastMember:
        assert self._folder is not None
        settings = member_settings(port, ports, self._maps, self.cluster_name, self._settings)
        return HazelcastMember(
            Path(os.path.abspath(self._folder.name)), port, self.version, settings
        )

    def _launch(self) -> None:
        # The first alone: several that start at once may each found a cluster of their own.
        if not any(member.running for member in self.members):
            self.members[0].launch()
            self.members[0].await_ready(1)
        for member in self.members:
            if not member.running:
                member.launch()
        for member in self.members:
            member.await_ready(len(self.members))
