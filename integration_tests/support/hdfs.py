"""A real HDFS: one NameNode and one DataNode, each a process on loopback, reached by WebHDFS.

The server's jar comes from Maven Central (56 MB, once); the client's jars are PySpark's own.
"""

from __future__ import annotations

import importlib.util
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

from eo_kafka.broker.jars import Bundle, fetched
from eo_kafka.broker.java import find_java
from eo_kafka.broker.process import ServerProcess
from eo_kafka.broker.settings import free_port
from harness import wait_until

LOOPBACK = "127.0.0.1"
NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
START_TIMEOUT_S = 120


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """Runs one with its data in `folder`. Gives the root of its paths: `webhdfs://host:port`."""
    web = free_port()
    (folder / "conf").mkdir(parents=True)
    _configure(folder, web)
    java = (str(find_java()), *JVM, "-cp", f"{folder / 'conf'}:{_classpath()}")
    subprocess.run(
        [*java, NAME_NODE, "-format", "-nonInteractive"],
        check=True,
        capture_output=True,
        timeout=START_TIMEOUT_S,
    )
    nodes = [
        ServerProcess([*java, name], folder / f"{name.rpartition('.')[2]}.log")
        for name in (NAME_NODE, DATA_NODE)
    ]
    try:
        wait_until(lambda: _writes(web), "HDFS takes files", START_TIMEOUT_S)
        yield f"webhdfs://{LOOPBACK}:{web}"
    finally:
        for node in nodes:
            node.kill()


def _configure(folder: Path, web: int) -> None:
    core = {
        "fs.defaultFS": f"hdfs://{LOOPBACK}:{free_port()}",
        "hadoop.tmp.dir": str(folder / "data"),
    }
    site = {
        "dfs.namenode.http-address": f"{LOOPBACK}:{web}",
        "dfs.datanode.address": f"{LOOPBACK}:0",
        "dfs.datanode.http.address": f"{LOOPBACK}:0",
        "dfs.datanode.ipc.address": f"{LOOPBACK}:0",
        "dfs.datanode.hostname": LOOPBACK,
        "dfs.replication": "1",
        "dfs.permissions.enabled": "false",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    }
    for name, settings in (("core-site", core), ("hdfs-site", site)):
        rows = "".join(
            f"<property><name>{key}</name><value>{escape(value)}</value></property>"
            for key, value in settings.items()
        )
        (folder / "conf" / f"{name}.xml").write_text(f"<configuration>{rows}</configuration>")


def server_jar() -> Path:
    """Of the version that PySpark has. The client's jars lack a class that WebHDFS needs, and this
    has it: a Spark that reads `webhdfs:` gets it in its class path."""
    (client,) = _pyspark_jars().glob("hadoop-client-api-*.jar")
    version = client.stem.rpartition("-")[2]
    name = "hadoop-client-minicluster"
    title, folder = f"HDFS {version}", f"hdfs-{version}"
    server = Bundle.of_one_jar(title, folder, "org.apache.hadoop", name, version)
    return fetched(server) / server.main


def _pyspark_jars() -> Path:
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "jars"


def _classpath() -> str:
    kinds = ("hadoop-client-*", "slf4j-api-*", "log4j-*", "jcl-over-slf4j-*")
    ours = [jar for kind in kinds for jar in _pyspark_jars().glob(f"{kind}.jar")]
    return ":".join(map(str, [server_jar(), *ours]))


def _writes(web: int) -> bool:
    url = f"http://{LOOPBACK}:{web}/webhdfs/v1/ready?op=CREATE&overwrite=true"
    try:
        # It redirects to a DataNode, if there is one; urllib does not follow a PUT's.
        urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=5)
    except urllib.error.HTTPError as error:
        return error.code == 307
    except OSError:
        return False
    return True
