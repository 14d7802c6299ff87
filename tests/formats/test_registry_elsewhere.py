"""What is not the record's fault makes no bad record: a wrong address, a proxy, a token endpoint, a
file that an executor lacks, another context."""

from __future__ import annotations

import http.server
import json
import pickle
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import certifi
import pyarrow as pa
import pytest
from pyspark.sql import types as t

from eo_kafka.core.patience import Wait
from eo_kafka.core.process import driver_directory
from eo_kafka.errors import EoKafkaError, OptionsError, ReadTimeout, SourceError
from eo_kafka.formats import reading
from eo_kafka.formats.avro.reader import AvroReader
from eo_kafka.formats.columns import from_avro
from eo_kafka.formats.options import FormatOptions
from eo_kafka.formats.shared import registry
from eo_kafka.formats.shared.decoding import typed
from eo_kafka.formats.shared.registry import Registry, UnknownSchema, pack
from eo_kafka.formats.writing import Writing

HERE, THERE = ":.ctx:orders-value", "orders-value"
RAW = t.StructType().add("key", "binary").add("value", "binary")


class Answers:
    """An HTTP server; `answer` gives status and body for a path and its query's subject."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Any = lambda path, subject: (200, '{"schema": "\\"long\\""}')
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(f"{self.command} {self.path}")
                url = urlsplit(self.path)
                status, body = server.answer(url.path, parse_qs(url.query).get("subject", [""])[0])
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    monkeypatch.setattr(driver_directory, "_seen", set())
    monkeypatch.setattr(registry, "Wait", partial(Wait, at_first_s=0))
    made = Answers()
    with made.server:
        threading.Thread(target=made.server.serve_forever, args=(0.05,), daemon=True).start()
        yield made
        made.server.shutdown()


def once(url: str, **more: Any) -> Registry:
    return Registry({"url": url, "max.retries": 0, **more})  # type: ignore[dict-item]


# --- whose 404 it is ----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [40401, 40403])  # Apicurio's `legacy-id-mode` has the first one
def test_only_the_registry_says_that_there_is_no_schema(answers: Answers, code: int) -> None:
    answers.answer = lambda *_: (404, json.dumps({"error_code": code, "message": "none"}))
    with pytest.raises(UnknownSchema):
        once(answers.url).schema(7)


@pytest.mark.parametrize(
    "said",
    [
        "404 page not found",
        '{"error_code": 404, "message": "RESTEASY003210: Could not find resource for full path"}',
        '{"error_code": 0, "message": "RESTEASY003210: Could not find resource for full path"}',
        '{"message": "no route"}',
    ],
)
def test_who_is_no_registry_is_waited_for_and_makes_no_bad_record(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    answers.answer = lambda *_: (404, said)
    bad: list[int] = []
    reader = AvroReader('"long"', once(answers.url))
    values = pa.array([pack(7, b"\2")])
    with pytest.raises(ReadTimeout, match="is no registry: HTTP 404.*the path of the 'url'"):
        typed(values, reader, pa.int64(), lambda row, _: bad.append(row))
    with pytest.raises(ReadTimeout, match="is no registry"):
        once(answers.url).latest("orders-value", "Correct the subject.")
    assert not bad

    monkeypatch.setattr(registry, "Wait", partial(Wait, at_first_s=5))
    later = iter([(404, said)])
    answers.answer = lambda *_: next(later, (200, '{"schema": "\\"long\\""}'))
    assert typed(values, reader, pa.int64(), lambda row, _: bad.append(row)).to_pylist() == [1]
    assert not bad


def test_what_answers_something_else_makes_no_bad_record(answers: Answers) -> None:
    answers.answer = lambda *_: (200, '{"status": "maintenance"}')
    with pytest.raises(SourceError, match="Check its 'url'"):
        once(answers.url).schema(7)


def test_a_number_that_no_registry_has_is_not_asked_for(answers: Answers) -> None:
    with pytest.raises(UnknownSchema, match="no schema 2147483648"):
        once(answers.url).schema(2**31)
    assert not answers.asked


@pytest.mark.parametrize(
    "given",
    [
        {"value.format": "avro", "value.schema": '"long"'},
        {"key.format": "avro", "key.schema": '"long"', "value.format": "string"},
    ],
)
def test_a_wrong_address_is_told_at_load(answers: Answers, given: dict[str, str]) -> None:
    options = FormatOptions.of_reader({**given, "schema.registry.url": answers.url})
    answers.answer = lambda *_: (404, "nothing here")
    with pytest.raises(ReadTimeout, match="the path of the 'url'"):
        reading.schema(options, RAW)
    for code, status in ((40403, 404), (40301, 403)):  # others may be ours to read
        answers.answer = lambda *_, code=code, status=status: (
            status,
            json.dumps({"error_code": code, "message": "no"}),
        )
        reading.schema(options, RAW)
    answers.answer = lambda *_: (401, '{"error_code": 401, "message": "who are you?"}')
    with pytest.raises(SourceError, match="who are you"):
        reading.schema(options, RAW)


def test_from_avro_tells_it_too(answers: Answers) -> None:
    answers.answer = lambda *_: (404, "nothing here")
    with pytest.raises(ReadTimeout, match="the path of the 'url'"):
        from_avro("value", '"long"', registry={"url": answers.url})


# --- other faults that are not the record's -----------------------------------------------------


@pytest.mark.parametrize("schemas", [1, 17])
def test_a_file_that_an_executor_lacks_makes_no_bad_record(tmp_path: Path, schemas: int) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_bytes(Path(certifi.where()).read_bytes())
    known = once("http://127.0.0.1:1", **{"ssl.ca.location": str(authority)})
    reader = pickle.loads(pickle.dumps(AvroReader('"long"', known)))
    authority.unlink()
    values = pa.array([pack(number, b"\2") for number in range(1, 1 + schemas)])
    bad: list[int] = []
    with pytest.raises(OptionsError, match=r"ca\.pem"):
        typed(values, reader, pa.int64(), lambda row, _: bad.append(row))
    assert not bad


BEARER = {
    "bearer.auth.credentials.source": "OAUTHBEARER",
    "bearer.auth.client.id": "me",
    "bearer.auth.client.secret": "MARKER",
    "bearer.auth.scope": "x",
    "bearer.auth.logical.cluster": "lsrc-1",
}


def test_a_token_endpoint_that_is_away_is_waited_for(answers: Answers) -> None:
    away = once(answers.url, **BEARER, **{"bearer.auth.issuer.endpoint.url": "http://127.0.0.1:1"})
    with pytest.raises(ReadTimeout, match=r"endpoint is away: ConnectError.*issuer\.endpoint\.url"):
        away.schema(1)
    assert not answers.asked, "the registry"


@pytest.mark.parametrize(
    ("status", "body", "kind", "told"),
    [
        (503, "busy", ReadTimeout, "endpoint is away: HTTP 503"),
        (401, '{"error": "invalid_client"}', SourceError, "endpoint gave none: invalid_client"),
    ],
)
def test_what_a_token_endpoint_says(
    answers: Answers, status: int, body: str, kind: type[EoKafkaError], told: str
) -> None:
    answers.answer = lambda *_: (status, body)
    at = {"bearer.auth.issuer.endpoint.url": f"{answers.url}/token"}
    with pytest.raises(kind, match=told) as raised:
        once(answers.url, **BEARER, **at).schema(1)
    assert type(raised.value) is kind
    assert "MARKER" not in str(raised.value)
    assert {one.split()[1] for one in answers.asked} == {"/token"}


def test_a_schema_that_its_column_does_not_fit_is_not_registered(answers: Answers) -> None:
    given = {"value.format": "avro", "schema.registry.url": answers.url, "topic": "t",
             "schema.register": "true", "value.schema": '["int", "string"]'}  # fmt: skip
    column = t.StructType().add("value", t.StructType().add("memberX", "integer"))
    with pytest.raises(OptionsError, match="cannot be written by its Avro schema"):
        Writing.of(FormatOptions.of_writer(given), column).prepared(column)
    assert not answers.asked


# --- contexts -----------------------------------------------------------------------------------


def test_a_number_is_that_of_the_subjects_context(answers: Answers) -> None:
    """Another one has other schemas under the same numbers."""

    def answer(path: str, subject: str) -> tuple[int, str]:
        is_here = subject == HERE or "ctx" in path
        kind = json.dumps("long" if is_here else "string")
        return 200, json.dumps({"schema": kind, "id": 2, "subject": "s", "version": 1})

    answers.answer = answer
    known = once(answers.url)
    assert [known.latest(one, "") for one in (HERE, THERE)] == ['"long"', '"string"']
    sent = pickle.loads(pickle.dumps(known))
    for number in (1, 2):  # an older one, and the newest
        assert sent.schema(number, subject=HERE) == '"long"'
        assert sent.schema(number, subject=THERE) == '"string"'
        assert sent.schema(number) == '"string"'
    numbers = [one for one in answers.asked if "/ids/" in one]
    assert len(numbers) == 2 and "subject" not in numbers[1], "no subject where none is needed"


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_readers_name_their_subject(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    import protobuf_files as pb

    asked: list[Any] = []

    def schema(_: Registry, number: int, of: str, subject: str | None) -> str:
        asked.append((number, of, subject))
        raise UnknownSchema("not here")

    monkeypatch.setattr(Registry, "schema", schema)
    given = {"value.format": kind, "value.subject": HERE, "mode": "PERMISSIVE",
             "schema.registry.url": answers.url, "value.schema": '"long"'}  # fmt: skip
    if kind == "protobuf":
        given |= {"value.schema": pb.base64_of(pb.orders()), "value.message": "shop.Order"}
    options = FormatOptions.of_reader(given)
    (column,) = options.columns
    decoder = reading._decoder(options, column, t.LongType())
    with pytest.raises(UnknownSchema):
        decoder.decode(pack(1, b"\0\2"))
    assert asked == [(1, kind.upper(), HERE)]
