"""`eo-kafka verify` on real topics: what it calls equal, lost, duplicated and unexpected."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from eo_kafka.errors import DataLossError
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.rows import plain_write
from eo_kafka.tools.cli import main
from eo_kafka.tools.verify.command import _side
from eo_kafka.tools.verify.topic_diff import How, compare
from harness import committed, delete_records, produce, recreate_topic, wait_until

VALUES = [b"%d" % number for number in range(200)]


@pytest.fixture
def verify(broker, capsys):
    """Runs the command: (exit code, its JSON)."""

    def run(source: str, sink: str, *words: str):
        capsys.readouterr()
        topics = ["--input", source, "--output", sink]
        where = ["--bootstrap-servers", broker.bootstrap_servers]
        code = main(["verify", *topics, *where, "--json", *words])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else said.err

    return run


@pytest.fixture
def topics(broker, make_topic) -> tuple[str, str]:
    """The same 200 values on two topics, in other partitions."""
    source, sink = make_topic("verify-in", partitions=2), make_topic("verify-out", partitions=3)
    produce(broker.bootstrap_servers, source, VALUES)
    produce(broker.bootstrap_servers, sink, VALUES[::-1])
    return source, sink


def test_the_same_records_elsewhere_and_in_another_order_are_equal(topics, verify):
    for how in ("value", "key", "record"):
        code, found = verify(*topics, "--by", how)
        assert (code, found["equal"], found["distinctIds"]) == (0, True, 200)
        assert (found["inputRecords"], found["outputRecords"]) == (200, 200)


def test_lost_duplicated_and_unexpected_are_named_where_they_are(
    topics, verify, broker, make_topic
):
    source, _ = topics
    sink = make_topic("verify-wrong")
    produce(broker.bootstrap_servers, sink, [*VALUES[3:], VALUES[7], VALUES[7], b"stranger"])
    for passes in ("1", "5"):
        code, found = verify(source, sink, "--passes", passes)
        assert code == 1
        assert (found["lostIds"], found["duplicatedIds"], found["unexpectedIds"]) == (3, 1, 1)
        assert (found["missingRecords"], found["surplusRecords"]) == (3, 3)
        by_id = {one["id"]: one for one in found["differences"]}
        assert {name for name, one in by_id.items() if one["kind"] == "lost"} == {"0", "1", "2"}
        assert all(len(by_id[name]["input"]) == 1 for name in "012")
        assert by_id["7"]["kind"] == "duplicated"
        assert [place["offset"] for place in by_id["7"]["output"]] == [4, 197, 198]
        assert by_id["stranger"]["output"] == [{"topic": sink, "partition": 0, "offset": 199}]
    code, found = verify(source, sink, "--limit", "1")
    assert Counter(one["kind"] for one in found["differences"]) == {
        "lost": 1,
        "duplicated": 1,
        "unexpected": 1,
    }


def test_rows_of_aborted_transactions_are_not_there(topics, verify, broker):
    source, sink = topics
    writer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": sink})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce(sink, VALUES[0])
    writer.abort_transaction()
    assert verify(source, sink)[0] == 0


def test_ids_in_headers_and_in_json(verify, broker, make_topic):
    source, sink = make_topic("verify-ids"), make_topic("verify-ids-out")
    for topic, extra in ((source, "before"), (sink, "after")):
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(20):
            value = json.dumps({"order": {"id": number}, "stage": extra})
            producer.produce(topic, value, headers=[("id", b"%d" % (number % 10))])
        assert producer.flush(30) == 0
    assert verify(source, sink)[0] == 1
    for how, distinct in (("json:order.id", 20), ("header:id", 10)):
        code, found = verify(source, sink, "--by", how)
        assert (code, found["distinctIds"]) == (0, distinct)
    assert verify(source, sink, "--by", "json:stage")[0] == 1
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(sink, b"{not json")
    assert producer.flush(30) == 0
    code, said = verify(source, sink, "--by", "json:order.id")
    assert (code, f"{sink}-0 at offset 20 is not JSON" in said) == (1, True)


def test_what_is_wrong_is_said_in_the_commands_own_words(topics, verify, tmp_path):
    source, sink = topics
    for where in ((source, "verify-nowhere"), ("verify-nowhere", sink)):
        code, said = verify(*where)
        argument = "--output" if where[0] == source else "--input"
        assert (code, f"correct {argument}." in said) == (1, True)
    code, said = verify(source, f"{sink},{source}")
    assert (code, "--output must be a topic name" in said) == (1, True)
    consumer = tmp_path / "consumer.properties"  # what says where a consumer begins is no matter
    consumer.write_text("auto.offset.reset=earliest\nenable.auto.commit=false\n")
    assert verify(source, sink, "--config", str(consumer))[0] == 0


def test_records_without_an_id_are_not_called_equal(verify, broker, make_topic, capsys):
    """One is lost, another is repeated, and by a field that none has both topics are the same."""
    source, sink = make_topic("verify-none"), make_topic("verify-none-out")
    for topic, numbers in ((source, (1, 2)), (sink, (1, 1))):
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in numbers:
            producer.produce(topic, json.dumps({"id": number}))
        assert producer.flush(30) == 0
    for how in ("key", "header:id", "json:ID"):
        code, found = verify(source, sink, "--by", how)
        assert (code, found["equal"], found["lostIds"], found["duplicatedIds"]) == (1, False, 0, 0)
        assert (found["inputWithoutId"], found["outputWithoutId"]) == (2, 2)
    capsys.readouterr()
    words = ["--input", source, "--output", sink, "--by", "json:ID"]
    main(["verify", *words, "--bootstrap-servers", broker.bootstrap_servers])
    said = capsys.readouterr().out
    assert "2 records of the input and 2 of the output have no json:ID" in said
    assert "Equal" not in said


def test_what_is_behind_an_open_transaction_or_gone_is_named(topics, verify, broker):
    """It may be repeated there, or lost."""
    source, sink = topics
    servers = broker.bootstrap_servers
    held = Producer({"bootstrap.servers": servers, "transactional.id": f"held-{sink}"})
    held.init_transactions()
    held.begin_transaction()
    held.produce(sink, b"held", partition=1)
    assert held.flush(30) == 0
    again = Producer({"bootstrap.servers": servers})
    again.produce(sink, VALUES[0], partition=1)
    assert again.flush(30) == 0
    code, found = verify(source, sink)
    ends = [one for one in found["notCompared"] if f"output {sink}-1: offsets " in one]
    assert (code, len(ends), "behind an open transaction" in ends[0]) == (0, 1, True)
    first = ends[0].split(" to ")[0].split()[-1]
    for part, told in (("1", ends), (f"1:{first}-", ends), (f"1:-{first}", [])):
        assert verify(source, sink, "--output-range", part)[1]["notCompared"] == told
    held.abort_transaction()
    wait_until(lambda: not verify(source, sink)[1]["notCompared"], "the transaction has ended")
    code, found = verify(source, sink)
    assert (code, found["duplicatedIds"], found["notCompared"]) == (1, 1, [])
    delete_records(servers, source, 3)
    told = f"input {source}-0: what was before offset 3, which is gone."
    assert verify(source, sink)[1]["notCompared"] == [told]


def test_a_topic_that_is_made_again_meanwhile_is_no_answer(topics, broker):
    how, kafka = How("value"), {"kafka.bootstrap.servers": broker.bootstrap_servers}
    source, sink = (
        _side(kafka, argument, topic, [], how)
        for argument, topic in zip(("--input", "--output"), topics, strict=True)
    )
    recreate_topic(broker.bootstrap_servers, topics[1], VALUES, partitions=3)
    with pytest.raises(DataLossError, match="deleted and made again|deleted and created again"):
        compare(source, sink, how, limit=1, passes=1, told=lambda *_: None)


def test_a_topic_is_not_compared_with_itself(topics, verify):
    code, said = verify(topics[0], topics[0])
    assert (code, "--input and --output are the same" in said) == (1, True)


def test_a_range_limits_what_is_compared(topics, verify, broker, make_topic):
    _, sink = topics
    source = make_topic("verify-range")
    produce(broker.bootstrap_servers, source, [b"old", *VALUES, b"new"])
    assert verify(source, sink)[0] == 1
    assert verify(source, sink, "--input-range", "0:1-201")[0] == 0
    code, said = verify(source, sink, "--input-range", "3")
    assert (code, f"--input-range: topic '{source}' has no partition 3" in said) == (1, True)
    code, said = verify(source, sink, "--input-range", "all")
    assert (code, "'all' is not a range" in said) == (1, True)


def test_an_at_least_once_job_whose_task_died_wrote_more_than_its_input(
    broker, topics, make_topic, verify
):
    """The sink's own task, run twice as Spark does when the first attempt dies half-way."""
    servers, sink = broker.bootstrap_servers, make_topic("verify-alo")
    options = SinkOptions.parse(
        {"kafka.bootstrap.servers": servers, "topic": sink, "guarantee": "at-least-once"},
        streaming=True,
    )
    halves = [pa.RecordBatch.from_pydict({"value": part}) for part in (VALUES[:50], VALUES[50:])]

    def dying():
        yield halves[0]
        wait_until(lambda: len(committed(servers, sink)) == 50, "what was sent is visible")
        raise ConnectionResetError("the worker dies")

    with pytest.raises(ConnectionResetError):
        plain_write.write(options, 0, dying())
    plain_write.write(options, 0, iter(halves))
    code, found = verify(topics[0], sink, "--limit", "100")
    assert code == 1
    assert (found["inputRecords"], found["outputRecords"]) == (200, 250)
    assert (found["duplicatedIds"], found["lostIds"], found["unexpectedIds"]) == (50, 0, 0)
    first = {one["id"]: one for one in found["differences"]}["0"]
    assert [place["offset"] for place in first["output"]] == [0, 50]


def test_a_topic_that_does_not_exist_is_a_sentence(topics, verify):
    code, said = verify(topics[0], "no-such-topic")
    assert (code, "no-such-topic" in said) == (1, True)
