"""The table that the job writes: made, and read."""

from __future__ import annotations

import psycopg
from psycopg.rows import dict_row

from pipeline import Settings
from rows import Row

MADE = "CREATE TABLE IF NOT EXISTS {} (id bigint PRIMARY KEY, name text, email text)"
ALL = "SELECT * FROM {} ORDER BY id"


def create(job: Settings) -> None:
    """Unless it is there."""
    with _connected(job) as connection:
        connection.execute(MADE.format(job.sink).encode())


def read(job: Settings) -> list[Row]:
    """Its rows, each with its key as text."""
    with _connected(job) as connection:
        cursor = connection.cursor(row_factory=dict_row)
        found = cursor.execute(ALL.format(job.sink).encode()).fetchall()
    return [(str(row["id"]), row) for row in found]


def _connected(job: Settings) -> psycopg.Connection:
    return psycopg.connect(job.url, password=job.password or None)
