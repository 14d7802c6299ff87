"""What a job's function finds in its config: words of the command line, and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from eo_kafka.errors import OptionsError
from eo_kafka.tools.shared.job_function import config_of

PROD = """
topic = "orders"
batch = 16_000
snapshots = true
kafka.bootstrap.servers = "kafka:9092"

[kafka]
"sasl.password" = "secret=1"
"""


def test_a_file_and_words_and_the_later_one_wins(tmp_path: Path) -> None:
    file = tmp_path / "prod.toml"
    file.write_text(PROD.replace("[kafka]", "[kafka.also]"))
    found = {
        "topic": "orders",
        "batch": "16000",
        "snapshots": "true",
        "kafka.bootstrap.servers": "kafka:9092",
        "kafka.also.sasl.password": "secret=1",
    }
    assert config_of([str(file)]) == found
    assert config_of([str(file), "topic=x=y"]) == {**found, "topic": "x=y"}
    assert config_of(["topic=x", str(file)]) == found


def test_all_that_is_wrong_is_told_and_no_line_of_a_file(tmp_path: Path) -> None:
    broken, odd = tmp_path / "broken.toml", tmp_path / "odd.toml"
    broken.write_text('password = "hunter2\n')
    odd.write_text("topics = ['a', 'b']\n")
    words = ["no", str(tmp_path / "gone.toml"), str(broken), str(odd), str(tmp_path)]
    with pytest.raises(OptionsError) as refused:
        config_of(words)
    told = refused.value.problems
    assert len(told) == 5
    for sentence, part in zip(
        told,
        ("'no' is neither", "gone.toml: No such file", "line 1", "'topics' is a list", "neither"),
        strict=True,
    ):
        assert part in sentence
    assert "hunter2" not in str(refused.value)
