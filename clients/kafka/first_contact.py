"""Tells within seconds that nothing listens where a driver or a command looks for Kafka first.

Only what is certain counts: every address refuses connections, or is none. One that is silent, or a
name that takes long to look up, is left to the clients, and so are all once something has listened
there: then a broker that is away is an outage, which the clients wait for.
"""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import NamedTuple

from ...core.process.driver_directory import is_seen, remember
from .outages import SILENT, address_of, connection_problem

PATIENCE_S = 6.0
_PAUSE_S = 0.25
_ANSWER_S = 2.0  # beyond the deadline: a busy machine lets the last attempts end late


class _Search(NamedTuple):
    deadline: float
    found: Event
    answers: SimpleQueue[tuple[str, str | None]]


def nobody_listens(servers: str, within_s: float = PATIENCE_S) -> str | None:
    """Whether no address of a `bootstrap.servers` takes a connection, however often it is tried.

    Driver and commands, before the first request; once something has listened there, every process
    of the driver takes that as known and returns at once.

    Args:
        servers: Addresses, separated by commas.
        within_s: For how many seconds they are tried, PATIENCE_S at most.

    Returns:
        Sentences with what is wrong with each address and what to do; None if one took a connection
        now or before, or if that is not certain.
    """
    addresses = {address_of(server.strip()) for server in servers.split(",") if server.strip()}
    if not addresses or None in addresses or is_seen(servers):
        return None
    search = _Search(time.monotonic() + min(within_s, PATIENCE_S), Event(), SimpleQueue())
    for address in filter(None, addresses):
        Thread(target=_try, args=(*address, search), daemon=True).start()
    problems: dict[str, str] = {}
    for _ in addresses:
        try:  # nobody knows how long a name is looked up
            left = max(0.0, search.deadline - time.monotonic())
            server, problem = search.answers.get(timeout=left + _ANSWER_S)
        except Empty:
            return None
        if problem is None:
            search.found.set()
            remember(servers)
            return None
        problems[server] = problem
    if SILENT in problems.values():
        return None
    told = ", ".join(f"{server} ({problem})" for server, problem in sorted(problems.items()))
    return (
        f"No Kafka broker listens at {told}. Check the bootstrap servers' hosts and ports, and "
        "whether Kafka runs."
    )


def _try(host: str, port: int, search: _Search) -> None:
    while not search.found.is_set():
        problem = connection_problem(host, port, max(0.1, search.deadline - time.monotonic()))
        if problem is None or time.monotonic() + _PAUSE_S >= search.deadline:
            search.answers.put((f"{host}:{port}", problem))
            return
        search.found.wait(_PAUSE_S)
