"""`eo-kafka ui`: the jobs of a cluster as a page, on this machine unless told otherwise."""

from __future__ import annotations

import argparse
import ipaddress
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import OptionsError
from ...core.options import KAFKA_PREFIX
from ..run.health import LOOPBACK, address
from ..shared.command_line import add_connection, connection

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PORT = 8360
VARIABLE = "EO_KAFKA_UI_TOKEN"
TOKEN_MIN = 16
NEEDS = "'eo-kafka ui' needs starlette, uvicorn and jinja2: pip install 'eo-kafka[ui]'."
OWN_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
END_S = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Show the jobs of a cluster as a page. It reads only, and fences nobody, unless "
        "--allow-actions is given and somebody confirms an action."
    )
    parser.add_argument(
        "--bind",
        default=f"{LOOPBACK}:{PORT}",
        metavar="[HOST:]PORT",
        help=f"where to listen; default: {LOOPBACK}:{PORT}. Elsewhere than on loopback a token is "
        "needed",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"the token that a browser has to give, {TOKEN_MIN} characters or more; else it is "
        f"in {VARIABLE}",
    )
    parser.add_argument(
        "--allow-actions",
        action="store_true",
        help="also suspend and resume jobs, abort transactions, export snapshots",
    )
    parser.add_argument(
        "--ledger",
        action="append",
        default=[],
        metavar="JOB=TOPIC",
        help="a job that has option ledgerTopic; can be given again",
    )
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Answer until it is ended. Raises OptionsError."""
    problems: list[str] = []
    try:
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn
    except ImportError:
        raise OptionsError([NEEDS]) from None
    host, port = address("--bind", arguments.bind, problems)
    host = host.strip("[]")
    token = _token(arguments.token_file, problems)
    named = _named(arguments.ledger, problems)
    is_loopback = not problems and _is_loopback(host)
    if not problems and not is_loopback and token is None:
        problems.append(
            f"--bind {arguments.bind} can be reached from other machines: give a token in a file "
            f"(--token-file) or in {VARIABLE}."
        )
    if problems:
        raise OptionsError(problems)
    given = connection(arguments)
    where = ["--bootstrap-servers", given[f"{KAFKA_PREFIX}bootstrap.servers"]]
    if arguments.config:
        where = ["--config", str(arguments.config)]
    hosts = OWN_NAMES | {host} if is_loopback else None
    app = built(given, named, tuple(where), arguments.allow_actions, port, token, hosts)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=END_S,
    )
    with _listening(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        print(f"Answers on http://{shown}:{port}/", flush=True)
        if not is_loopback:
            print("Without TLS the token and all that is shown can be read on the way.", flush=True)
        # uvicorn ends in order, and then sends itself the signal again, for whoever had it before
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        uvicorn.Server(config).run(sockets=[listener])
    return 0


def built(
    given: dict[str, str],
    named: dict[str, str],
    where: tuple[str, ...],
    allow_actions: bool,
    port: int,
    token: str | None,
    hosts: frozenset[str] | None,
) -> ASGIApp:
    """What answers. `given`: the options `kafka.*`; `named`: topic -> job; `where`: the words that
    tell a command which cluster it is. Contacts nobody. Raises OptionsError."""
    from .actions import Actions
    from .cluster import Cluster
    from .gate import Gate
    from .pages import Pages

    cluster = Cluster(given, named)
    actions = Actions(cluster, where) if allow_actions else None
    return Gate(Pages(cluster, actions).app(), port, token, hosts)


def _token(path: Path | None, problems: list[str]) -> str | None:
    """From the file, else from the environment. What is wrong with it goes to `problems`, without
    it."""
    found, name = os.environ.get(VARIABLE, ""), VARIABLE
    if path is not None:
        name = f"--token-file {path}"
        try:
            found = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            problems.append(f"{name} cannot be read: {reason}.")
            return None
    elif VARIABLE not in os.environ:
        return None
    found = found.strip()
    if len(found) < TOKEN_MIN:
        problems.append(f"The token in {name} is too short: {TOKEN_MIN} characters are the least.")
        return None
    return found


def _named(given: list[str], problems: list[str]) -> dict[str, str]:
    named = {}
    for pair in given:
        job, equals, topic = pair.partition("=")
        if not (job and equals and topic):
            problems.append(f"--ledger takes JOB=TOPIC, not '{pair}'.")
        named[topic] = job
    return named


def _is_loopback(host: str) -> bool:
    """Whether nobody else can reach it: each address that the name stands for."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    addresses = (str(one[4][0]).partition("%")[0] for one in found)
    return all(ipaddress.ip_address(one).is_loopback for one in addresses)


def _listening(host: str, port: int) -> socket.socket:
    """Raises OptionsError: nobody can listen there."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except OSError as error:
        raise OptionsError([f"--bind {host}:{port}: {error.strerror or error}."]) from None
    return listener
