"""Members that live refuse a part of a chunk's commit, and make the rest: here a map's store fails
for one key, which is a row's or the marker's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eo_kafka.broker import hazelcast
from eo_kafka.broker.hazelcast import HazelcastCluster
from eo_kafka.broker.hazelcast_settings import journal
from eo_kafka.broker.jars import hazelcast_jars
from eo_kafka.broker.java import find_java
from eo_kafka.clients.hazelcast.client import close_clients, connect
from eo_kafka.errors import OutcomeUnknown
from eo_kafka.sinks.maps import lanes as map_lanes
from grid_fixtures import new_map, settings
from map_two_phase_job import ADDING, assert_once, job_of

STORE = """
import com.hazelcast.map.MapStoreAdapter;
import java.nio.file.*;

public class SomeStore extends MapStoreAdapter<String, String> {
  public void store(String key, String value) {
    try {
      Path refused = Path.of(System.getenv("REFUSED_KEY"));
      if (Files.exists(refused) && Files.readString(refused).equals(key))
        throw new IllegalStateException("no room for " + key);
    } catch (java.io.IOException error) { throw new RuntimeException(error); }
  }
}
"""


@pytest.fixture(scope="module")
def key_file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("refused") / "key"


@pytest.fixture
def refused(key_file) -> Iterator[Path]:
    """Holds the key that the members' store refuses, if it is there."""
    yield key_file
    key_file.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def storing(key_file, tmp_path_factory) -> Iterator[HazelcastCluster]:
    """A member whose maps have the store."""
    compiler = find_java().resolve().with_name("javac")
    if not compiler.exists():
        pytest.skip("a store is a Java class: it needs a JDK")
    folder = tmp_path_factory.mktemp("jars")
    for jar in hazelcast_jars().iterdir():
        (folder / jar.name).symlink_to(jar)
    source = folder / "SomeStore.java"
    source.write_text(STORE)
    subprocess.run([compiler, "-cp", f"{folder}/*", source], check=True)
    shutil.make_archive(str(folder / "store"), "zip", folder, "SomeStore.class")
    (folder / "store.zip").rename(folder / "store.jar")
    stored = {**journal(), "map-store": {"enabled": True, "class-name": "SomeStore"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hazelcast, "hazelcast_jars", lambda _: folder)
        patch.setenv("REFUSED_KEY", str(key_file))
        with HazelcastCluster(1, {"j*": stored, "*applied": stored, "*": journal()}) as one:
            yield one
    close_clients()


@pytest.mark.parametrize("more", [{}, ADDING], ids=["replace", "merge"])
@pytest.mark.parametrize("of_marker", [False, True], ids=["row", "marker"])
def test_what_a_store_refuses_is_made_once_it_works(
    storing, broker, refused, monkeypatch, more, of_marker
) -> None:
    client = connect(settings(storing))
    stored = new_map(client)
    job = job_of(storing, stored, broker.bootstrap_servers, **more)
    job.rows_of_task = 50
    job.run(0)
    job.prepare(1)
    take = map_lanes.Lanes.take
    marker = f"{job.given['jobName']}/{job.options.sink}/0"

    def then_refused(self, lane: int) -> int:
        done = take(self, lane)
        refused.write_text(marker if of_marker else "0-30")
        return done

    with monkeypatch.context() as patched, pytest.raises(OutcomeUnknown, match="no room for"):
        patched.setattr(map_lanes.Lanes, "take", then_refused)
        patched.setattr(map_lanes, "PATIENCE_S", 2.0)
        job.commit(1)
    refused.unlink()
    job.run(1)
    assert_once(job, client, stored, 0, 1)
    job.run(2)
    assert_once(job, client, stored, 0, 1, 2)
    client.shutdown()
