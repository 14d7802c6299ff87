"""A real object store with S3's interface: SeaweedFS, one process on loopback.

It keeps what it is given on the disk, checks signatures, and knows who may do what. The program
`weed` comes with the development dependencies.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from eo_kafka.broker.process import ServerProcess
from eo_kafka.broker.settings import LOOPBACK, free_port
from harness import wait_until

BUCKET = "bucket"
GUARDED = "guarded/checkpoint"  # all that USER may touch
REGION = "us-east-1"
# With what stands in real ones, and must be escaped in a URL.
SECRET = "s3cret/of+the-store"
ADMIN, USER = "admin-of-store", "user-of-store"
PORTS = ("master", "volume", "filer", "s3")
START_TIMEOUT_S = 60


@dataclass(frozen=True)
class ObjectStore:
    """A running one."""

    port: int

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def environment(self, user: str = ADMIN, secret: str = SECRET) -> dict[str, str]:
        """The variables by which pyarrow finds it and logs in."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": user,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def is_ready(self) -> bool:
        system = fs.S3FileSystem(
            access_key=ADMIN,
            secret_key=SECRET,
            endpoint_override=self.endpoint,
            region=REGION,
            allow_bucket_creation=True,
        )
        try:
            system.create_dir(BUCKET)
            with system.open_output_stream(f"{BUCKET}/ready") as stream:
                stream.write(b"")
        except OSError:
            return False
        return True


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Runs one with its data in `folder`, and makes the bucket."""
    data, access = folder / "data", folder / "access.json"
    data.mkdir()
    access.write_text(json.dumps({"identities": [_admin(), _user()]}))
    store = ObjectStore(free_port())
    ports = {f"{name}.port": free_port() for name in PORTS} | {"s3.port": store.port}
    settings = {
        "ip": LOOPBACK,
        "ip.bind": LOOPBACK,
        "dir": data,
        "filer.localSocket": folder / "filer.sock",
        "s3.localSocket": folder / "s3.sock",
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 64,
        "volume.max": 50,
        "s3.config": access,
        "s3.autoCreateBucket": "false",  # nor does Amazon's
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        **ports,
        **{f"{name}.grpc": free_port() for name in ports},
    }
    words = [f"-{name}={value}" for name, value in settings.items()]
    process = ServerProcess([_program(), "server", "-filer", "-s3", *words], folder / "log")
    try:
        wait_until(store.is_ready, "the object store takes files", START_TIMEOUT_S)
        yield store
    finally:
        process.kill()


def _admin() -> dict[str, object]:
    return _identity(ADMIN, ["Admin", "Read", "Write", "List", "Tagging"])


def _user() -> dict[str, object]:
    there = f"{BUCKET}/{GUARDED}"
    return _identity(USER, [f"Read:{there}/*", f"Write:{there}/*", f"List:{there}/*"])


def _identity(name: str, actions: list[str]) -> dict[str, object]:
    credentials = [{"accessKey": name, "secretKey": SECRET}]
    return {"name": name, "credentials": credentials, "actions": actions}


def _program() -> str:
    beside = Path(sys.executable).parent
    found = shutil.which("weed", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    assert found, "no program 'weed': install the development dependencies (setup.cfg)"
    return found
