"""What a table's constraints would refuse is refused in the tasks, before the batch is decided;
what cannot be known there is found at the commit."""

from __future__ import annotations

import psycopg
import pyarrow as pa
import pytest

from eo_kafka.errors import OptionsError, RepairNeeded, SinkError
from table_rows import TEXT

NUMBER = ("bigint", pa.int64())
COLUMNS = {"id": NUMBER, "word": TEXT}
KEYED = {"keys": "id", "operationColumn": "operation"}


def test_null_for_a_not_null_column_is_refused_before_the_decision(rows_of) -> None:
    made = "id bigint, word text NOT NULL, made bigint GENERATED ALWAYS AS IDENTITY, at date NOT "
    job = rows_of(f"{made} NULL DEFAULT now()", COLUMNS)
    with pytest.raises(SinkError, match=r"column 'word' is NOT NULL in the table.*DROP NOT NULL"):
        job.write([[2, "b"]], [[3, None]])
    assert job.there() == []
    job.write([[2, "b"]])  # nothing was decided: the same batch may have other rows
    assert job.there() == [(2, "b")]


def test_a_row_that_is_deleted_needs_its_key_alone(rows_of) -> None:
    columns = {**COLUMNS, "operation": TEXT}
    made = "id bigint PRIMARY KEY, word text NOT NULL CHECK (length(word) < 3)"
    job = rows_of(made, columns, **KEYED)
    job.write([[1, "a", "upsert"], [2, "b", "upsert"], [1, None, "delete"]])
    assert job.there() == [(2, "b")]


@pytest.mark.parametrize(
    "check",
    [
        "CHECK (id > 0 AND word <> 'bad')",
        "CHECK (length(word) BETWEEN 1 AND 2 OR word IS NULL)",
        "CHECK (word IN ('a', 'b'))",
        "CHECK (lower(word) = word COLLATE \"C\" AND word IS DISTINCT FROM 'bad')",
    ],
)
def test_a_check_of_the_rows_own_columns_is_known_before_the_decision(
    rows_of,
    check,
) -> None:
    job = rows_of(f"id bigint, word text, CONSTRAINT good {check}", COLUMNS)
    with pytest.raises(SinkError, match="CHECK 'good' of the table.*Nothing of the batch is visib"):
        job.write([[1, "a"]], [[1, "bad" if "lower" not in check else "BAD"]])
    assert job.there() == []
    job.write([[1, "a"]])
    assert job.there() == [(1, "a")]


def test_a_check_that_is_not_valid_holds_for_new_rows(rows_of) -> None:
    job = rows_of("id bigint, word text", COLUMNS)
    with psycopg.connect(job.database, autocommit=True) as connection:
        table = job.given["table"]
        connection.execute(f"INSERT INTO {table} VALUES (-1, 'old')")
        connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT up CHECK (id > 0) NOT VALID")
    with pytest.raises(SinkError, match="CHECK 'up'"):
        job.write([[-2, "new"]])


def add_trigger(job, body: str, before: str = "INSERT") -> None:
    """To the table of `job`, in PL/pgSQL, for each row."""
    table = job.given["table"]
    function = f"{table.partition('.')[0]}.triggered()"
    with psycopg.connect(job.database, autocommit=True) as connection:
        connection.execute(
            f"CREATE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body} END$$"
        )
        connection.execute(
            f"CREATE TRIGGER triggered BEFORE {before} ON {table} FOR EACH ROW "
            f"EXECUTE FUNCTION {function}"
        )


@pytest.mark.parametrize("commit", ["staged", "two-phase"])
@pytest.mark.parametrize(
    ("keys", "how"),
    [("", "trigger"), ("id", "trigger"), ("", "rule")],
    ids=["trigger", "keyed", "rule"],
)
def test_rows_that_a_trigger_or_a_rule_drops_are_told_of(
    rows_of, caplog, commit, keys, how
) -> None:
    given = {"keys": keys} if keys else {}
    job = rows_of(f"id bigint {'PRIMARY KEY' if keys else ''}, word text", COLUMNS, **given)
    job.given["commit"] = commit
    table = job.given["table"]
    if how == "trigger":
        add_trigger(job, "RETURN CASE WHEN NEW.id % 2 = 1 THEN NULL ELSE NEW END;")
    else:
        with psycopg.connect(job.database, autocommit=True) as connection:
            connection.execute(
                f"CREATE RULE r AS ON INSERT TO {table} WHERE new.id % 2 = 1 DO INSTEAD NOTHING"
            )
    job.write([[2, "a"], [2, "b"], [3, "c"]])
    assert set(job.there()) == ({(2, "b")} if keys else {(2, "a"), (2, "b")})
    assert f"Of {2 if keys else 3} rows for table '{table}'" in caplog.text
    assert "a trigger or rule kept 1 out" in caplog.text


def test_an_ordinary_trigger_is_nothing_to_tell_of(rows_of, caplog) -> None:
    job = rows_of("id bigint PRIMARY KEY, word text", COLUMNS, keys="id")
    add_trigger(job, "RETURN NEW;", "INSERT OR UPDATE")
    job.write([[1, "a"], [1, "b"]], [[2, "c"]])
    assert job.there() == [(1, "b"), (2, "c")]
    assert "trigger or rule" not in caplog.text


def test_deletes_that_row_security_would_pass_over_are_refused(rows_of) -> None:
    columns = {**COLUMNS, "operation": TEXT}
    job = rows_of("id bigint PRIMARY KEY, word text", columns, **KEYED)
    table = job.given["table"]
    schema = table.partition(".")[0]
    with psycopg.connect(job.database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {schema} LOGIN")
        connection.execute(f"GRANT ALL ON SCHEMA {schema} TO {schema}")
        connection.execute(f"GRANT ALL ON {table} TO {schema}")
        connection.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        connection.execute(f"CREATE POLICY own ON {table} USING (id > 1) WITH CHECK (true)")
        connection.execute(f"INSERT INTO {table} VALUES (1, 'a')")
    job.given["url"] = job.database.replace("postgres@", f"{schema}@")
    with pytest.raises(OptionsError, match=r"row-level security.*BYPASSRLS"):
        job.write([[1, None, "delete"]])
    with psycopg.connect(job.database, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {schema} BYPASSRLS")
    job.write([[1, None, "delete"]])
    assert job.there() == []


@pytest.mark.parametrize(
    "check",
    [
        "CHECK ({schema}.is_good(word))",
        "CHECK (word <> current_user)",
        "CHECK (id < extract(epoch FROM now()) OR word <> 'bad')",
        "CHECK (word <> 'bad' OR other IS NOT NULL)",
    ],
)
def test_what_depends_on_more_than_the_row_is_left_to_the_commit(
    rows_of,
    check,
) -> None:
    """A function may say another thing then, and a column that the rows lack has its default."""
    job = rows_of("id bigint, word text, other int", COLUMNS)
    table = job.given["table"]
    schema = table.partition(".")[0]
    with psycopg.connect(job.database, autocommit=True) as connection:
        connection.execute(
            f"CREATE FUNCTION {schema}.is_good(text) RETURNS boolean IMMUTABLE LANGUAGE sql AS "
            "$$SELECT $1 NOT IN ('bad', 'postgres')$$"
        )
        added = check.format(schema=schema)
        connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT known_late {added}")
    bad = [9_000_000_000, "postgres"] if "current_user" in check else [9_000_000_000, "bad"]
    with pytest.raises(RepairNeeded, match="known_late"):
        job.write([bad])
    assert job.there() == []


def test_a_trigger_may_fill_in_what_is_missing(rows_of) -> None:
    job = rows_of("id bigint, word text NOT NULL CHECK (word <> '')", COLUMNS)
    add_trigger(job, "NEW.word := coalesce(NEW.word, 'filled'); RETURN NEW;")
    job.write([[1, None]])
    assert job.there() == [(1, "filled")]
