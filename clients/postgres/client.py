"""Connects to a PostgreSQL server; turns its errors into sentences.

Nothing of the connection's URL but host, port and database is ever shown.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.errors import EnvironmentRefused, EoKafkaError, ReadTimeout, SinkError, cut
from ...core.options import Option, OptionReader, text
from ...core.patience import AT_FIRST_S, Wait, served
from ...core.process.kept import Kept

if TYPE_CHECKING:
    import psycopg
    from psycopg.pq.abc import PGresult

URL: Option[str | None] = Option(
    "url",
    text,
    None,
    "The database: `postgresql://host:5432/database`, with what libpq's URLs and `key=value` texts "
    "may have (`sslmode=verify-full`). A password in it is shown nowhere.",
)
USER: Option[str | None] = Option("user", text, None, "The role, if the URL does not say it.")
PASSWORD: Option[str | None] = Option(
    "password", str, None, "Its password, if the URL does not say it."
)
OPTIONS: tuple[Option[Any], ...] = (URL, USER, PASSWORD)
_DEFAULTS = {
    "connect_timeout": "10",
    "tcp_user_timeout": "60000",  # which counts only what the host has not taken
    "keepalives_idle": "15",  # for what it has taken; the kernel's own is two hours
    "keepalives_interval": "5",
    "keepalives_count": "6",
    "target_session_attrs": "read-write",
    "application_name": "eo-kafka",
}
_ENCODING = "client_encoding"
_SCHEMES = ("postgresql://", "postgres://")
_PLACE = ("host", "hostaddr", "port", "dbname")  # what is shown, and the host's other name
_PAUSE_S = 0.5
_SOON_S = 10.0  # a host that hangs may take what is said to it, and login may still work
_NEEDED = "PostgreSQL needs its client on driver and executors: pip install 'eo-kafka[postgres]'."
# An acknowledged commit must be on the server's disk, and a batch takes as long as it takes, but
# nobody waits for a lock for ever, and who has waited for one sees what was changed until then:
# whatever the role's settings are.
_SAFE = b"""
SELECT set_config(name, CASE name WHEN 'synchronous_commit' THEN 'on'
    WHEN 'default_transaction_isolation' THEN 'read committed'
    WHEN 'lock_timeout' THEN '60s' ELSE '0' END, false)
FROM pg_settings WHERE (name = 'synchronous_commit' AND setting = 'off')
OR (name = 'default_transaction_isolation' AND setting <> 'read committed')
OR (name = 'lock_timeout' AND setting = '0')
OR (name IN ('statement_timeout', 'transaction_timeout') AND setting <> '0')
"""
_WHO = (
    "SELECT pid, relation::regclass, mode, granted, state, query FROM pg_locks "
    "LEFT JOIN pg_stat_activity USING (pid) WHERE relation >= 16384"  # no catalogue
)
_READ_ONLY = "25006"
_IN_STATE = "55000"  # "object not in prerequisite state"
# Errors, and classes of them, that the same request may not meet again. Who takes no writes may be
# in a fail-over, or have its disk made larger; 25P03 ended the transaction of a driver that stood
# still in it; what lacks memory or locks (53200) lacks them by what other sessions do.
_AGAIN = ("08", _READ_ONLY, "25P03", "40", "53", "55006", "55P03", "57")
_AWAY = ("", "08", "57")


@dataclass(frozen=True)
class PostgresSettings:
    """How to reach a database. Pickled to the tasks; its repr shows no secrets."""

    parameters: tuple[tuple[str, str], ...] = field(repr=False)

    @classmethod
    def read(cls, reader: OptionReader) -> PostgresSettings:
        """Out of options; problems are noted in `reader`. Contacts nobody."""
        url = reader.get(URL)
        if URL.name not in reader:
            reader.problem(
                f"Option '{URL.name}' must be specified: which database the table is in."
            )
        found = _parsed(reader, url or "")
        encoding = found.get(_ENCODING, "auto")  # which asks this machine's locale
        if encoding.replace("-", "").lower() not in ("utf8", "unicode", "auto"):
            reader.problem(
                f"Option 'url' has a '{_ENCODING}' other than UTF8: rows are sent as UTF8, and the "
                "server would take them for other texts. Take it away."
            )
        found[_ENCODING] = "UTF8"  # the server's, the role's and PGCLIENTENCODING come after it
        for option, name in ((USER, "user"), (PASSWORD, "password")):
            given = reader.get(option)
            if given is not None and name in found:
                reader.problem(
                    f"Option '{option.name}' and option 'url' say the same: take one away."
                )
            if given is not None:
                found[name] = given
        return cls(tuple(sorted({**_DEFAULTS, **found}.items())))

    @property
    def place(self) -> str:
        """For sentences: `host:port/database`."""
        known = dict(self.parameters)
        host, port = known.get("host", "localhost"), known.get("port", "5432")
        ports = port.split(",")
        hosts = [
            f"{one}:{ports[at] if len(ports) > 1 and at < len(ports) else ports[0]}"
            for at, one in enumerate(host.split(","))
        ]
        return f"{','.join(hosts)}/{known.get('dbname') or known.get('user', '')}"


def _parsed(reader: OptionReader, url: str) -> dict[str, str]:
    try:
        from psycopg import Error
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        reader.problem(_NEEDED)
        return {}
    url = url.removeprefix("jdbc:")
    try:
        found = conninfo_to_dict(url)
        literal = conninfo_to_dict(url.replace("%40", ""))
    except Error:  # its text may show the password
        reader.problem(
            "Option 'url' cannot be read: it must be as libpq's, postgresql://host:5432/database."
        )
        return {}
    # A password that is not escaped ends early, and its rest is taken for a host, port or database
    is_cut = url.startswith(_SCHEMES) and any("@" in str(literal.get(one, "")) for one in _PLACE)
    ports = str(found.get("port") or "").split(",")
    if is_cut or any(one and not one.strip().isdecimal() for one in ports):
        reader.problem(
            "Option 'url' has an '@' in its host, port or database, or a port that is no number. "
            "In a user or a password, '/' is written %2F, '@' %40 and '%' %25; or give them in "
            "options 'user' and 'password'."
        )
        return {}
    return {name: str(value) for name, value in found.items() if value is not None}


def _close(connection: psycopg.Connection[Any]) -> None:
    with suppress(Exception):
        connection.close()


_kept: Kept[psycopg.Connection[Any]] = Kept(limit=2, close=_close)


@contextmanager
def connected(settings: PostgresSettings) -> Iterator[psycopg.Connection[Any]]:
    """A connection in autocommit, which this process keeps for its next call if all went well. A
    server that was there before, and is away now, is waited for. Errors of the server's come out as
    ours (`explained`)."""
    import psycopg

    key: dict[str, object] = dict(settings.parameters)
    connection = _kept.take(key)
    if connection is not None and not _takes_writes(connection):
        _close(connection)
        connection = None
    try:
        if connection is None:
            connection = _connect(settings)
        yield connection
    except BaseException as error:
        if connection is not None:
            _close(connection)
        if isinstance(error, psycopg.Error):
            raise explained(error, settings) from None
        raise
    _kept.put(key, connection)


def _takes_writes(connection: psycopg.Connection[Any]) -> bool:
    """Whether it answers so: its server may have become a standby, or read-only."""
    with suppress(Exception):
        found = execute_soon(connection, b"SHOW transaction_read_only", _SOON_S)
        return found is None or found.get_value(0, 0) != b"on"
    return False


def execute_soon(
    connection: psycopg.Connection[Any], statement: bytes, within_s: float
) -> PGresult | None:
    """The last result. Nothing else bounds it where a host takes the statement and answers
    nothing. Raises psycopg.Error; the connection is of no use then."""
    import psycopg
    from psycopg.pq import ExecStatus

    asked, end = connection.pgconn, time.monotonic() + within_s
    asked.send_query(statement)
    found: PGresult | None = None
    failed: psycopg.Error | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(asked.socket, selectors.EVENT_READ)
        while True:
            while asked.is_busy():
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise psycopg.OperationalError(f"no answer in {within_s:g} s")
                asked.consume_input()
            if (result := asked.get_result()) is None:
                break
            found = result
            if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                failed = psycopg.errors.error_from_result(result)
    if failed is not None:
        raise failed
    return found


def _connect(settings: PostgresSettings) -> psycopg.Connection[Any]:
    try:
        import psycopg
    except ImportError:
        raise EnvironmentRefused(_NEEDED) from None
    parameters: dict[str, Any] = dict(settings.parameters)
    wait = Wait(settings.place, at_first_s=AT_FIRST_S if _is_task() else 0)
    while True:
        made = None
        try:
            made = psycopg.connect(**parameters, autocommit=True)
            execute_soon(made, _SAFE, _SOON_S)
        except psycopg.Error as error:
            if made is not None:
                _close(made)
            problem = f"No session with PostgreSQL at {settings.place} ({said(error)})."
            if not may_pass(error) or not wait.goes_on(True, problem):
                raise
            time.sleep(_PAUSE_S)
        else:
            served(settings.place)
            return made


def _is_task() -> bool:
    """The driver has planned, so the database was there: on a machine that has not met it yet, an
    outage is likelier than a wrong address."""
    from pyspark import TaskContext

    return TaskContext.get() is not None


def may_pass(error: psycopg.Error) -> bool:
    """Whether the server is only away, starting, busy or stopping: the same request may do. What
    the client itself refuses to send, it always will."""
    from psycopg import DataError, NotSupportedError, ProgrammingError

    if error.sqlstate is None:
        return not isinstance(error, DataError | NotSupportedError | ProgrammingError)
    if error.sqlstate == _IN_STATE:  # two end one prepared transaction: it is "busy"
        return error.diag.source_function == "LockGXact"
    return error.sqlstate.startswith(_AGAIN)


def waited_too_long(error: psycopg.Error) -> bool:
    """Whether the server has ended a statement that waited for a lock, or was ended by its own time
    or by a person: nothing of it was done."""
    return error.sqlstate in ("55P03", "57014")


def where_waited(error: psycopg.Error) -> str:
    """What such a server said, with the row or index that it names."""
    where = (error.diag.context or "").splitlines()
    return f"{said(error)}{f', {cut(where[0])}' if where else ''}"


def said(error: psycopg.Error) -> str:
    """What the server said, in a line."""
    known = error.diag
    words = known.message_primary or " ".join(str(error).split()) or type(error).__name__
    more = " ".join(one for one in (known.message_detail, known.message_hint) if one)
    return cut(f"{words} ({more})" if more else words, 600)


def explained(error: psycopg.Error, settings: PostgresSettings) -> EoKafkaError:
    """The client's error as one of ours."""
    state = error.sqlstate or ""
    if state[:2] == "28" or state in ("3D000", "42501"):
        return EnvironmentRefused(
            f"PostgreSQL at {settings.place} refuses this role: {said(error)}. Correct the role, "
            "its password, the database or the role's privileges, and start again."
        )
    if state == _READ_ONLY:
        return ReadTimeout(
            f"PostgreSQL at {settings.place} takes no writes ({said(error)}): it is a standby "
            "(SELECT pg_is_in_recovery()), or default_transaction_read_only is on for the server, "
            "database or role, as a provider does when the disk is nearly full. Have option 'url' "
            "name the primary, or all hosts that may be it (host1,host2), or have the setting "
            "switched off, and start again: the job goes on where it was."
        )
    if waited_too_long(error):
        return ReadTimeout(
            f"PostgreSQL at {settings.place} has ended a statement that took too long "
            f"({where_waited(error)}): nothing of it was done. Another session or a prepared "
            "transaction (one without a pid) has a lock, or waits for one that keeps all others "
            f"out, as VACUUM FULL does (granted is false). See who: {_WHO}. Have that session end "
            "(SELECT pg_cancel_backend(pid)), and start again."
        )
    if may_pass(error) and state[:2] not in _AWAY:
        return ReadTimeout(
            f"PostgreSQL at {settings.place} cannot do that now ({said(error)}). Start again when "
            "it can: the job goes on where it was."
        )
    if may_pass(error):  # libpq does not say whether it was refused, but in the server's words
        return ReadTimeout(
            f"No session with PostgreSQL at {settings.place} ({said(error)}). Start again when it "
            "is up; or, where it refuses the role, password or database, when that is corrected; or"
            ", where it is read-only, when 'url' names the primary, or all hosts that may be it "
            "(host1,host2). The job goes on where it was."
        )
    return SinkError(f"PostgreSQL at {settings.place} refused a request: {said(error)}.")
