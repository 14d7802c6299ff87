"""A topic of a job's own whose records Kafka deletes by age: whoever uses it next says so, and
`eo-kafka doctor` does before. One that takes small records only: the setting is named."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import eo_kafka
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.state.ledger import compacted_topic
from eo_kafka.state.ledger.job_topics import CONTROL_TOPIC
from eo_kafka.state.snapshots import export
from eo_kafka.state.view import Marker
from eo_kafka.state.view_writer import ViewWriter, open_view
from eo_kafka.testing.records import write
from eo_kafka.tools.cli import main
from eo_kafka.tools.control.words import WISH_KEY, Wish, encode
from eo_kafka.tools.explain.pipeline import Pipeline
from eo_kafka.tools.explain.recorded import record
from hand_made_job import HandMadeJob, set_policy
from harness import produce


@pytest.fixture
def job(broker, make_topic, tmp_path) -> HandMadeJob:
    """One batch is written; there is an export 'kept', a view 'shown', and all else it may have."""
    topic = make_topic("out")
    made = HandMadeJob(broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / "checkpoint")
    made.run(0)
    eo_kafka.export_snapshot(made.name, "kept", made.given, progress=False)
    show(made)
    record(Pipeline((), ()), {**made.given, "jobName": made.name})
    admin = AdminClient({"bootstrap.servers": made.servers})
    control = CONTROL_TOPIC.format(job=made.name)
    compacted_topic.create(admin, control, 1, 1)
    write(made.servers, control, [(WISH_KEY, encode(Wish("suspend", "me")))])
    return made


def show(job: HandMadeJob) -> None:
    ViewWriter(job.name, "shown", job.given).write([(b'{"k":1}', b'{"v":1}')], Marker("q", 1))


USES = {
    "verify state": ("state", lambda job: eo_kafka.verify_snapshot(job.name, job.given)),
    "verify export": (
        "export.kept",
        lambda job: eo_kafka.verify_snapshot(job.name, job.given, "kept"),
    ),
    "export again": (
        "export.kept",
        lambda job: eo_kafka.export_snapshot(job.name, "kept", job.given),
    ),
    "keep view": ("view.shown", show),
    "read view": ("view.shown", lambda job: open_view(job.name, "shown", job.given)),
}


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_each_use_of_a_topic_that_will_forget_is_refused(job, policy):
    admin = AdminClient({"bootstrap.servers": job.servers})
    for kind in ("state", "export.kept", "view.shown"):
        set_policy(admin, f"__eo_kafka.{job.name}.{kind}", policy)
    for name, (kind, use) in USES.items():
        topic = f"__eo_kafka.{job.name}.{kind}"
        with pytest.raises(EnvironmentRefused) as stop:
            use(job)
        assert f"Topic '{topic}' has cleanup.policy={policy}" in str(stop.value), name
        assert f"--alter --topic {topic} --add-config cleanup.policy=compact" in str(stop.value)
    for kind in ("state", "export.kept", "view.shown"):
        set_policy(admin, f"__eo_kafka.{job.name}.{kind}", "compact")
    assert eo_kafka.verify_snapshot(job.name, job.given, "kept") == []
    assert open_view(job.name, "shown", job.given).values == {b'{"k":1}': b'{"v":1}'}


def test_verify_does_not_call_whole_what_will_not_stay(job, broker, capsys):
    words = ["snapshots", "verify", job.name, "kept", "--bootstrap-servers", job.servers]
    set_policy(
        AdminClient({"bootstrap.servers": job.servers}), export.topic_of(job.name, "kept"), "delete"
    )
    capsys.readouterr()
    assert main(words) == 1
    said = capsys.readouterr()
    assert "Whole" not in said.out
    assert "All files of 'kept'" in said.err
    assert "are whole, and will not stay so. Topic '__eo_kafka." in said.err


def test_an_export_into_a_topic_of_small_records_names_the_setting(job):
    topic = export.topic_of(job.name, "small")
    settings = {"cleanup.policy": "compact", "max.message.bytes": "200"}
    admin = AdminClient({"bootstrap.servers": job.servers})
    admin.create_topics([NewTopic(topic, 1, config=settings)])[topic].result(30)
    with pytest.raises(EnvironmentRefused, match="refuses records as too large") as stop:
        eo_kafka.export_snapshot(job.name, "small", job.given, progress=False)
    assert f"--entity-name {topic} --add-config max.message.bytes=" in str(stop.value)
    eo_kafka.delete_snapshot(job.name, "small", job.given)
    eo_kafka.export_snapshot(job.name, "small", job.given, progress=False)
    assert eo_kafka.verify_snapshot(job.name, job.given, "small") == []


def test_a_view_or_export_that_one_broker_could_lose_is_refused_or_told(job, caplog):
    """Of three brokers, as they are told here: the topic has one replica."""
    topic = export.topic_of(job.name, "kept")
    admin = AdminClient({"bootstrap.servers": job.servers})
    with pytest.raises(EnvironmentRefused, match=f"'{topic}' has one replica.*losing records"):
        compacted_topic.ensure_one(job.options, admin, topic, 3)
    weak = replace(job.options, allow_weak_replication=True)
    with caplog.at_level(logging.WARNING):
        compacted_topic.ensure_one(weak, admin, topic, 3)
    assert f"allowWeakReplication: Topic '{topic}' has one replica" in caplog.text


def test_doctor_finds_every_topic_of_the_job(job, make_topic, capsys, monkeypatch):
    monkeypatch.setattr("eo_kafka.tools.doctor.command.check_machine", list)
    letters = make_topic("letters", config={"cleanup.policy": "compact"})
    admin = AdminClient({"bootstrap.servers": job.servers})

    def findings() -> dict[str, tuple[str, str]]:
        capsys.readouterr()
        where = ["--bootstrap-servers", job.servers, "--json"]
        main(["doctor", "--job", job.name, "--dead-letter-topic", letters, *where])
        shown = json.loads(capsys.readouterr().out)["findings"]
        return {one["subject"]: (one["level"], one["text"]) for one in reversed(shown)}

    own = {
        "ledger": "ledger",
        "state topic": "state",
        "export 'kept'": "export.kept",
        "view 'shown'": "view.shown",
        "recorded plan": "plan",
        "control topic": "control",
    }
    found = findings()
    for subject in own:
        assert found[subject][0] == "ok", found
    level, text = found["dead letter topic"]
    assert level == "problem"
    assert "compacted" in text
    for kind in own.values():
        set_policy(admin, f"__eo_kafka.{job.name}.{kind}", "delete")
    found = findings()
    for subject in own:
        assert (found[subject][0], "cleanup.policy=delete" in found[subject][1]) == (
            "problem",
            True,
        ), subject


def test_a_compacted_dead_letter_topic_is_refused_before_anything_is_written(
    spark, broker, make_topic
):
    """Of letters with the same key it would keep the last, and it refuses those without one."""
    topic, output = make_topic("in"), make_topic("out")
    letters = make_topic("letters", config={"cleanup.policy": "compact"})
    produce(broker.bootstrap_servers, topic, [b"no JSON"])
    rows = (
        spark.read.format("eo-kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", topic)
        .option("value.format", "json")
        .option("value.schema", "id LONG")
        .option("mode", "DEADLETTER")
        .option("deadLetterTopic", letters)
        .load()
    )
    writer = rows.write.format("eo-kafka").mode("append").option("topic", output)
    with pytest.raises(Exception, match=f"Dead letter topic '{letters}' is compacted"):
        writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option(
            "value.format", "json"
        ).save()
