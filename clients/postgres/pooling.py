"""Whether connections keep their session, or a pooler gives each transaction another one.

Locks and settings are the session's: with PgBouncer's `pool_mode=transaction` a setting that makes
an acknowledged commit durable would be made in one session, and the commit in another.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from ...core.errors import EnvironmentRefused, ReadTimeout
from .client import PostgresSettings, execute_soon, said

if TYPE_CHECKING:
    import psycopg

_LOOKS = 20  # a pool that others use, too, may give a transaction the same session by chance
_WAIT_S = 30.0  # for a session that others of a busy pool have: each its turn
_WHO = b"SELECT pg_backend_pid()"
_known: set[PostgresSettings] = set()


def check_own_session(connection: psycopg.Connection[Any], settings: PostgresSettings) -> None:
    """Raise EnvironmentRefused if transactions of `connection` share sessions with others',
    ReadTimeout if that cannot be told. Driver, once a process and database."""
    import psycopg

    if settings in _known:
        return
    here = _session(connection)
    # Who is in between makes up the number that a server tells each connection
    if here != connection.info.backend_pid:
        parameters: dict[str, Any] = dict(settings.parameters)
        parameters |= {"target_session_attrs": "any", "connect_timeout": int(_WAIT_S)}
        try:
            with closing(psycopg.connect(**parameters, autocommit=True)) as other:
                for _ in range(_LOOKS):
                    there = _session(other)
                    if there == here or _session(connection) != here:
                        raise EnvironmentRefused(_refusal(settings))
        except psycopg.OperationalError as error:
            raise ReadTimeout(_untold(settings, said(error))) from None
    _known.add(settings)


def _session(connection: psycopg.Connection[Any]) -> int:
    """The number of the server's process. Raises psycopg.OperationalError if none is free within
    _WAIT_S; the connection is of no use then."""
    result = execute_soon(connection, _WHO, _WAIT_S)
    found = result.get_value(0, 0) if result is not None else None
    return int(found or 0)


def _untold(settings: PostgresSettings, why: str) -> str:
    return (
        f"A connection pooler at {settings.place} has no second session to give in {_WAIT_S:g} s "
        f"({why}), and without one it cannot be told whether each connection keeps its own. "
        "Nothing was written. The driver and each task that runs need one: have other programs "
        "give theirs back, or enlarge the pool (PgBouncer's default_pool_size, max_client_conn), "
        "and start again."
    )


def _refusal(settings: PostgresSettings) -> str:
    return (
        f"A connection pooler at {settings.place} gives each transaction another session of "
        "PostgreSQL (PgBouncer's pool_mode 'transaction' or 'statement'). Locks and settings of a "
        "session do not hold there, so rows could be lost or repeated. Nothing was written. Set "
        "pool_mode=session for this database or user, or name the server itself in option 'url'."
    )
