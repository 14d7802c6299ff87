"""What `commit=two-phase` keeps in PostgreSQL: prepared transactions, the marks that say that they
are committed, and the gate through which a generation's tasks go.

COMMIT PREPARED, ROLLBACK PREPARED and PREPARE TRANSACTION cannot be made part of a transaction that
looks whether it still may. So whoever does one of them first *holds* (a lock of its session's, that
many may have, by which it is seen), and then looks at the gate or at the marker. Whoever shuts
others out first says so there, and then ends the sessions that hold: what it finds after that
stays as it is (tests/models/prepared_model.py). That a name does not exist says nothing of what
became of it; the transaction's own row does, its mark.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...core.errors import ReadTimeout
from ...core.transaction import Participant
from .marker import LIMITS, Markers
from .table import Place, is_beside, make_beside

if TYPE_CHECKING:
    from typing import LiteralString

    import psycopg

PREFIX = "eo_kafka_prepared_"
TABLE = "eo_kafka_prepared"
_END_S = 20.0  # for a session that is being ended
_GIVEN_UP, _NOTE = -1, "_given_up"  # stands for a number of rows, and ends such a name
_OPEN = "open"  # ends the row's name that says that a generation's tasks may write
_KEPT = "kept"  # ends the name of a row that is always there: without it all of them were removed
_NAME = re.compile(rf"({PREFIX}[0-9a-f]{{16}}_)(\d+)_(\d+)_(\d+)")
_CREATE = """
CREATE TABLE IF NOT EXISTS {} (
    name text PRIMARY KEY, batch bigint, rows bigint, written timestamptz NOT NULL DEFAULT now())
"""
_PREPARED = """
SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND gid ^@ ANY (%s)
"""
_END_HOLDERS = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND classid::bigint << 32 | objid::bigint = ANY (%s) AND objsubid = 1
"""


def prefixes_of(
    connection: psycopg.Connection[Any], ledger: str, sink: str, target: str
) -> list[str]:
    """What the names of prepared transactions of a ledger's id, a sink and a table begin with. A
    server has one list of names for all its databases, and a ledger's generation is of one of them.
    Then what older ones begin with, which had the database's name, too: as the client says it,
    which behind a pooler may be another one than the server's."""
    whose = f"{ledger}/{sink}/{target}"
    (here,) = connection.execute("SELECT current_database()").fetchone() or ("",)
    older = [f"{name}/{whose}" for name in (connection.info.dbname, here)]
    return [f"{PREFIX}{hashlib.sha256(one.encode()).hexdigest()[:16]}_" for one in (whose, *older)]


def _key(prefix: str) -> int:
    """Of the lock of those whose names begin so."""
    return int.from_bytes(hashlib.sha256(prefix.encode()).digest()[:8], "big", signed=True)


def parsed(name: str) -> tuple[str, int, int, int] | None:
    """Prefix, generation, partition and attempt; None if it is no name of ours."""
    found = _NAME.fullmatch(name)
    return None if found is None else (found[1], int(found[2]), int(found[3]), int(found[4]))


def end(connection: psycopg.Connection[Any], how: LiteralString, name: str) -> bool:
    """COMMIT or ROLLBACK one; whether it was there. Raises what psycopg does."""
    from psycopg import errors, sql

    try:
        # A literal: such a statement takes no arguments
        connection.execute(sql.SQL("{} PREPARED {}").format(sql.SQL(how), sql.Literal(name)))
    except errors.UndefinedObject:
        return False
    return True


def is_prepared(part: Participant) -> bool:
    """Whether its rows wait in a prepared transaction, whatever the options say now."""
    return part.staged is not None and part.staged.home.startswith(PREFIX)


@dataclass(frozen=True)
class PreparedTransactions:
    """Those of one job's sink and one table. Its methods raise what psycopg does."""

    connection: psycopg.Connection[Any]
    place: Place
    ledger: str
    sink: str

    @cached_property
    def prefixes(self) -> list[str]:
        """What their names begin with, and then what older ones do."""
        return prefixes_of(self.connection, self.ledger, self.sink, self.place.words)

    @property
    def prefix(self) -> str:
        """What their names begin with."""
        return self.prefixes[0]

    def name(self, generation: int, partition: int, attempt: int) -> str:
        """That of a task's attempt."""
        return f"{self.prefix}{generation}_{partition}_{attempt}"

    @property
    def are_used(self) -> bool:
        """Whether any job has ever written a table of this schema in this way."""
        return is_beside(self.connection, self.place, TABLE)

    def listed(self, prefix: str | None = None) -> set[str]:
        """The names of those that are prepared now; with `prefix`, of all that begin so."""
        asked = self.prefixes if prefix is None else [prefix]
        return {name for (name,) in self.connection.execute(_PREPARED, [asked])}

    @contextmanager
    def held(self) -> Iterator[None]:
        """While this session may prepare, commit or roll back: it is seen by others."""
        self.connection.execute("SELECT pg_advisory_lock_shared(%s)", [_key(self.prefix)])
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the connection ends with the error
                self._let_go()
            raise
        self._let_go()

    def end_holders(self) -> None:
        """End all sessions that hold, but this one. Raises ReadTimeout if one does not end."""
        keys = [_key(prefix) for prefix in self.prefixes]
        deadline = time.monotonic() + _END_S
        while self.connection.execute(_END_HOLDERS, [keys]).fetchall():
            if time.monotonic() > deadline:
                raise ReadTimeout(
                    f"Sessions of an older driver or task that write '{self.place.words}' do not "
                    f"end in {_END_S:.0f} s, and as long as they live nobody else may. Nothing was "
                    "changed. Look at pg_stat_activity (application_name 'eo-kafka'), and start "
                    "the query again."
                )
            time.sleep(0.05)

    def shut_gate(self, generation: int) -> None:
        """Tasks of generations up to this one write no more, once those that hold have ended."""
        rows = self._execute("SELECT name FROM {} WHERE name ^@ ANY ({})", self.prefixes)
        gates = [name for (name,) in rows if name.endswith(_OPEN)]
        mine = [name for name in gates if int(name.split("_")[-2]) <= generation]
        self.forget(mine)
        self.end_holders()

    def open_gate(self, generation: int, markers: Markers, job: str) -> None:
        """Its tasks may write. Raises Fenced if a newer driver is there."""
        make_beside(self.connection, self.place, TABLE, _CREATE)
        with self.connection.transaction():
            self.connection.execute(LIMITS)
            markers.shut_out(generation, job)
            self.note_kept(self.prefix)
            self.mark(self._gate(generation), None, 0)

    def note_kept(self, prefix: str) -> None:
        """That the rows of names that begin so are all there, from now on."""
        make_beside(self.connection, self.place, TABLE, _CREATE)
        words = "INSERT INTO {} (name, rows) VALUES ({}, 0) ON CONFLICT DO NOTHING"
        self._execute(words, f"{prefix}{_KEPT}")

    def is_kept(self, prefix: str) -> bool:
        """Whether nobody has emptied or dropped the table of these rows since that was noted."""
        if not self.are_used:
            return False
        return bool(self._execute("SELECT 1 FROM {} WHERE name = {}", f"{prefix}{_KEPT}"))

    def is_open(self, generation: int) -> bool:
        """Whether this generation's tasks may write."""
        if not self.are_used:  # a server that lacks all of it
            return False
        return bool(self._execute("SELECT 1 FROM {} WHERE name = {}", self._gate(generation)))

    def mark(self, name: str, batch: int | None, rows: int) -> None:
        """A row, in the caller's transaction: it is there once that is committed."""
        values = (name, batch, rows)
        self._execute("INSERT INTO {} (name, batch, rows) VALUES ({}, {}, {})", *values)

    def committed(self, batch: int, parts: Collection[Participant]) -> set[int]:
        """The partitions of these parts that have their mark."""
        if not self.are_used:
            return set()
        rows = self._execute("SELECT name, rows FROM {} WHERE batch = {}", batch)
        return {
            part.partition
            for part in parts
            if part.staged and (part.staged.home, part.rows) in rows
        }

    def all_wait(self, parts: Collection[Participant]) -> bool:
        """Whether all of these are still prepared, so that none has a mark. Where they do, the
        marks are not read: who asks for all of their table, as VACUUM FULL does, waits until these
        have ended, and who reads it waits for him."""
        return {part.staged.home for part in parts if part.staged} <= self.listed(PREFIX)

    def note_given_up(self, names: Collection[str]) -> None:
        """That these are rolled back as Kafka has aborted what belongs to them, before they are."""
        for name in names:
            words = "INSERT INTO {} (name, rows) VALUES ({}, {}) ON CONFLICT DO NOTHING"
            # Not by its own name: that is in the transaction, as its mark, and locked there
            self._execute(words, f"{name}{_NOTE}", _GIVEN_UP)

    def given_up(self) -> set[str]:
        """Those of which that is noted."""
        if not self.are_used:  # a server that lacks all of it
            return set()
        rows = self._execute("SELECT name FROM {} WHERE rows = {}", _GIVEN_UP)
        return {name.removesuffix(_NOTE) for (name,) in rows}

    def strays(self, kept: Collection[str], last: int) -> list[tuple[str, int]]:
        """Names, with their rows, that have a row here, of generations up to `last`, and that
        nothing in `kept` names."""
        rows = self._execute("SELECT name, rows FROM {} WHERE name ^@ ANY ({})", self.prefixes)
        found = [
            (name, count, parsed(name.removesuffix(_NOTE)))
            for name, count in rows
            if name.removesuffix(_NOTE) not in kept
        ]
        return [(name, count) for name, count, parts in found if parts and parts[1] <= last]

    def forget(self, names: Collection[str]) -> None:
        """Marks, in the caller's transaction: the marker says it, from then on."""
        self._execute("DELETE FROM {} WHERE name = ANY ({})", list(names))

    def commit(self, name: str) -> bool:
        """Whether it was there."""
        return end(self.connection, "COMMIT", name)

    def roll_back(self, names: Collection[str]) -> list[str]:
        """Those that were there."""
        return [name for name in sorted(names) if end(self.connection, "ROLLBACK", name)]

    def shut_out(self, kept: Collection[str], first: int, last: int) -> list[str]:
        """Roll back what generations from `first` to `last` have prepared and nothing in `kept`
        names, and let their tasks prepare no more; those that were there. Rolled back at first,
        too: see `all_wait`."""
        removed = self.roll_back(self.left(kept, first, last))
        self.shut_gate(last)
        return removed + self.roll_back(self.left(kept, first, last))

    def left(self, kept: Collection[str], first: int, last: int) -> list[str]:
        """What generations from `first` to `last` have prepared and nothing in `kept` names."""
        found = self.of_generations().items()
        return [name for name, of in found if name not in kept and first <= of <= last]

    def of_generations(self) -> dict[str, int]:
        """All that are prepared now, with their generations."""
        return {name: parts[1] for name in self.listed() if (parts := parsed(name))}

    def _let_go(self) -> None:
        self.connection.execute("SELECT pg_advisory_unlock_shared(%s)", [_key(self.prefix)])

    def _gate(self, generation: int) -> str:
        return f"{self.prefix}{generation}_{_OPEN}"

    def _execute(self, words: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        from psycopg import sql

        table = sql.Identifier(self.place.beside, TABLE)
        asked = self.connection.execute(sql.SQL(words).format(table, *map(sql.Literal, values)))
        return asked.fetchall() if asked.description else []
