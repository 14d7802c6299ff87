"""`eo-kafka txn` and `doctor` with --table-config: what is beside a table, and what may go."""

from __future__ import annotations

import json

import psycopg
import pytest

from eo_kafka.errors import EoKafkaError
from eo_kafka.tools import cli
from table_job import kill_at, new_table


@pytest.fixture
def command(table_job, tmp_path, capsys):
    """Runs a command of `table_job`'s; its exit code and what it says."""
    config = tmp_path / "table.properties"
    config.write_text(f"url={table_job.database}\ntable={table_job.given['table']}\n")

    def run(*words: str) -> tuple[int, str]:
        servers = table_job.given["kafka.bootstrap.servers"]
        given = ["--table-config", str(config), "--bootstrap-servers", servers]
        code = cli.main([*words, *given])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_a_decided_batch_waits_beside_an_orphan_and_only_the_orphan_goes(
    table_job, crash_points, command
) -> None:
    name = table_job.given["jobName"]
    table_job.run(0)
    table_job.prepare(1)
    (orphan,) = table_job.left()
    schema = table_job.given["table"].partition(".")[0]
    with psycopg.connect(table_job.database) as reader:  # for which the next driver leaves it
        reader.execute(f"LOCK TABLE {schema}.{orphan} IN ACCESS SHARE MODE")
        kill_at(table_job, crash_points, "S6.after_decision", 1)
    (waiting,) = set(table_job.left()) - {orphan}
    code, said = command("txn", "list", "--job", name, "--json")
    assert code == 3  # a batch waits
    shown = json.loads(said)
    tables = {one["table"].partition(".")[2]: one for one in shown["stagingTables"]}
    assert tables.keys() == {waiting, orphan}
    assert tables[waiting]["needed"]
    assert tables[waiting]["rows"] == 100
    assert tables[waiting]["ledger"] == "batch 1 DECIDED"
    assert 0 <= tables[waiting]["ageSeconds"] < 600
    assert tables[orphan]["ledger"] == "not decided, stale"
    (marker,) = shown["markers"]
    assert (marker["job"], marker["batch"]) == (name, 0)

    _, said = command("txn", "abort", "--job", name, "--dry-run")
    assert "would drop it" in said
    assert table_job.left() == sorted([waiting, orphan])
    code, said = command("txn", "abort", "--job", name, "--yes")
    assert code == 1  # the decided one is refused
    assert "its batch is decided" in said
    assert table_job.left() == [waiting]
    table_job.run(1, 2)
    assert table_job.there() == table_job.expected(0, 1, 2)
    code, said = command("txn", "list", "--job", name)
    assert code == 0
    assert "No staging tables or prepared" in said


def test_prepared_transactions_are_listed_with_their_age_and_only_orphans_are_rolled_back(
    table_job, crash_points, command
) -> None:
    name = table_job.given["jobName"]
    table_job.given["commit"] = "two-phase"
    table_job.run(0)
    kill_at(table_job, crash_points, "S6.after_decision", 1)
    waiting = table_job.prepared()
    prefix = waiting[0].rpartition("_")[0].rpartition("_")[0].rpartition("_")[0]
    with psycopg.connect(table_job.database, autocommit=True) as connection:
        for orphan in (f"{prefix}_1_0_99", "eo_kafka_prepared_0123456789abcdef_1_0_0"):
            connection.execute("BEGIN")
            connection.execute("SELECT pg_current_xact_id()")
            connection.execute(f"PREPARE TRANSACTION '{orphan}'")
    try:
        _abort_orphans(table_job, command, name, waiting, f"{prefix}_1_0_99")
    finally:
        table_job.ask("ROLLBACK PREPARED 'eo_kafka_prepared_0123456789abcdef_1_0_0'")
    table_job.run(1, 2)
    assert table_job.there() == table_job.expected(0, 1, 2)


def _abort_orphans(table_job, command, name, waiting, orphan) -> None:
    code, said = command("txn", "list", "--job", name, "--json")
    assert code == 3
    shown = {one["table"]: one for one in json.loads(said)["stagingTables"]}
    assert shown.keys() == {*waiting, orphan}
    assert shown[waiting[0]]["kind"] == "prepared transaction"
    assert shown[waiting[0]]["needed"]
    assert 0 <= shown[orphan]["ageSeconds"] < 600
    assert shown[orphan]["ledger"] == "not decided, stale"
    _, said = command("doctor", "--job", name, "--json")
    assert f"'{waiting[0]}' of job '{name}': decided and not in the table yet" in said
    code, said = command("txn", "abort", "--job", name, "--dry-run")
    assert "would roll it back" in said
    code, said = command("txn", "abort", "--job", name, "--yes")
    assert code == 1  # the decided ones are refused
    assert "its batch is decided" in said
    assert "rolled back" in said
    code, said = command("txn", "list")
    assert "no ledger" in said  # another Kafka's: shown, and never ended
    assert orphan not in said
    assert table_job.prepared() == waiting


def test_what_a_driver_might_still_decide_goes_only_after_its_ledger_is_closed(
    table_job, command
) -> None:
    name = table_job.given["jobName"]
    table_job.run(0)
    table_job.prepare(1)
    code, said = command("txn", "abort", "--job", name)
    assert code == 1
    assert "may be alive and about to decide" in said
    assert len(table_job.left()) == 1
    code, said = command("txn", "abort", "--job", name, "--yes", "--dry-run")
    assert code == 0
    assert len(table_job.left()) == 1
    code, said = command("txn", "abort", "--job", name, "--yes")
    assert code == 0, said
    assert table_job.left() == []
    with pytest.raises(EoKafkaError):  # the driver that had it
        table_job.commit(1)
    table_job.run(1)
    assert table_job.there() == table_job.expected(0, 1)


def test_a_table_of_another_kafkas_job_is_shown_and_never_ended(table_job, command) -> None:
    name, schema = table_job.given["jobName"], table_job.given["table"].partition(".")[0]
    table_job.run(0)
    strange = "eo_kafka_staged_0123456789ab_1"
    table_job.ask(f"CREATE TABLE {schema}.{strange} (id int)")
    table_job.ask(
        f"COMMENT ON TABLE {schema}.{strange} IS 'Rows of eo-kafka job {name} that wait for a "
        "decision, since 2020-01-01T00:00:00+00:00'"
    )
    code, said = command("txn", "list", "--job", name)
    assert code == 0
    assert "no ledger" in said
    code, said = command("txn", "abort", "--job", name, "--yes")
    assert code == 1
    assert "no ledger of this Kafka" in said
    assert table_job.left() == [strange]


def test_doctor_tells_privileges_the_table_and_what_is_left_over(table_job, command) -> None:
    name, table = table_job.given["jobName"], table_job.given["table"]
    schema = table.partition(".")[0]
    table_job.run(0)
    _, said = command("doctor", "--job", name)
    assert "can take rows" in said
    table_job.prepare(1)
    (left,) = table_job.left()
    old = f"Rows of eo-kafka job {name} that wait for a decision, since 2020-01-01T00:00:00+00:00"
    table_job.ask(f"COMMENT ON TABLE {schema}.{left} IS '{old}'")
    _, said = command("doctor", "--job", name, "--json")
    found = [one for one in json.loads(said)["findings"] if one["subject"] == "staging tables"]
    (one,) = found
    assert one["level"] == "warning"
    assert left in one["text"]
    assert "older than a day" in one["text"]


def test_doctor_names_each_privilege_that_the_options_need(table_job, capsys, tmp_path) -> None:
    table = new_table(table_job.database, ", PRIMARY KEY (id)")
    schema = table.partition(".")[0]
    role = f"role_{schema}"
    table_job.ask(f"CREATE ROLE {role} LOGIN")
    table_job.ask(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    config = tmp_path / "other.properties"
    url = table_job.database.replace("postgres@", f"{role}@")
    lines = [f"url={url}", f"table={table}", "keys=id", "operationColumn=op"]
    config.write_text("\n".join(lines))

    def doctor() -> tuple[int, str]:
        code = cli.main(["doctor", "--table-config", str(config), "--json"])
        found = json.loads(capsys.readouterr().out)["findings"]
        return code, " ".join(one["text"] for one in found if one["subject"] == "table")

    code, said = doctor()
    assert code == 1
    for words in ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE on schema"):
        assert f"lacks {words}" in said
    table_job.ask(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}")
    table_job.ask(f"GRANT CREATE ON SCHEMA {schema} TO {role}")
    assert "lacks" not in doctor()[1]
    table_job.ask(f"DROP TABLE {table}")
    code, said = doctor()
    assert code == 1
    assert "There is no table" in said
