"""Tables: what options say, which types fit, and which history a marker may show."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pyarrow as pa
import pytest

from eo_kafka.clients.postgres.client import explained, may_pass
from eo_kafka.core.errors import OptionsError, ReadTimeout
from eo_kafka.core.transaction import NO_TRANSACTION, Decision, DecisionState, Participant, Staged
from eo_kafka.sinks.marker import History, Marker, may_be_forgotten, needed, newest_parts
from eo_kafka.sinks.tables.options import read_table
from eo_kafka.sinks.tables.rows import copied
from eo_kafka.sinks.tables.schema import Column, _misfit, staged_as
from eo_kafka.state.ledger.ledger import Ledger

GIVEN = {
    "url": "postgresql://me:s3cr3t@db:5433/shop",
    "table": "orders",
    "jobName": "j",
    "kafka.bootstrap.servers": "nowhere:1",
}
COLUMNS = [("id", "bigint"), ("word", "string")]


def problems(columns=COLUMNS, **more: str) -> str:
    with pytest.raises(OptionsError) as told:
        read_table({**GIVEN, **more}, columns)
    assert "s3cr3t" not in str(told.value)
    return str(told.value)


def test_no_password_is_shown_and_the_target_is_the_table_and_its_server():
    options, target = read_table(GIVEN, COLUMNS)
    assert "s3cr3t" not in f"{options!r}{target!r}{target.postgres!r}"
    assert options.target == "table 'orders' of db:5433/shop"
    with_topic, target = read_table({**GIVEN, "topic": "t"}, [*COLUMNS, ("value", "string")])
    assert with_topic.target == "table 'orders' of db:5433/shop and topic 't'"
    assert target.names == ["id", "word"]
    jdbc, _ = read_table({**GIVEN, "url": "jdbc:postgresql://db/shop", "user": "me"}, COLUMNS)
    assert jdbc.target == "table 'orders' of db:5432/shop"


def test_an_encoding_in_the_url_would_make_other_texts_of_the_rows():
    url = "postgresql://me:s3cr3t@db/shop?client_encoding="
    assert "'client_encoding' other than UTF8" in problems(url=f"{url}latin1")
    assert "'client_encoding'" in problems(url="host=db client_encoding=SQL_ASCII")
    for same in ("utf8", "UTF-8", "Unicode", "auto"):
        _, target = read_table({**GIVEN, "url": f"{url}{same}"}, COLUMNS)
        assert dict(target.postgres.parameters)["client_encoding"] == "UTF8", same


def test_deletes_are_for_staged_rows_alone():
    """Two tasks that have one key are not found out where one of them deletes what is not there."""
    columns = [*COLUMNS, ("op", "string")]
    keyed = {"keys": "id", "operationColumn": "op"}
    assert "needs 'commit' to be 'staged'" in problems(columns, **keyed, commit="two-phase")
    assert read_table({**GIVEN, **keyed}, columns)[1].commit == "staged"


def test_all_that_is_wrong_is_told_at_once():
    said = problems(keys="nr,nr", operationColumn="op", commit="often", guarantee="none")
    for word in ("'keys' must be", "needs option 'keys'", "'commit' must be", "'guarantee' is"):
        assert word in said, word
    assert "names 'nr'" in problems(keys="nr")
    assert "must be a string; it is bigint" in problems(keys="id", operationColumn="id")
    assert "did you mean 'stagingSchema'" in problems(stagingShema="x")
    assert "say the same" in problems(password="other")
    assert "cannot be read" in problems(url="postgresql://me:s3cr3t%zz@db/shop")
    assert "begin with '_eo_'" in problems([("_eo_row", "bigint")])
    assert "value attribute" in problems([*COLUMNS, ("value", "int")], topic="t")


def numeric(precision: int, scale: int) -> Column:
    typmod = (precision << 16 | scale) + 4
    return Column("c", "numeric", f"numeric({precision},{scale})", typmod, False, False, True, True)


@pytest.mark.parametrize(
    ("kind", "column", "fits"),
    [
        ("decimal(10,2)", numeric(10, 2), True),
        ("decimal(10,2)", numeric(11, 3), True),
        ("decimal(10,2)", numeric(10, 3), False),
        ("decimal(10,2)", numeric(12, 1), False),
        ("int", numeric(10, 0), True),
        ("int", numeric(9, 0), False),
        ("bigint", Column("c", "int4", "integer", -1, False, False, True, True), False),
        ("int", Column("c", "int8", "bigint", -1, False, False, True, True), True),
        ("double", Column("c", "float4", "real", -1, False, False, True, True), False),
        ("json", Column("c", "text", "text", -1, False, False, True, True), False),
        ("interval day", Column("c", "interval", "interval", -1, False, False, True, True), False),
    ],
)
def test_a_column_takes_every_value_or_is_refused(kind, column, fits):
    assert (_misfit(kind, column) == "") == fits


def test_only_a_server_that_is_away_is_asked_again():
    assert may_pass(psycopg.OperationalError("the connection is lost"))
    assert may_pass(psycopg.errors.LockNotAvailable())
    assert not may_pass(psycopg.ProgrammingError("only '%s' are allowed as placeholders"))
    assert not may_pass(psycopg.DataError("PostgreSQL text fields cannot contain NUL"))
    assert not may_pass(psycopg.errors.UndefinedColumn())
    assert may_pass(psycopg.errors.ReadOnlySqlTransaction())
    assert may_pass(psycopg.errors.ObjectInUse())
    assert not may_pass(psycopg.errors.ObjectNotInPrerequisiteState())
    assert not may_pass(psycopg.errors.CantChangeRuntimeParam())


def test_a_server_that_answers_is_not_told_of_as_away():
    settings = read_table(GIVEN, COLUMNS)[1].postgres
    for error in (psycopg.errors.OutOfMemory("no locks"), psycopg.errors.DeadlockDetected("it")):
        told = explained(error, settings)
        assert isinstance(told, ReadTimeout)
        assert f"cannot do that now ({error})" in str(told)
    assert "No session" in str(explained(psycopg.errors.CannotConnectNow("it starts"), settings))


def test_a_staged_column_has_the_tables_keys_and_cuts_nothing():
    def column(base: str, words: str, typmod: int, collation: str = "") -> Column:
        return Column("c", base, words, typmod, False, False, True, True, collation)

    assert staged_as(column("text", "text", -1)) == "text"
    assert staged_as(column("text", "text", -1, " COLLATE s.ci")) == "text COLLATE s.ci"
    assert staged_as(numeric(10, 2)) == "numeric(10,2)"
    cut = staged_as(column("varchar", "character varying(3)", 7, " COLLATE s.ci"))
    assert cut == 'varchar COLLATE s.ci CHECK ("c" = "c"::character varying(3))'


def part(partition: int, round_: int, generation: int, rows: int = 3) -> Participant:
    staged = Staged("s.t", f"staged_{generation}", partition, rows)
    digest = f"m1:{partition:032x}"
    return Participant(partition, round_, generation, NO_TRANSACTION, rows, digest, staged=staged)


def decision(batch: int, *parts: Participant, state=DecisionState.DONE, round_: int = 0):
    generation = max(one.generation for one in parts) if parts else 99
    return Decision("main", batch, round_, state, generation, 5, 1, 0, parts)


def history(*decisions: Decision, generation: int = 50) -> History:
    known = {("main", one.batch): one for one in decisions}
    return History(Ledger(generation=generation, decisions=known, topic_id="L"), "main")


def marker(found: Decision, passed=()) -> Marker:
    return Marker.of("L", 50, found.batch, newest_parts(found), passed)


NOTHING = Marker("L")
FIRST, SECOND = decision(0, part(0, 0, 3), part(1, 0, 3)), decision(1, part(0, 0, 4))
OPEN = replace(SECOND, state=DecisionState.DECIDED)


def test_a_table_shows_the_newest_decision_or_the_one_before_an_open_one():
    assert history().accepts(NOTHING)
    assert history(FIRST).accepts(marker(FIRST))
    assert not history(FIRST).accepts(NOTHING)  # a database from before it
    assert not history(FIRST, SECOND).accepts(marker(FIRST))
    assert not history(FIRST).accepts(marker(SECOND))  # a ledger from before it
    assert history(FIRST, OPEN).accepts(marker(FIRST))
    assert history(FIRST, OPEN).accepts(marker(SECOND))
    assert not history(FIRST, OPEN).accepts(NOTHING)
    empty = decision(2)
    assert history(FIRST, SECOND, empty).accepts(marker(SECOND))
    void = replace(SECOND, state=DecisionState.VOID)
    assert history(FIRST, void).accepts(marker(FIRST))


def test_equal_numbers_with_other_rows_are_another_decision():
    other = decision(1, part(0, 0, 4, rows=4))
    assert not history(FIRST, SECOND).accepts(marker(other))
    assert not history(FIRST, SECOND).accepts(replace(marker(SECOND), decided=5))


def test_after_a_reset_the_old_marker_is_history():
    assert history(generation=5).accepts(marker(SECOND))
    assert not history(generation=3).accepts(marker(SECOND))  # a ledger that was cut off
    fresh = decision(0, part(0, 0, 7), state=DecisionState.DECIDED)
    assert history(fresh).accepts(marker(SECOND))
    assert not history(replace(fresh, state=DecisionState.DONE)).accepts(marker(SECOND))


def test_a_batch_that_is_completed_in_a_later_round():
    torn = decision(1, part(0, 0, 4), part(1, 0, 4), state=DecisionState.DECIDED)
    in_part = marker(torn, passed={1})
    assert history(FIRST, torn).accepts(in_part)
    again = decision(1, part(0, 0, 4), part(1, 1, 6), state=DecisionState.DECIDED, round_=1)
    assert history(FIRST, again).accepts(in_part)
    assert not history(FIRST, again).accepts(marker(FIRST))
    assert history(FIRST, again).accepts(marker(again))
    accepted = replace(torn, participants=torn.participants[:1], state=DecisionState.DONE)
    assert history(FIRST, accepted).accepts(in_part)


def test_what_a_table_lacks_of_what_is_settled():
    def batches(known: History, shown: Marker | None) -> list[tuple[int, int]] | None:
        found = known.lacking(shown)
        return None if found is None else [(one.batch, one.round) for one in found]

    assert batches(history(FIRST, SECOND), marker(SECOND)) == []
    assert batches(history(FIRST, SECOND), marker(FIRST)) == [(1, 0)]
    assert batches(history(FIRST, SECOND), NOTHING) == [(0, 0), (1, 0)]
    assert batches(history(FIRST, OPEN), NOTHING) == [(0, 0)]  # the other one's S7 is to come
    assert batches(history(FIRST, SECOND), None) is None
    assert batches(history(FIRST), marker(SECOND)) is None
    other = replace(marker(FIRST), digest="x")
    assert batches(history(FIRST, SECOND), other) is None
    torn = decision(1, part(0, 0, 4), part(1, 1, 6), state=DecisionState.DONE, round_=1)
    assert batches(history(FIRST, torn), marker(FIRST)) == [(1, 0), (1, 1)]
    (first, _) = history(FIRST, torn).lacking(marker(FIRST)) or ()
    assert [one.partition for one in first.participants] == [0]
    assert history(FIRST, first).accepts(marker(FIRST))
    many = [decision(batch, part(0, 0, 3 + batch)) for batch in range(1, 101)]
    assert batches(history(*many), NOTHING) is None  # batch 0 is forgotten
    assert may_be_forgotten(Ledger(decisions={("main", d.batch): d for d in many}), "main", 3)
    assert not may_be_forgotten(Ledger(decisions={("main", d.batch): d for d in many}), "main", 4)


def test_what_a_decision_names_is_needed_until_the_table_shows_it():
    ledger = Ledger(decisions={("main", one.batch): one for one in (FIRST, SECOND)})
    assert needed(ledger, 2) == {"staged_3", "staged_4"}
    assert needed(ledger, 3) == {"staged_4"}
    assert needed(ledger, 4) == set()
    void = replace(SECOND, state=DecisionState.VOID)
    assert needed(Ledger(decisions={("main", 1): void}), 3) == set()
    assert needed(Ledger(decisions={("main", 1): OPEN}), 4) == {"staged_4"}


def test_what_it_should_show_is_accepted():
    for known in ((), (FIRST,), (FIRST, OPEN), (FIRST, SECOND), (OPEN,)):
        assert history(*known).accepts(history(*known).expected())


def test_the_newest_decision_with_rows_for_a_table_outlives_a_hundred_empty_ones():
    known = [FIRST, SECOND, *(decision(batch) for batch in range(2, 200))]
    ledger = Ledger(decisions={("main", one.batch): one for one in known})
    gone = {key for key, _ in ledger.tombstones("main")}
    assert b"decision/main/0/0" in gone
    assert b"decision/main/1/0" not in gone
    assert b"decision/main/1/0" in {key for key, _ in ledger.tombstones("main", keep=0)}


def test_rows_become_copys_csv_and_a_digest_tells_them_apart():
    _, target = read_table(
        {**GIVEN, "keys": "id", "operationColumn": "op"}, [*COLUMNS, ("op", "string")]
    )
    batch = pa.record_batch({"id": [1, 2], "word": ['a"b\n', None], "op": ["upsert", "delete"]})
    assert bytes(copied(target, batch, (4, 9, 7))) == (
        b'"1","a""b\n","4","9","7","false"\n"2",,"4","9","8","true"\n'
    )
    pairs = [("ab", "c"), ("a", "bc"), (None, "x"), ("", "x"), ("x", None), ("\0", "x")]
    _, two = read_table(GIVEN, [("a", "string"), ("b", "string")])
    rows = {
        two.sent(
            pa.record_batch({"a": pa.array([a], pa.string()), "b": pa.array([b], pa.string())})
        )
        .column("value")[0]
        .as_py()
        for a, b in pairs
    }
    assert len(rows) == len(pairs)
