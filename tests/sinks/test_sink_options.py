"""What a writer accepts, and the sentence for everything it does not."""

from __future__ import annotations

import errno
import json
import pickle
import re
from pathlib import Path

import pytest

from eo_kafka.errors import CheckpointError, CheckpointUnreadable, OptionsError
from eo_kafka.sinks.options import DEFAULT_TRANSACTION_TIMEOUT_MS, SinkOptions
from eo_kafka.state.snapshots.checkpoint import LocalCheckpoint, open_checkpoint

GOOD = {"kafka.bootstrap.servers": "localhost:9092", "topic": "out", "jobName": "job"}
LONGEST_JOB = 249 - len("__eo_kafka..ledger")


def parsed(**extra: str) -> SinkOptions:
    return SinkOptions.parse({**GOOD, **extra}, streaming=True)


def problems(given: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(OptionsError) as refused:
        SinkOptions.parse(given, streaming=True)
    return refused.value.problems


def without_job(**extra: str) -> dict[str, str]:
    return {name: value for name, value in GOOD.items() if name != "jobName"} | extra


def checkpoint(folder: Path) -> str:
    (folder / "metadata").write_text(json.dumps({"id": "b1-c2"}))
    return str(folder)


def test_defaults() -> None:
    options = parsed()

    assert options.exactly_once
    assert not options.one_phase
    assert options.job_and_ledger == ("job", "__eo_kafka.job.ledger")
    assert (options.topic, options.prefix, options.sink) == ("out", "eo-kafka", "main")
    assert options.query_id is None
    assert not options.allow_weak_replication
    assert options.transaction_timeout_ms == DEFAULT_TRANSACTION_TIMEOUT_MS


def test_what_is_given_is_taken() -> None:
    options = parsed(
        ledgerTopic="mine",
        transactionalIdPrefix="p",
        allowWeakReplication="TRUE",
        guarantee="Exactly-Once",
        **{"kafka.transaction.timeout.ms": "5000"},
    )

    assert options.job_and_ledger == ("job", "mine")
    assert (options.prefix, options.allow_weak_replication) == ("p", True)
    assert options.transaction_timeout_ms == 5000


def test_the_jobs_name_is_the_option_then_the_querys_name_then_its_id(tmp_path: Path) -> None:
    known = {"queryname": "query", "checkpointlocation": checkpoint(tmp_path)}

    assert parsed(**known).job == "job"
    assert SinkOptions.parse(without_job(**known), streaming=True).job == "query"
    del known["queryname"]
    options = SinkOptions.parse(without_job(**known), streaming=True)
    assert (options.job, options.query_id) == ("b1-c2", "b1-c2")


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_the_query_id_comes_from_the_checkpoint(tmp_path: Path, scheme: str) -> None:
    assert parsed(checkpointlocation=scheme + checkpoint(tmp_path)).query_id == "b1-c2"
    assert parsed(checkpointlocation=scheme + checkpoint(tmp_path) + "/").query_id == "b1-c2"


def test_without_any_name_it_is_refused() -> None:
    (found,) = problems(without_job())

    assert "set option 'jobName' (or queryName)" in found


def test_a_checkpoint_that_is_on_another_file_system_is_asked_for_by_its_scheme(tmp_path) -> None:
    """Spark resolves a path without one by its Hadoop settings, which no Python worker knows."""
    for given in (GOOD, without_job()):
        (found,) = problems({**given, "checkpointlocation": str(tmp_path)})
        assert "Write option 'checkpointLocation' with its scheme, as in 'hdfs://" in found


@pytest.mark.parametrize("content", ["", "[]", "{}", "nonsense"])
def test_a_query_id_that_cannot_be_read_is_no_query_id(tmp_path: Path, content: str) -> None:
    (tmp_path / "metadata").write_text(content)

    for given in (GOOD, without_job()):
        (found,) = problems({**given, "checkpointlocation": str(tmp_path)})
        assert "The query's id could not be read" in found
        assert "keep the checkpoint where it can be read" in found
        assert parsed(checkpointlocation=str(tmp_path), guarantee="at-least-once").query_id is None


@pytest.mark.parametrize("scheme", ["", "file:"])
def test_a_checkpoint_that_is_gone_is_no_wrong_option(tmp_path: Path, scheme: str) -> None:
    at = scheme + checkpoint(tmp_path)
    parsed(checkpointlocation=at)
    (tmp_path / "metadata").unlink()

    for given in (GOOD, without_job()):
        with pytest.raises(CheckpointUnreadable, match="is gone, or a part of it: .*'metadata'"):
            SinkOptions.parse({**given, "checkpointlocation": at}, streaming=True)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.EIO, "Input/output error"), True),
        (OSError(errno.EMFILE, "Too many open files"), True),
        (OSError("When reading information for key 'metadata': AWS Error SLOW_DOWN (503)"), True),
        (RuntimeError("503 of a store with a class of its own"), True),
        (CheckpointUnreadable("The store cannot be reached: no route"), True),
        (CheckpointError("The store cannot be reached: no such scheme"), False),
        (PermissionError(errno.EACCES, "Permission denied"), False),
        (OSError("When reading ...: AWS Error ACCESS_DENIED during HeadObject"), False),
        (OSError("Unable to load libjvm"), False),
        (ImportError("Install s3fs"), False),
    ],
    ids=repr,
)
def test_what_cannot_be_read_for_a_moment_is_no_wrong_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, passes: bool
) -> None:
    def opened(self: LocalCheckpoint, path: str) -> None:
        raise error

    monkeypatch.setattr(LocalCheckpoint, "open", opened)
    kind, said = (CheckpointUnreadable, "now") if passes else (OptionsError, "could not be read")
    with pytest.raises(kind, match=f"{said}.*{re.escape(str(error))}"):
        parsed(checkpointlocation=str(tmp_path))


def test_the_query_id_is_read_wherever_a_checkpoint_may_be(tmp_path: Path) -> None:
    where = "memory://checkpoints/one"  # fsspec's, which pyarrow does not know
    assert parsed(checkpointlocation=where).query_id is None
    folder = open_checkpoint(where)
    folder.write("metadata", [b'{"id":"b1-c2"}'])
    try:
        assert parsed(checkpointlocation=where).query_id == "b1-c2"
    finally:
        folder.clear("metadata")


def test_a_checkpoint_that_nobody_can_open_is_told_without_its_secrets() -> None:
    (found,) = problems({**GOOD, "checkpointlocation": "nosuch://me:secret@host/path"})

    assert "nosuch" in found
    assert "secret" not in found


def test_how_long_a_transaction_may_be() -> None:
    assert parsed(transactionTimeout="2 hours").transaction_timeout_ms == 7_200_000
    longest = parsed(transactionTimeout="MAX")
    assert (longest.transaction_timeout_ms, longest.timeout_text) == (2**31 - 1, "max")
    assert longest.answer_timeout_s == 900
    assert parsed(transactionTimeout="5 s").answer_timeout_s == 5


def test_a_query_name_that_cannot_be_a_topic_name_is_refused() -> None:
    (found,) = problems(without_job(queryname="my query"))

    assert "The query name stands in for option 'jobName', which must be usable" in found
    assert "'my query'" in found


def test_a_batch_write_has_one_way_to_commit() -> None:
    with pytest.raises(OptionsError, match="'commit' is 'idempotent'.*streaming"):
        SinkOptions.parse({**GOOD, "commit": "idempotent"}, streaming=False)


@pytest.mark.parametrize("guarantee", ["at-least-once", "none"])
def test_a_weaker_guarantee_needs_no_name(guarantee: str) -> None:
    options = SinkOptions.parse(without_job(guarantee=guarantee), streaming=True)

    assert not options.exactly_once
    with pytest.raises(OptionsError, match="jobName"):
        _ = options.job_and_ledger


def test_a_batch_needs_no_name() -> None:
    assert SinkOptions.parse(without_job(), streaming=False).exactly_once


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"commit": "often"}, "'commit' must be one of two-phase, idempotent"),
        (
            {"commit": "idempotent", "guarantee": "at-least-once"},
            "a way of streaming writes with guarantee 'exactly-once' only",
        ),
        ({"guarantee": "twice"}, "'guarantee' must be one of exactly-once, at-least-once, none"),
        ({"topic": " "}, "Option 'topic' must not be empty"),
        ({"ledgerTopic": "a/b"}, "Option 'ledgerTopic' must be a topic name"),
        ({"ledgerTopic": ".."}, "Option 'ledgerTopic' must be a topic name"),
        ({"ledgerTopic": "t" * 250}, "Option 'ledgerTopic' must be a topic name"),
        ({"transactionalIdPrefix": "a b"}, "'transactionalIdPrefix' must be a topic name"),
        ({"allowWeakReplication": "yes"}, "'allowWeakReplication' must be true or false"),
        ({"ledgerTopic": "out"}, "Options 'topic' and 'ledgerTopic' are both 'out'"),
        ({"jobNane": "x"}, "Unknown option 'jobnane': did you mean 'jobName'?"),
        ({"kafka.transactional.id": "x"}, "set 'transactionalIdPrefix' to tell jobs apart"),
        ({"kafka.acks": "1"}, "'kafka.acks' is '1', but guarantee 'exactly-once' needs 'all'"),
        ({"kafka.request.required.acks": "0"}, "'kafka.request.required.acks' is '0', but"),
        ({"kafka.enable.idempotence": "false"}, "'exactly-once' needs 'true': retries could"),
        ({"kafka.no.such.setting": "1"}, "'kafka.no.such.setting' is not known to librdkafka"),
        ({"kafka.linger.ms": "soon"}, "'kafka.linger.ms' has a value librdkafka refuses"),
        (
            {"transactionTimeout": "1 minute", "kafka.transaction.timeout.ms": "5000"},
            "'transactionTimeout' and 'kafka.transaction.timeout.ms' say the same",
        ),
        (
            {"transactionTimeout": "1 minute", "kafka.delivery.timeout.ms": "120000"},
            "'kafka.delivery.timeout.ms' is '120000', and a transaction may be open for 60000 ms",
        ),
        (
            {"transactionTimeout": "1 minute", "kafka.socket.timeout.ms": "60101"},
            "'kafka.socket.timeout.ms' is '60101', and",
        ),
        (
            {"kafka.transaction.timeout.ms": "60000", "kafka.message.timeout.ms": "60001"},
            "'kafka.message.timeout.ms' is '60001', and",
        ),
        ({"kafka.linger.msx": "1"}, "to librdkafka: did you mean 'kafka.linger.ms'?"),
        ({"kafka.boostrap.servers": "h"}, "did you mean 'kafka.bootstrap.servers'?"),
        ({"kafka.metric.reporter": "x"}, "did you mean 'kafka.metric.reporters'?"),
        ({"kafka.key.serializer": "x"}, "are sent as they are"),
        ({"kafka.bootstrap.servers": "a:1, http://h:9092"}, "'http://h:9092': write host:port"),
        ({"transactionTimeout": "25 days"}, "'transactionTimeout' must be 'max' or a time of 1"),
        ({"transactionTimeout": "ever"}, "'transactionTimeout' must be a time like"),
        ({"kafka.transaction.timeout.ms": "x"}, "'kafka.transaction.timeout.ms' has a value"),
    ],
)
def test_refuses_with_one_sentence(extra: dict[str, str], sentence: str) -> None:
    found = problems({**GOOD, **extra})

    assert len(found) == 1, found
    assert sentence in found[0]


@pytest.mark.parametrize("job", ["my job", "a/b", " ", "j" * (LONGEST_JOB + 1)])
def test_a_job_name_must_fit_into_a_topic_name(job: str) -> None:
    assert problems({**GOOD, "jobName": job})[0].startswith("Option 'jobName' must ")


def test_a_wrong_job_name_is_one_problem() -> None:
    assert len(problems({**GOOD, "jobName": "my job"})) == 1


@pytest.mark.parametrize("name", ["key.serializer", "value.serializer"])
def test_serializers_are_refused(name: str) -> None:
    found = problems({**GOOD, f"kafka.{name}": "x"})

    assert f"Kafka option '{name}' is not supported: " in found[0]


@pytest.mark.parametrize("acks", ["all", "-1", " ALL "])
def test_settings_that_keep_the_promise_are_let_be(acks: str) -> None:
    assert parsed(**{"kafka.acks": acks.strip().lower(), "kafka.enable.idempotence": "true"})


def test_no_guarantee_contradicts_nothing() -> None:
    assert parsed(guarantee="none", **{"kafka.acks": "0", "kafka.enable.idempotence": "false"})


def test_everything_that_is_wrong_is_said_at_once() -> None:
    found = problems(
        {"guarantee": "x", "allowWeakReplication": "x", "ledgerTopic": "", "kafka.acks": "0"}
    )

    text = " ".join(found)
    for name in ("bootstrap.servers", "guarantee", "allowWeakReplication", "ledgerTopic", "acks"):
        assert name in text
    assert "jobName" in text
    assert len(found) == 6


@pytest.mark.parametrize("job", ["a", "a.b-c_D9", "j" * LONGEST_JOB])
def test_names_that_fit(job: str) -> None:
    assert len(parsed(jobName=job).job_and_ledger[1]) <= 249


def test_snapshots_are_taken_where_they_are_asked_for_and_under_the_jobs_name() -> None:
    assert not parsed().snapshots
    assert parsed(snapshots="true").snapshots
    assert parsed(snapshots="true").state_topic == "__eo_kafka.job.state"
    assert parsed(snapshots="true", stateTopic="mine").state_topic == "mine"


def test_a_query_name_is_a_name_for_snapshots(tmp_path: Path) -> None:
    options = SinkOptions.parse(without_job(queryname="q", snapshots="true"), streaming=True)

    assert (options.snapshots, options.state_topic) == (True, "__eo_kafka.q.state")


NO_SNAPSHOTS = "Option 'snapshots' is true, which needs a streaming write with guarantee 'exactly"


def test_a_query_id_alone_is_no_name_for_snapshots(tmp_path: Path) -> None:
    """It is written in the checkpoint, and they are for when that is lost."""
    known = without_job(checkpointlocation=checkpoint(tmp_path))
    assert SinkOptions.parse(known, streaming=True).state_topic == "__eo_kafka.b1-c2.state"

    (found,) = problems({**known, "snapshots": "true"})

    assert found.startswith(NO_SNAPSHOTS)


@pytest.mark.parametrize("guarantee", ["at-least-once", "none"])
def test_a_weaker_guarantee_takes_no_snapshots(guarantee: str) -> None:
    (found,) = problems({**GOOD, "guarantee": guarantee, "snapshots": "true"})

    assert found.startswith(NO_SNAPSHOTS)
    assert not parsed(guarantee=guarantee, snapshots="false").snapshots


def test_a_batch_write_takes_no_snapshots() -> None:
    with pytest.raises(OptionsError, match=NO_SNAPSHOTS):
        SinkOptions.parse({**GOOD, "snapshots": "true"}, streaming=False)
    assert not SinkOptions.parse(GOOD, streaming=False).snapshots


@pytest.mark.parametrize(
    ("extra", "one", "other", "name"),
    [
        ({"stateTopic": "out"}, "topic", "stateTopic", "out"),
        ({"stateTopic": "x", "ledgerTopic": "x"}, "ledgerTopic", "stateTopic", "x"),
        ({"stateTopic": "__eo_kafka.job.ledger"}, "ledgerTopic", "stateTopic", None),
        ({"ledgerTopic": "__eo_kafka.job.state"}, "ledgerTopic", "stateTopic", None),
        ({"topic": "__eo_kafka.job.state"}, "topic", "stateTopic", None),
    ],
)
def test_one_topic_does_not_serve_two_purposes(
    extra: dict[str, str], one: str, other: str, name: str | None
) -> None:
    (found,) = problems({**GOOD, "snapshots": "true", **extra})

    name = name or next(iter(extra.values()))
    assert found == f"Options '{one}' and '{other}' are both '{name}'."


@pytest.mark.parametrize("topic", ["a/b", "..", "t" * 250, " "])
def test_a_state_topic_must_be_a_topic_name(topic: str) -> None:
    (found,) = problems({**GOOD, "stateTopic": topic})

    assert found.startswith("Option 'stateTopic' must ")


def test_the_longest_job_name_leaves_room_for_the_state_topic() -> None:
    options = parsed(jobName="j" * LONGEST_JOB, snapshots="true")

    assert len(options.state_topic or "") <= 249


@pytest.mark.parametrize("value", ["yes", "", "1"])
def test_snapshots_are_true_or_false(value: str) -> None:
    (found,) = problems({**GOOD, "snapshots": value})

    assert found.startswith("Option 'snapshots' must ")


def test_secrets_stay_out_of_reprs_and_messages() -> None:
    secret = {"kafka.sasl.password": "hunter2", "kafka.ssl.key.password": "hunter3"}
    options = parsed(**secret)
    copy = pickle.loads(pickle.dumps(options))
    found = problems({**GOOD, **secret, "guarantee": "x"})

    assert copy == options
    assert copy.kafka["sasl.password"] == "hunter2"
    assert "hunter" not in f"{options!r} {options!s} {copy!r} {' '.join(found)}"


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("max.in.flight", "6", "5"),
        ("max.in.flight.requests.per.connection", "10", "1"),
        ("retries", "0", "3"),
        ("message.send.max.retries", "0", "1"),
        ("queuing.strategy", "lifo", "fifo"),
    ],
)
def test_what_an_idempotent_producer_does_not_take(guarantee, name, value, kept) -> None:
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "jobname": "j", "guarantee": guarantee}
    with pytest.raises(OptionsError, match=f"'kafka.{name}' is '{value}', but guarantee"):
        SinkOptions.parse({**given, f"kafka.{name}": value}, streaming=False)
    SinkOptions.parse({**given, f"kafka.{name}": kept}, streaming=False)
