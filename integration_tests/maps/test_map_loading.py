"""A batch of a map whose MapLoader is still loading: it waits, and gives all of it or an error."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path
from zipfile import ZipFile

import pytest

from eo_kafka.broker import hazelcast as grid_module
from eo_kafka.broker.hazelcast import HazelcastCluster
from eo_kafka.broker.jars import hazelcast_jars
from eo_kafka.broker.java import find_java
from eo_kafka.clients.hazelcast.client import close_clients
from eo_kafka.errors import ReadTimeout, SourceError
from eo_kafka.sources.maps.entries import EntriesTask, plan, read_entries
from eo_kafka.sources.maps.options import MapOptions
from eo_kafka.sources.maps.pushed import NOTHING_PUSHED, Pushed
from eo_kafka.testing.processes import wait_until

SOURCE = Path(__file__).with_name("GatedLoader.java")
JAVAC = shutil.which("javac", path=str(find_java().parent)) or shutil.which("javac")
pytestmark = pytest.mark.skipif(JAVAC is None, reason="needs a JDK's javac")
ALL = {f"k{number}": f"v{number}" for number in range(2000)}


class Loading:
    """A Hazelcast whose maps have a loader that waits at a gate."""

    def __init__(self, grid: HazelcastCluster, gate: Path) -> None:
        self.grid = grid
        self._gate = gate

    def options(self, name: str, **more: str) -> MapOptions:
        given = {"backend": "hazelcast", "map": name, **more}
        given["hazelcast.members"] = ",".join(self.grid.addresses)
        return MapOptions.parse(given, streaming=False)

    def open(self, name: str, fault: str = "") -> None:
        """Let a map load, or fail, as soon as it asks for its keys."""
        wait_until((self._gate / f"{name}.asked").exists, "the members load the map")
        part = self._gate / f"{name}.part"
        part.write_text(fault)
        part.rename(self._gate / f"{name}.open")


def rows_of(options: MapOptions, tasks: list[EntriesTask]) -> dict[str, str]:
    batches = [batch.to_pylist() for task in tasks for batch in read_entries(options, task)]
    return {row["key"]: row["value"] for batch in batches for row in batch}


@pytest.fixture(scope="module")
def loading(tmp_path_factory):
    folder, gate = tmp_path_factory.mktemp("jars"), tmp_path_factory.mktemp("gate")
    (jar,) = hazelcast_jars().glob("*.jar")
    build = [JAVAC, "-cp", str(jar), "-d", str(folder), str(SOURCE)]
    subprocess.run(build, check=True, timeout=120)
    with ZipFile(folder / "loader.jar", "w") as archive:
        archive.write(folder / "GatedLoader.class", "GatedLoader.class")
    (folder / jar.name).symlink_to(jar)
    loader = {"enabled": True, "class-name": "GatedLoader", "properties": {"gate": str(gate)}}
    maps = {
        f"{mode}*": {"map-store": {**loader, "initial-mode": mode.upper()}}
        for mode in ("lazy", "eager")
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid_module, "hazelcast_jars", lambda _: folder)
        with HazelcastCluster(2, maps) as grid:
            yield Loading(grid, gate)
            close_clients()


@pytest.mark.parametrize("mode", ["lazy", "eager"])
@pytest.mark.parametrize("keys", [None, ("k7", "k8")], ids=["all", "by-key"])
def test_a_batch_waits_until_the_map_is_loaded(loading, mode, keys) -> None:
    name = f"{mode}-{'keys' if keys else 'all'}"
    options = loading.options(name)
    opener = threading.Thread(target=loading.open, args=(name,))
    opener.start()
    pushed = Pushed(keys=keys) if keys else NOTHING_PUSHED
    assert rows_of(options, plan(options, pushed)) == {key: ALL[key] for key in keys or ALL}
    opener.join()


def test_a_map_that_is_not_loaded_in_time_is_told(loading) -> None:
    name = "lazy-slow"
    soon = loading.options(name, **{"hazelcast.request.timeout.ms": "500"})
    with pytest.raises(ReadTimeout, match=f"'{name}'.* within 0.5 s.*still loading"):
        plan(soon)
    loading.open(name)
    options = loading.options(name)
    assert rows_of(options, plan(options)) == ALL


def test_a_task_waits_by_itself(loading) -> None:
    """After the driver has planned, a partition whose only copies died is loaded again."""
    planned = plan(loading.options("plain"))
    opener = threading.Thread(target=loading.open, args=("lazy-later",))
    opener.start()
    assert rows_of(loading.options("lazy-later"), planned) == ALL
    opener.join()


def test_a_loader_that_fails_is_told_before_a_task_is_planned(loading) -> None:
    """Members tell it once; a task that is run again would find the map empty."""
    opener = threading.Thread(target=loading.open, args=("lazy-broken", "no such table"))
    opener.start()
    with pytest.raises(SourceError, match=r"no such table.*IMap\.loadAll"):
        plan(loading.options("lazy-broken"))
    opener.join()
