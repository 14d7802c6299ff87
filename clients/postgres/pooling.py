"""Whether connections keep their session, or a pooler gives each transaction another one.

Locks and settings are the session's: with PgBouncer's `pool_mode=transaction` a setting that makes
an acknowledged commit durable would be made in one session, and the commit in another.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...core.errors import EnvironmentRefused
from .client import PostgresSettings, execute_soon

if TYPE_CHECKING:
    import psycopg

_LOOKS = 20  # a pool that others use, too, may give a transaction the same session by chance
_WAIT_S = 3.0
_WHO = b"SELECT pg_backend_pid()"
_known: set[PostgresSettings] = set()


def check_own_session(connection: psycopg.Connection[Any], settings: PostgresSettings) -> None:
    """Raise EnvironmentRefused if transactions of `connection` share sessions with others'. Driver,
    once a process and database."""
    import psycopg

    if settings in _known:
        return
    here = _session(connection)
    # Who is in between makes up the number that a server tells each connection
    if here != connection.info.backend_pid:
        parameters: dict[str, Any] = dict(settings.parameters)
        parameters |= {"target_session_attrs": "any", "connect_timeout": int(_WAIT_S)}
        with (
            suppress(psycopg.OperationalError),  # a pool that has no second session to give
            psycopg.connect(**parameters, autocommit=True) as other,
        ):
            for _ in range(_LOOKS):
                if (there := _session_soon(other)) is None:
                    break
                if there == here or _session(connection) != here:
                    raise EnvironmentRefused(_refusal(settings))
    _known.add(settings)


def _session(connection: psycopg.Connection[Any]) -> int:
    """The number of the server's process."""
    (found,) = connection.execute(_WHO, prepare=False).fetchall()
    return int(found[0])


def _session_soon(connection: psycopg.Connection[Any]) -> int | None:
    """The same; None where none is free within _WAIT_S. The connection is of no use then."""
    import psycopg

    try:
        result = execute_soon(connection, _WHO, _WAIT_S)
    except psycopg.Error:
        return None
    found = result.get_value(0, 0) if result is not None else None
    return None if found is None else int(found)


def _refusal(settings: PostgresSettings) -> str:
    return (
        f"A connection pooler at {settings.place} gives each transaction another session of "
        "PostgreSQL (PgBouncer's pool_mode 'transaction' or 'statement'). Locks and settings of a "
        "session do not hold there, so rows could be lost or repeated. Nothing was written. Set "
        "pool_mode=session for this database or user, or name the server itself in option 'url'."
    )
