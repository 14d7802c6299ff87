"""Client certificates that are renewed on the disk while a process lives."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from fake_broker import broker

from eo_kafka.clients.kafka.control_plane import ControlPlane

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates")


def make(folder: Path, name: str) -> None:
    """A certificate that signs itself, and its key."""
    asked = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt"]
    asked_of = [*asked.split(), "-subj", f"/CN={name}", *files]
    subprocess.run(asked_of, check=True, capture_output=True)


def trusting(folder: Path, name: str) -> ssl.SSLContext:
    """A server that lets in who has this certificate."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "server.crt", folder / "server.key")
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(folder / f"{name}.crt")
    return made


def renew(folder: Path, name: str) -> None:
    for kind in ("crt", "key"):
        shutil.copy(folder / f"{name}.{kind}", folder / f"client.{kind}")


def test_a_control_plane_takes_the_new_one_when_it_connects_again(tmp_path, caplog):
    """The old one has run out by then."""
    for name in ("server", "old", "new"):
        make(tmp_path, name)
    renew(tmp_path, "old")
    with broker(trusting(tmp_path, "old")) as fake:
        settings = {
            "bootstrap.servers": fake.servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(tmp_path / "server.crt"),
            "ssl.certificate.location": str(tmp_path / "client.crt"),
            "ssl.key.location": str(tmp_path / "client.key"),
        }
        control = ControlPlane(settings)
        try:
            control.describe_one("x")
            shutil.copy(tmp_path / "new.crt", tmp_path / "client.crt")  # and the key a moment later
            fake.hang_up()
            control.describe_one("x")
            assert "The files of before are used" in caplog.text
            renew(tmp_path, "new")
            fake._tls = trusting(tmp_path, "new")
            fake.hang_up()
            control.describe_one("x")
        finally:
            control.close()
