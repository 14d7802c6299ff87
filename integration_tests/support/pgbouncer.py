"""A real PgBouncer (Debian's package `pgbouncer`) before a server, with its own defaults but for
its address, and for whom it lets in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from eo_kafka.broker.settings import free_port
from eo_kafka.testing.processes import wait_until


@contextmanager
def pgbouncer(folder: Path, url: str, alias: str = "", **settings: str) -> Iterator[str]:
    """The server's URL, through PgBouncer with these settings, which may have another name for the
    database."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("no pgbouncer here (Debian's package pgbouncer)")
    server = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    port, name = str(free_port()), alias or server["dbname"]
    given = {"listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": ""}
    lines = [
        "[databases]",
        f"{name} = {make_conninfo(**server)}",
        "[pgbouncer]",
        *(f"{name} = {value}" for name, value in {**given, "auth_type": "any", **settings}.items()),
    ]
    (file := folder / "pgbouncer.ini").write_text("\n".join(lines))
    whose = []
    if os.getuid() == 0:  # as which it does not run
        whose, parents = ["--user", "nobody"], [file, *file.parents]
        for one in parents[:-2]:
            one.chmod(0o755)
    process = subprocess.Popen([program, "--quiet", *whose, str(file)])
    through = make_conninfo(**{**server, "host": "127.0.0.1", "port": port, "dbname": name})

    def answers() -> bool:
        try:
            with psycopg.connect(through):
                return True
        except psycopg.OperationalError:
            return False

    try:
        wait_until(answers, "PgBouncer answers")
        yield through
    finally:
        process.terminate()
        process.wait()
