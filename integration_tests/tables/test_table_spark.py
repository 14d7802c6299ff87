"""`eo-postgres` by Spark: a stream, a batch, foreach_batch; what is wrong is refused at the start,
all at once, and no password is shown."""

from __future__ import annotations

import json
from collections import Counter

import psycopg
import pytest

import eo_kafka
from harness import Copy, Stateful, committed_messages, kill_driver_at, produce, read_ledger
from newcomer import blocks
from table_job import new_table

FULL = pytest.mark.full
PASSWORD = "s3cr3t-pa55"


class IntoTable(Copy):
    """A copy of a topic into a table of keys and values."""

    def as_job(self) -> dict[str, object]:
        options = {**self.sink_options, **self.table_options}
        if "topic" not in self.sink_extra:
            del options["topic"]
        return {**super().as_job(), "sink": "eo-postgres", "sink_options": options}


@pytest.fixture
def table(eo_postgres) -> str:
    """An empty one, of keys and values."""
    name = new_table(eo_postgres.url)
    with psycopg.connect(eo_postgres.url, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {name} DROP COLUMN id, DROP COLUMN word")
        connection.execute(f"ALTER TABLE {name} ADD COLUMN key bytea, ADD COLUMN value bytea")
    return name


@pytest.fixture
def copy(eo_postgres, table, broker, make_topic, tmp_path) -> IntoTable:
    """In batches of 400."""
    found = IntoTable(
        servers=broker.bootstrap_servers,
        source_topic=make_topic("in", partitions=2),
        sink_topic="none",
        checkpoint=tmp_path / "checkpoint",
        job_name=f"job-{table}",
    )
    found.table_options = {"url": eo_postgres.url, "table": table}
    return found


def values_in(url: str, table: str) -> Counter:
    """What a table holds."""
    with psycopg.connect(url) as connection:
        return Counter(bytes(one) for (one,) in connection.execute(f"SELECT value FROM {table}"))


@pytest.mark.parametrize(
    ("commit", "point"),
    [
        ("staged", "postgres.while_staging"),
        pytest.param("two-phase", "postgres.before_prepare", marks=FULL),
        ("two-phase", "postgres.prepared"),  # what it has prepared is in the next attempt's way
    ],
)
def test_a_task_that_is_killed_while_it_stages_repeats_nothing(
    copy, table, spark, crash_points, eo_postgres, commit, point
) -> None:
    values = [f"{number}".encode() for number in range(1000)]
    produce(copy.servers, copy.source_topic, values)
    copy.table_options["commit"] = commit
    if commit == "two-phase":
        with psycopg.connect(eo_postgres.url, autocommit=True) as connection:
            connection.execute(f"ALTER TABLE {table} ADD UNIQUE (value)")
    crash_points.arm(point, "kill")  # a task
    copy.run(spark)
    assert crash_points.reached(point)
    assert values_in(eo_postgres.url, table) == Counter(values)
    ledger = read_ledger(copy)
    assert {found.state.value for found in ledger.decisions.values()} == {"DONE"}
    assert {found.target for found in ledger.decisions.values()} == {
        f"table '{table}' of {eo_postgres.url.rpartition('@')[2]}"
    }


@FULL
@pytest.mark.parametrize(
    "point",
    [
        "S5.prepared",
        "S7.in_table",
        "S6.before_decision",
        "S6.after_decision",
        "S7.applied",
        "S8.after_done",
        "postgres.prepared",
        "S7.in_commits",
    ],
)
def test_a_driver_that_is_killed_anywhere_leaves_each_row_once(
    copy, table, spark, crash_points, eo_postgres, tmp_path, point
) -> None:
    if point in ("postgres.prepared", "S7.in_commits"):
        copy.table_options["commit"] = "two-phase"
    values = [f"{number}".encode() for number in range(1000)]
    produce(copy.servers, copy.source_topic, values)
    kill_driver_at(copy, crash_points, point, tmp_path / "log")
    copy.run(spark)
    assert values_in(eo_postgres.url, table) == Counter(values)


class StatefulIntoTable(Stateful):
    """Distinct rows, as JSON, into a table."""

    def as_job(self) -> dict[str, object]:
        found = super().as_job()
        options = {**found["sink_options"], **self.table_options}
        del options["topic"]
        return {**found, "sink": "eo-postgres", "sink_options": options}


@FULL
@pytest.mark.parametrize("point", ["S6.after_decision", "S7.in_table"])
def test_a_query_with_state_whose_disk_is_lost_in_a_commit_goes_on_from_its_snapshot(
    spark, crash_points, eo_postgres, broker, make_topic, tmp_path, point
) -> None:
    table = new_table(eo_postgres.url)
    with psycopg.connect(eo_postgres.url, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {table} DROP COLUMN id, DROP COLUMN word")
        connection.execute(f"ALTER TABLE {table} ADD COLUMN value text")
    job = StatefulIntoTable(
        servers=broker.bootstrap_servers,
        source_topic=make_topic("in"),
        sink_topic="none",
        checkpoint=tmp_path / "first",
        job_name=f"job-{table}",
        per_batch=60,
        operator="deduplication",
    )
    job.table_options = {"url": eo_postgres.url, "table": table}
    events = [json.dumps({"k": "k", "n": n, "t": 1_000_000 + n // 2}).encode() for n in range(200)]
    produce(job.servers, job.source_topic, events[:100])
    job.run(spark)
    produce(job.servers, job.source_topic, events[50:])  # half of the old ones once more
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    job.checkpoint.rename(tmp_path / "lost")
    job.checkpoint = tmp_path / "second"
    job.run(spark)
    with psycopg.connect(eo_postgres.url) as connection:
        found = [json.loads(one) for (one,) in connection.execute(f"SELECT value FROM {table}")]
    assert sorted(one["n"] for one in found) == list(range(200))


@FULL
def test_a_query_whose_checkpoint_is_lost_goes_on_from_its_snapshot(
    copy, table, spark, eo_postgres, tmp_path
) -> None:
    copy.sink_extra = {"snapshots": "true"}
    values = [f"{number}".encode() for number in range(1000)]
    produce(copy.servers, copy.source_topic, values[:500])
    copy.run(spark)
    copy.checkpoint.rename(tmp_path / "lost")
    produce(copy.servers, copy.source_topic, values[500:])
    copy.run(spark)
    assert values_in(eo_postgres.url, table) == Counter(values)


def test_totals_in_update_mode_go_to_a_table_and_a_topic_at_once(
    copy, spark, crash_points, eo_postgres, make_topic, tmp_path
) -> None:
    totals, topic = new_table(eo_postgres.url, ", PRIMARY KEY (id)"), make_topic("totals")
    write = eo_kafka.foreach_batch(
        {
            "url": eo_postgres.url,
            "table": totals,
            "keys": "id",
            "topic": topic,
            "kafka.bootstrap.servers": copy.servers,
            "jobName": f"job-{totals}",
        }
    )
    produce(copy.servers, copy.source_topic, [f"{number}".encode() for number in range(600)])

    def run_once() -> None:
        read = spark.readStream.format("eo-kafka").options(**copy.as_job()["source_options"])
        query = (
            read.load()
            .selectExpr("int(string(value)) % 7 AS id")
            .groupBy("id")
            .count()
            .selectExpr(
                "bigint(id) AS id",
                "string(count) AS word",
                "string(id) AS key",
                "string(count) AS value",
            )
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(tmp_path / "counts"))
            .trigger(availableNow=True)
            .foreachBatch(write)
            .start()
        )
        try:
            assert query.awaitTermination(180)
        finally:
            query.stop()

    crash_points.arm("S7.in_table", "raise")
    with pytest.raises(Exception, match="CrashPointReached"):
        run_once()
    run_once()
    expected = {number: f"{len(range(number, 600, 7))}" for number in range(7)}
    with psycopg.connect(eo_postgres.url) as connection:
        assert dict(connection.execute(f"SELECT id, word FROM {totals}").fetchall()) == expected
    sent = Counter((one.key(), one.value()) for one in committed_messages(copy.servers, topic))
    assert all(times == 1 for times in sent.values())
    assert {(b"%d" % n, word.encode()) for n, word in expected.items()} <= set(sent)


def test_a_batch_write_with_a_number_is_written_once_and_all_types_arrive(
    copy, spark, eo_postgres
) -> None:
    table = new_table(
        eo_postgres.url,
        ", b bytea, i int2, d numeric(12,2), f float8, t timestamptz, n timestamp, y date, o bool, "
        "j jsonb, u uuid, g real, m json",
    )
    rows = spark.sql(
        "SELECT 1L AS id, 'a,\"b\"\\n\\\\N' AS word, unhex('00ff0a') AS b, smallint(-3) AS i, "
        "decimal(12.50) AS dd, CAST(12.50 AS decimal(12,2)) AS d, double('NaN') AS f, "
        "timestamp'2024-05-06 07:08:09.123456+02:00' AS t, timestamp_ntz'0099-01-02 03:04:05' AS "
        "n, date'1969-12-31' AS y, true AS o, named_struct('a', array(1, 2), 'b', 'x') AS j, "
        "'7d3ae3b8-0000-4000-8000-000000000003' AS u, float(0.1) AS g, map('k', 1.5D) AS m "
        "UNION ALL SELECT 2L, '', unhex(''), null, null, null, null, null, null, null, null, null, "
        "null, null, null"
    ).drop("dd")
    options = {
        "url": eo_postgres.url,
        "table": table,
        "jobName": f"job-{table}",
        "kafka.bootstrap.servers": copy.servers,
    }
    with pytest.raises(Exception, match="needs option 'batchId'"):
        rows.write.format("eo-postgres").options(**options).mode("append").save()
    for _ in range(2):  # as a scheduler that did not get the answer
        rows.write.format("eo-postgres").options(**options, batchId="3").mode("append").save()
    with psycopg.connect(eo_postgres.url) as connection:
        connection.execute("SET timezone = 'UTC'; SET extra_float_digits = 1")
        found = connection.execute(
            f"SELECT id, word, b, i, d::text, f::text, t::text, n::text, y::text, o, j, u::text, "
            f"g::text, m->>'k' FROM {table} ORDER BY id"
        ).fetchall()
    assert found == [
        (
            *(
                1,
                'a,"b"\n\\N',
                b"\x00\xff\x0a",
                -3,
                "12.50",
                "NaN",
                "2024-05-06 05:08:09.123456+00",
            ),
            *("0099-01-02 03:04:05", "1969-12-31", True, {"a": [1, 2], "b": "x"}),
            *("7d3ae3b8-0000-4000-8000-000000000003", "0.1", "1.5"),
        ),
        (2, "", b"", *[None] * 11),
    ]


def test_what_the_table_cannot_take_is_told_at_once_and_no_password_anywhere(
    copy, spark, eo_postgres, caplog
) -> None:
    table = new_table(
        eo_postgres.url,
        ", needed int NOT NULL, small numeric(4,1), made int GENERATED ALWAYS AS (1) STORED",
    )
    schema = table.partition(".")[0]
    with psycopg.connect(eo_postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {schema} LOGIN PASSWORD '{PASSWORD}'")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {schema}")
        connection.execute(f"GRANT SELECT ON {table} TO {schema}")
    place = eo_postgres.url.rpartition("@")[2]
    rows = spark.sql("SELECT '1' AS id, 'a' AS wrod, 1 AS small, 2 AS made, 1 AS key")
    options = {
        "url": f"postgresql://{schema}:{PASSWORD}@{place}",
        "table": table,
        "keys": "id",
        "jobName": f"job-{table}",
        "batchId": "0",
        "kafka.bootstrap.servers": copy.servers,
    }

    def refused(**more: str) -> str:
        with pytest.raises(Exception) as told:
            writer = rows.write.format("eo-postgres").options(**{**options, **more})
            writer.mode("append").save()
        assert PASSWORD not in str(told.value)
        return str(told.value)

    said = refused()
    for sentence in (
        "Column 'id' is string, and the table's is bigint: cast it",
        "Column 'wrod' is not in table",
        "(is it 'word'?)",
        "Column 'small' is int, and the table's is numeric(4,1): it would be rounded",
        "Column 'made' is generated by the database",
        "Column 'needed' of table",
        "no primary key or unique index of just these columns",
        "lacks INSERT on column 'id'",
        "lacks CREATE on schema",
    ):
        assert sentence in said, sentence
    assert "There is no table" in refused(table=f"{schema}.nothing")
    nobody = refused(url=f"postgresql://nobody:{PASSWORD}@{place}")
    assert "does not exist" in nobody and "refuses the role" in nobody
    assert "cannot be read" in refused(url=f"postgresql://a:{PASSWORD}%zz@{place}")
    assert PASSWORD not in caplog.text


def test_the_page_works_as_it_is_written(copy, spark, eo_postgres, tmp_path) -> None:
    table = new_table(eo_postgres.url, ", PRIMARY KEY (id)")
    produce(copy.servers, copy.source_topic, [f"{number}".encode() for number in range(10)])
    read = spark.readStream.format("eo-kafka").options(**copy.as_job()["source_options"]).load()
    orders = read.selectExpr("bigint(string(value)) AS id", "string(value) AS word")
    (block,) = blocks("docs/postgres.md")
    code = block.content
    for written, here in {
        "postgresql://writer@localhost:5432/shop": eo_postgres.url,
        "localhost:9092": copy.servers,
        "sales.orders": table,
        '"orders"': f'"job-{table}"',
        "/data/checkpoints": str(tmp_path),
    }.items():
        assert written in code
        code = code.replace(written, here)
    names = {"orders": orders, "password": "x"}
    exec(code, names)
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    with psycopg.connect(eo_postgres.url) as connection:
        found = connection.execute(f"SELECT id, word FROM {table}").fetchall()
    assert dict(found) == {number: f"{number}" for number in range(10)}
