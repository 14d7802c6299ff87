"""`eo-kafka new`: a project of each template, written by the installed command, runs and passes its
own test."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions as F

from connect_port import connect_port
from eo_kafka.testing.driver import Driver
from eo_kafka.testing.processes import wait_until
from eo_kafka.testing.standalone_spark import SPARK_HOME
from harness import committed, produce
from projects import EO_KAFKA, new, ran, set_to

IN_CI = ("cdc",)
FOR_RELEASES = (
    *("backfill", "cogroup", "distinct", "enrich", "join", "late", "outbox", "sessions"),
    *("sliding", "top-n", "tumbling", "queue-inbox", "upsert-postgres"),
)
TEMPLATES = ("copy", *IN_CI, *FOR_RELEASES)


def make_topics(servers: str, names: Iterable[str]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(30)


def write_into(folder: Path, url: str) -> None:
    """A table of this project's own."""
    set_to(folder, "url", url)
    set_to(folder, "sink", f"customers_{uuid.uuid4().hex[:12]}")


@pytest.mark.parametrize(
    "template",
    [
        pytest.param("copy", marks=pytest.mark.smoke),
        *IN_CI,
        *(pytest.param(one, marks=pytest.mark.full) for one in FOR_RELEASES),
    ],
)
def test_a_template_passes_its_own_test(template, broker, tmp_path):
    folder = new(template, tmp_path / f"my-{template}.1")
    where = f"--eo-kafka={broker.bootstrap_servers}"
    said = ran("-m", "pytest", "-p", "no:cacheprovider", where, cwd=folder)
    assert " passed" in said
    assert "skipped" not in said


def test_samples_go_on_where_they_ended_whatever_partitions_there_are(broker, make_topic, tmp_path):
    folder = new("copy", tmp_path / f"wide-{uuid.uuid4().hex[:8]}")
    set_to(folder, "bootstrap_servers", broker.bootstrap_servers)
    source = make_topic("wide", partitions=4)
    set_to(folder, "source", source)
    for first, last in ((1, 100), (101, 150)):
        count = str(last - first + 1)
        said = ran(folder / "sample.py", "write", "--count", count, cwd=tmp_path)
        assert f"Records {first} to {last} are written" in said
    assert max(committed(broker.bootstrap_servers, source).values()) == 1


def test_samples_that_kafka_does_not_take_are_told(broker, make_topic, tmp_path):
    servers, name = broker.bootstrap_servers, f"told-{uuid.uuid4().hex[:8]}"
    folder = new("copy", tmp_path / name, "--dev-servers", servers)

    def refused(match: str, *words: str) -> None:
        with pytest.raises(AssertionError, match=match):
            ran(folder / "sample.py", *words, cwd=tmp_path)

    set_to(folder, "source", make_topic("small", config={"max.message.bytes": "60"}))
    refused("did not take 50 records: Broker: Message size too large. Mend", "write", "--count=50")
    refused("There is no input yet: python sample.py write", "check")
    set_to(folder, "source", f"{name}-payments")
    more_than_a_queue = "--count=120000"
    said = ran(folder / "sample.py", "write", more_than_a_queue, cwd=tmp_path)
    assert "Records 1 to 120000 are written" in said
    set_to(folder, "bootstrap_servers", f"{servers}'\nkafka.security.protocol = 'SSL")
    refused(rf"Kafka at {servers} \(config.toml, \[dev\]\): Failed to get metadata", "write")


def test_every_template_is_tried():
    listed = subprocess.run([EO_KAFKA, "new", "--list"], capture_output=True, text=True, check=True)
    names = {line.split()[0] for line in listed.stdout.splitlines()[1:]}
    assert names == {*TEMPLATES}


@pytest.mark.full
@pytest.mark.parametrize("template", sorted(set(TEMPLATES) - {"enrich", "late"}))
def test_a_project_runs_as_a_declarative_pipeline(template, broker, request, tmp_path):
    """Run twice, it has written each record once; `check` compares it with the model."""
    servers = ("--dev-servers", broker.bootstrap_servers)
    folder = new(template, tmp_path / "für-数", *servers, "--name", f"flow-{template}")
    if template == "upsert-postgres":
        write_into(folder, request.getfixturevalue("eo_postgres").url)
    if template == "queue-inbox":
        set_to(folder, "url", request.getfixturevalue("eo_rabbitmq").url)
    if template == "backfill":
        set_to(folder, "begins", '{"0": 0}')
    for count in ("100", "50"):
        ran(folder / "sample.py", "write", "--count", count, cwd=tmp_path)
        log = tmp_path / "log"
        command = [str(EO_KAFKA.with_name("spark-pipelines")), "run"]
        spec = ["--spec", str(folder / "spark-pipeline.yml")]
        variables = {"PYSPARK_PYTHON": sys.executable}
        with connect_port():
            driver = Driver([*command, *spec], log, variables)
            try:
                assert driver.wait(180) == 0, log.read_text()[-4000:]
            finally:
                driver.kill()
    assert (folder / "checkpoints" / "flow" / "_checkpoints").is_dir()
    assert "those that model.py says" in ran(folder / "sample.py", "check", cwd=tmp_path)


@pytest.mark.full
def test_a_project_whose_output_is_a_table_is_tried_as_its_readme_says(
    broker, eo_postgres, tmp_path
):
    folder = new("upsert-postgres", tmp_path / "up", "--dev-servers", broker.bootstrap_servers)
    write_into(folder, eo_postgres.url)
    for count in ("100", "50"):
        ran(folder / "sample.py", "write", "--count", count, cwd=tmp_path)
        with pytest.raises(AssertionError, match="Has the job read all of its input"):
            ran(folder / "sample.py", "check", cwd=tmp_path)
        ran(folder / "job.py", "--once", cwd=tmp_path)
        assert "those that model.py says" in ran(folder / "sample.py", "check", cwd=tmp_path)
    assert "@example.com" in ran(folder / "sample.py", "read", cwd=tmp_path)


@pytest.mark.full
def test_a_time_becomes_offsets_once_and_stream_and_backfill_keep_them(
    broker, crash_points, tmp_path
):
    """Looked up again, it would be at other ones each time: no record is as new."""
    servers = broker.bootstrap_servers
    folder = new("backfill", tmp_path / f"bf-{os.getpid()}", "--dev-servers", servers)
    topic = f"{folder.name}-orders"

    def write(count: int) -> str:
        ran(folder / "sample.py", "write", "--count", str(count), cwd=tmp_path)
        at = datetime.now(UTC) + timedelta(hours=1)
        command = [EO_KAFKA, "topic", "offsets", topic, "--at", at.isoformat()]
        connect = ["--bootstrap-servers", servers]
        return subprocess.run([*command, *connect], capture_output=True, text=True).stdout.strip()

    begins = write(100)
    assert begins == '{"0": 100}'
    set_to(folder, "begins", begins)
    assert write(50) == '{"0": 150}'
    crash_points.arm("S7.after_first_end_txn", "kill-driver")
    with pytest.raises(AssertionError):
        ran(folder / "backfill.py", cwd=tmp_path)
    assert crash_points.reached("S7.after_first_end_txn")
    write(10)
    for _ in range(2):
        ran(folder / "backfill.py", cwd=tmp_path)
        ran(folder / "job.py", "--once", cwd=tmp_path)
    assert "Of 160 records" in ran(folder / "sample.py", "check", cwd=tmp_path)


MADE = """
import json, job
from generate import records
from model import expected
from pipeline import PAYMENT, Settings
from rows import START
from streams import typed
made = [*records(200, START)]
print(json.dumps([PAYMENT, made, expected(made, typed(Settings, job.config("job", "dev")))]))
"""


AVRO = {"key.format": "string", "value.format": "avro"}


def of_avro(folder: Path, servers: str, registry: str) -> Path:
    """A copy of Avro."""
    new("copy", folder, "--dev-servers", servers)
    config = folder / "config.toml"
    config.write_text(
        config.read_text().replace('# registry = "http://localhost:8081"', "registry = '-'")
    )
    set_to(folder, "registry", registry)
    return folder


@pytest.mark.full
def test_a_copy_of_avro_is_what_it_is_of_json(broker, eo_registry, crash_points, spark, tmp_path):
    servers = broker.bootstrap_servers
    folder = of_avro(tmp_path / f"avro-{os.getpid()}", servers, eo_registry.url)
    name = folder.name
    schema, made, wanted = json.loads(ran("-c", MADE, cwd=folder))
    topics = {role: f"{name}-{role}" for role in ("payments", "small", "large", "rejects")}
    make_topics(servers, topics.values())
    avro = {**AVRO, "kafka.bootstrap.servers": servers, "schema.registry.url": eo_registry.url}
    whole = [(key, json.dumps(value)) for _, key, value in made if isinstance(value, dict)]
    rows = spark.createDataFrame(whole, "key STRING, text STRING")
    rows = rows.select("key", F.from_json("text", schema).alias("value"))
    to = {**avro, "schema.register": "true", "topic": topics["payments"]}
    rows.write.format("eo-kafka").mode("append").options(**to).save()
    produce(servers, topics["payments"], [v.encode() for *_, v in made if isinstance(v, str)])
    crash_points.arm("S7.after_first_end_txn", "kill-driver")
    with pytest.raises(AssertionError):
        ran(folder / "job.py", "--once", cwd=tmp_path)
    assert crash_points.reached("S7.after_first_end_txn")
    ran(folder / "job.py", "--once", cwd=tmp_path)
    subject = {"value.subject": f"{topics['small']}-value"}
    for role, topic in (("sink", topics["small"]), ("large", topics["large"])):
        read = spark.read.format("eo-kafka").options(**avro, **subject, subscribe=topic).load()
        read = read.withColumn("at", F.date_format("value.at", "yyyy-MM-dd'T'HH:mm:ss.SSSX"))
        found = [
            (row.key, {**row.value.asDict(), "at": row.at})
            for row in read.select("key", "value", "at").collect()
        ]
        expected = [(key, value) for key, value in wanted[role]]
        assert sorted(found, key=str) == sorted(expected, key=str)
        assert len(expected) > 10
    assert committed(servers, topics["rejects"]) == Counter(
        text.encode() for _, text in wanted["rejects"]
    )


@pytest.mark.full
def test_a_copy_of_avro_stops_at_a_payment_that_lacks_a_field(broker, eo_registry, spark, tmp_path):
    servers, name = broker.bootstrap_servers, f"lack-{uuid.uuid4().hex[:8]}"
    folder = of_avro(tmp_path / name, servers, eo_registry.url)
    make_topics(servers, (f"{name}-{role}" for role in ("payments", "small", "large", "rejects")))
    payment = "'1' AS id, '4929123412345678' AS card, CAST(NULL AS BIGINT) AS cents, "
    rows = spark.sql(f"SELECT {payment} 'EUR' AS currency, true AS approved, now() AS at")
    to = {**AVRO, "kafka.bootstrap.servers": servers, "schema.registry.url": eo_registry.url}
    to |= {"schema.register": "true", "topic": f"{name}-payments"}
    rows = rows.select(F.lit("k").alias("key"), F.struct("*").alias("value"))
    rows.write.format("eo-kafka").mode("append").options(**to).save()
    command = [sys.executable, folder / "job.py", "--once"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "A payment has a null in one of id, card, cents" in done.stdout + done.stderr
    assert not committed(servers, f"{name}-small")


@pytest.mark.full
def test_two_projects_on_one_kafka_are_tried_as_their_readmes_say(broker, tmp_path):
    """From another folder; a job that is killed goes on."""
    servers = ("--dev-servers", broker.bootstrap_servers)
    first = new("copy", tmp_path / "json", *servers)
    second = new("copy", tmp_path / "a b", *servers, "--name", "class")
    for folder in (first, second):
        ran(folder / "sample.py", "write", "--count", "100", cwd=tmp_path)
    job = [sys.executable, first / "job.py"]
    with subprocess.Popen(job, cwd=tmp_path, start_new_session=True) as running:
        try:
            wait_until(lambda: committed(servers[1], "json-small"), "the job writes", 120)
        finally:
            os.killpg(running.pid, signal.SIGKILL)
    ran(first / "sample.py", "write", "--count", "50", cwd=tmp_path)
    ran(first / "job.py", "--once", cwd=tmp_path)
    for folder, count in ((first, 150), (second, 100)):
        if folder == second:
            with pytest.raises(AssertionError, match="Has the job read all of its input"):
                ran(folder / "sample.py", "check", cwd=tmp_path)
            ran(folder / "job.py", "--once", cwd=tmp_path)
        assert f"Of {count} records" in ran(folder / "sample.py", "check", cwd=tmp_path)
    assert "xxxx" in ran("sample.py", "read", cwd=first)
    assert (first / "checkpoints" / "dev").is_dir()


def test_a_job_that_is_submitted_from_elsewhere_has_its_checkpoint_in_its_folder(broker, tmp_path):
    """Spark's JVM is there before job.py, and stays where it was started."""
    folder = new("copy", tmp_path / "sub", "--dev-servers", broker.bootstrap_servers)
    set_to(folder, "job_name", f"sub-{uuid.uuid4().hex[:8]}")
    ran(folder / "sample.py", "write", "--count", "50", cwd=tmp_path)
    for number in (1, 2):
        place = tmp_path / f"elsewhere-{number}"
        place.mkdir()
        submit = [SPARK_HOME / "bin" / "spark-submit", folder / "job.py", "--once"]
        done = subprocess.run(submit, cwd=place, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]
        assert not (place / "checkpoints").exists()
        ran(folder / "sample.py", "write", "--count", "10", cwd=tmp_path)
    ran(folder / "job.py", "--once", cwd=tmp_path)
    assert "Of 70 records" in ran(folder / "sample.py", "check", cwd=tmp_path)


def test_a_copied_flow_is_not_run_on_the_first_ones_checkpoint(tmp_path):
    folder, other = new("copy", tmp_path / "first"), tmp_path / "für-数"
    shutil.copytree(folder, other)
    spec = other / "spark-pipeline.yml"
    code, said = dry_run(spec, tmp_path / "log")
    assert code != 0
    assert f"'storage' is in {folder}, and this project is not" in said
    (line,) = re.findall("(?m)^storage: .*$", said)
    assert line == f'storage: "file://{other}/checkpoints/flow"'
    (tmp_path / "shared").mkdir()
    shared, s3a = (tmp_path / "shared/checkpoints/flow").as_uri(), "s3a://bucket/checkpoints/flow"
    for mended in (line, f"storage: {shared}", f"storage: {s3a}"):
        spec.write_text(re.sub("(?m)^storage: .*$", mended, spec.read_text()))
        code, said = dry_run(spec, tmp_path / "log")
        assert code == 0, said


def dry_run(spec: Path, log: Path) -> tuple[int, str]:
    """`spark-pipelines dry-run`: its code, and what it said."""
    log.unlink(missing_ok=True)
    command = [str(EO_KAFKA.with_name("spark-pipelines")), "dry-run", "--spec", str(spec)]
    with connect_port():
        driver = Driver(command, log, {"PYSPARK_PYTHON": sys.executable})
        try:
            return driver.wait(120), log.read_text()
        finally:
            driver.kill()
