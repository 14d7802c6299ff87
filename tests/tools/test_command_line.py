"""What the commands share: settings from arguments and files, tables, durations."""

from __future__ import annotations

import argparse

import pytest

from eo_kafka.errors import OptionsError
from eo_kafka.tools.shared.command_line import add_connection, connection, duration, table


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_connection(parser)
    return parser.parse_args(words)


def test_settings_come_from_the_file_and_the_argument_wins(tmp_path):
    path = tmp_path / "client"
    path.write_text("# ours\n\nbootstrap.servers = a:1\nsasl.password=x=y\nkafka.client.id=me\n")
    assert connection(parsed("--config", str(path))) == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.sasl.password": "x=y",
        "kafka.client.id": "me",
    }
    both = parsed("--config", str(path), "--bootstrap-servers", "b:2")
    assert connection(both)["kafka.bootstrap.servers"] == "b:2"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read"),
        ("bootstrap.servers=a:1\nhunter2\n", "Line 2 of .* has no '='"),
        ("client.id=me\n", "Which Kafka"),
        (b"\xff\xfe=1", "not UTF-8"),
    ],
)
def test_a_wrong_file_is_a_sentence_without_what_is_in_it(tmp_path, content, sentence):
    path = tmp_path / "client"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(OptionsError, match=sentence) as error:
        connection(parsed("--config", str(path)))
    assert "hunter2" not in str(error.value)


def test_tables_are_aligned():
    shown = table(("name", "rows"), [("a", 1), ("long one", 1000)], right="rows")
    assert shown == "name      rows\na            1\nlong one  1000"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (90, "90.0 s"), (120, "2 min"), (-7200, "-2 h"), (604_800, "7 d")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_what_others_named_moves_no_cursor():
    evil = "x\n\x1b[1A\x1b[2Keo-kafka.orders"
    lines = table(("id", "state"), [(evil, "open"), ("é-1", "open")]).splitlines()
    quoted = r"'x\n\x1b[1A\x1b[2Keo-kafka.orders'"
    assert lines[1:] == [f"{quoted}  open", f"{'é-1':<{len(quoted)}}  open"]
