"""Projects of `eo-kafka new`: records that are not as their template expects them."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections import Counter

import pytest
from confluent_kafka import Producer

from harness import committed, committed_messages, produce
from projects import new, ran, set_to

AT = "2026-11-24T09:00:00Z"
ROW = {"id": 1, "name": "Ada", "email": "__debezium_unavailable_value"}
BYTES = {"id": 1, "photo": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}
OLD, NEW = ({"id": number, "name": "Ada", "email": ""} for number in (1, 2))
ODD = {
    "no time": ("tumbling", "rides", "ride-1", {"zone": "JFK", "cents": 1}, "$.ended is null"),
    "no number": ("sliding", "cars", "counter-1", {"road": "A1", "at": AT}, "$.kmh is null"),
    "no view": ("cogroup", "purchases", "v-1", {"product": "rug", "at": AT}, "$.cents is null"),
    "no key": ("distinct", "readings", None, {"watts": 1, "at": AT}, "A reading has no key"),
    "no visitor": ("sessions", "views", None, {"page": "Tide", "at": AT}, "A view has no key"),
    "no item": ("backfill", "orders", "1", {"customer": "a", "items": [None]}, "An item of an"),
    "no such name": ("enrich", "purchases", "1", {"Customer": "a"}, "$.customer is null"),
    "half a row": ("cdc", "changes", "1", {"op": "u", "after": ROW}, "not tell the whole row"),
    "half a row of bytes": ("cdc", "changes", "1", {"op": "u", "after": BYTES}, "the whole row"),
    "another key": ("cdc", "changes", "1", {"op": "u", "before": OLD, "after": NEW}, "another key"),
    "a schema": ("cdc", "changes", "1", {"schema": {}, "payload": {"op": "c"}}, "$.op is null"),
}


def write(servers: str, topic: str, *records: tuple[str | None, str | bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


@pytest.mark.full
@pytest.mark.parametrize("odd", ODD)
def test_what_would_be_lost_or_miscounted_without_a_word_stops_the_job(odd, broker, tmp_path):
    template, topic, key, value, said = ODD[odd]
    name, servers = f"odd-{uuid.uuid4().hex[:8]}", broker.bootstrap_servers
    folder = new(template, tmp_path / name, "--dev-servers", servers)
    if template == "backfill":
        set_to(folder, "begins", '{"0": 0}')
    if template == "cdc":
        reads = folder / "debezium.py"
        reads.write_text(reads.read_text().replace("email STRING>", "email STRING, photo BINARY>"))
    ran(folder / "sample.py", "write", "--count", "0", cwd=tmp_path)
    write(servers, f"{name}-{topic}", (key, json.dumps(value)))
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


TICKET = '{"line":"M10","cents":180}'
PURCHASE = f'{{"item":"rug","cents":5,"at":"{AT[:-1]}.000Z","customer":"a"}}'
NO_VALUE = {  # what is read, and what stands then in which topic
    "backfill": (
        ("orders", ("a", '{"customer": "a", "items": []}')),
        ("bills", ("a", '{"customer":"a","pieces":0,"cents":0}')),
    ),
    "enrich": (("purchases", ("a", PURCHASE)), ("enriched", ("a", PURCHASE))),
    "late": (("tickets", (None, TICKET)), ("late", (None, TICKET))),
}


@pytest.mark.full
@pytest.mark.parametrize("template", NO_VALUE)
def test_what_has_no_value_or_no_key_has_none_in_the_output(template, broker, tmp_path):
    name, servers = f"odd-{uuid.uuid4().hex[:8]}", broker.bootstrap_servers
    folder = new(template, tmp_path / name, "--dev-servers", servers)
    if template == "backfill":
        set_to(folder, "begins", '{"0": 0}')
    ran(folder / "sample.py", "write", "--count", "0", cwd=tmp_path)
    (source, given), (sink, wanted) = NO_VALUE[template]
    write(servers, f"{name}-{source}", given, ("b", None), ("c", "null"))
    ran(folder / "job.py", "--once", cwd=tmp_path)
    found = committed_messages(servers, f"{name}-{sink}")
    texts = ((m.key() and m.key().decode(), m.value() and m.value().decode()) for m in found)
    assert Counter(texts) == Counter([wanted, ("b", None), ("c", None)])


@pytest.mark.full
def test_what_a_queue_has_is_written_byte_for_byte(broker, eo_rabbitmq, tmp_path):
    name, servers = f"odd-{uuid.uuid4().hex[:8]}", broker.bootstrap_servers
    folder = new("queue-inbox", tmp_path / name, "--dev-servers", servers)
    set_to(folder, "url", eo_rabbitmq.url)
    ran(folder / "sample.py", "write", "--count", "0", cwd=tmp_path)
    bodies = [{"Customer": "a", "table": 7}, None]
    made = [("source", str(number), body) for number, body in enumerate(bodies)]
    ran("-c", f"import inputs; inputs.write({made!r})", cwd=folder)
    ran(folder / "job.py", "--once", cwd=tmp_path)
    assert committed(servers, f"{name}-once") == Counter(json.dumps(b).encode() for b in bodies)
