"""`eo-kafka new`: a project of each template, written by the installed command, runs and passes its
own test."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions as F

from connect_port import connect_port
from eo_kafka.broker import rabbitmq
from eo_kafka.testing.driver import Driver
from eo_kafka.testing.processes import wait_until
from harness import committed, produce

EO_KAFKA = Path(sys.executable).with_name("eo-kafka")
IN_CI = ("cdc",)
FOR_RELEASES = (
    *("backfill", "cogroup", "distinct", "enrich", "join", "late", "outbox", "sessions"),
    *("sliding", "top-n", "tumbling", "queue-inbox", "upsert-postgres"),
)
TEMPLATES = ("copy", *IN_CI, *FOR_RELEASES)


def new(template: str, folder: Path, *more: str) -> Path:
    """The folder of a new project. The test is skipped where what the project needs is missing."""
    if template == "queue-inbox" and (reason := rabbitmq.why_not()):
        pytest.skip(reason)
    command = [EO_KAFKA, "new", template, folder, *more]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return folder


def ran(*command: object, cwd: Path) -> str:
    """What a program of a project says."""
    done = subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout


def set_to(folder: Path, name: str, value: str) -> None:
    """A setting of config.toml, which is there already."""
    config = folder / "config.toml"
    text, count = re.subn(rf"(?m)^{name} = \S.*$", f"{name} = '{value}'", config.read_text())
    assert count == 1
    config.write_text(text)


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


def test_every_template_is_tried():
    listed = subprocess.run([EO_KAFKA, "new", "--list"], capture_output=True, text=True, check=True)
    names = {line.split()[0] for line in listed.stdout.splitlines()[1:]}
    assert names == {*TEMPLATES}


@pytest.mark.full
@pytest.mark.parametrize("template", sorted(set(TEMPLATES) - {"enrich", "late"}))
def test_a_project_runs_as_a_declarative_pipeline(template, broker, request, tmp_path):
    """Run twice, it has written each record once; `check` compares it with the model."""
    folder = new(template, tmp_path / f"flow-{template}", "--dev-servers", broker.bootstrap_servers)
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


AT = "2026-11-24T09:00:00Z"
ROW = {"id": 1, "name": "Ada", "email": "__debezium_unavailable_value"}
ODD = {
    "no time": ("tumbling", "rides", "ride-1", {"zone": "JFK", "cents": 1}, "$.ended is null"),
    "no number": ("sliding", "cars", "counter-1", {"road": "A1", "at": AT}, "$.kmh is null"),
    "no view": ("cogroup", "purchases", "v-1", {"product": "rug", "at": AT}, "$.cents is null"),
    "no key": ("distinct", "readings", None, {"watts": 1, "at": AT}, "A reading has no key"),
    "half a row": ("cdc", "changes", "1", {"op": "u", "after": ROW}, "not tell the whole row"),
    "a schema": ("cdc", "changes", "1", {"schema": {}, "payload": {"op": "c"}}, "$.op is null"),
}


@pytest.mark.full
@pytest.mark.parametrize("odd", ODD)
def test_what_would_be_lost_or_miscounted_without_a_word_stops_the_job(odd, broker, tmp_path):
    template, topic, key, value, said = ODD[odd]
    name, servers = f"odd-{uuid.uuid4().hex[:8]}", broker.bootstrap_servers
    folder = new(template, tmp_path / name, "--dev-servers", servers)
    ran(folder / "sample.py", "write", "--count", "0", cwd=tmp_path)
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(f"{name}-{topic}", json.dumps(value), key)
    assert producer.flush(30) == 0
    command = [sys.executable, folder / "job.py", "--once"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr


@pytest.mark.full
def test_what_is_no_payment_is_rejected_and_a_card_is_masked_however_it_is_written(
    broker, tmp_path
):
    name, servers = f"odd-{uuid.uuid4().hex[:8]}", broker.bootstrap_servers
    folder = new("copy", tmp_path / name, "--dev-servers", servers)
    ran(folder / "sample.py", "write", "--count", "0", cwd=tmp_path)
    payment = {"id": "1", "cents": 5, "currency": "EUR", "approved": True, "at": AT}
    cards = ["4929123412345678", "4929 1234 1234 5678", "4929-1234-1234-5678 ", "49291234"]
    payments = [json.dumps({**payment, "card": card}).encode() for card in cards]
    odd = [b'{"id": "1", "cents": 5}', json.dumps({**payment, "card": None}).encode(), b"{}"]
    produce(servers, f"{name}-payments", [*payments, *odd, b"null"])
    ran(folder / "job.py", "--once", cwd=tmp_path)
    small = committed(servers, f"{name}-small").elements()
    masked = Counter(json.loads(value)["card"] for value in small)
    assert masked == {"4929-xxxx-5678": 3, "xxxx": 1}
    assert committed(servers, f"{name}-rejects") == Counter([*odd, None])


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


@pytest.mark.full
def test_a_copy_of_avro_is_what_it_is_of_json(broker, eo_registry, crash_points, spark, tmp_path):
    servers = broker.bootstrap_servers
    folder = new("copy", tmp_path / f"avro-{os.getpid()}", "--dev-servers", servers)
    config, name = folder / "config.toml", folder.name
    config.write_text(
        config.read_text().replace('# registry = "http://localhost:8081"', "registry = '-'")
    )
    set_to(folder, "registry", eo_registry.url)
    schema, made, wanted = json.loads(ran("-c", MADE, cwd=folder))
    topics = {role: f"{name}-{role}" for role in ("payments", "small", "large", "rejects")}
    make_topics(servers, topics.values())
    avro = {
        "kafka.bootstrap.servers": servers,
        "key.format": "string",
        "value.format": "avro",
        "schema.registry.url": eo_registry.url,
    }
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
