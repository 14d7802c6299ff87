"""README's snippets, each in its turn, as somebody types them who reads on."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from eo_kafka.tools.cli import main
from harness import committed, produce

ROOT = Path(__file__).parents[2]


def test_each_snippet_of_readme_works(broker, make_topic, spark, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    servers, orders, topic = broker.bootstrap_servers, make_topic("orders"), make_topic("counts", 2)
    text = (ROOT / "README.md").read_text().replace("localhost:9092", servers)
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text.replace("/data/", f"{tmp_path}/"), re.S | re.M)
    install, change, _what_the_demo_printed, restorable, commands, made = blocks
    assert typed(install) == [["pip", "install", "."]], "which is how the package came here"

    read = spark.readStream.format("eo-kafka").option("kafka.bootstrap.servers", servers)
    read = read.option("subscribe", orders).option("startingOffsets", "earliest")
    counts = read.load().select("key", "value").dropDuplicates(["value"])  # has a state

    def run(code: str, values: list[bytes]) -> Counter[bytes]:
        produce(servers, orders, values)
        names = {"counts": counts}
        exec(code.replace('"counts"', f'"{topic}"'), names)
        try:
            names["query"].processAllAvailable()
        finally:
            names["query"].stop()
        return committed(servers, topic)

    before, after = version(change, "-"), version(change, "+")
    assert before.replace('format("kafka")', 'format("eo-kafka")') == after, "one word"
    assert run(after, [b"a", b"b", b"a"]) == {b"a": 1, b"b": 1}
    assert run(restorable, [b"a", b"c"]) == {b"a": 1, b"b": 1, b"c": 1}
    shutil.rmtree(tmp_path / "checkpoints")
    assert run(restorable, [b"c", b"d"]) == {b"a": 1, b"b": 1, b"c": 1, b"d": 1}

    said = []
    for program, *words in typed(re.sub(r"\bcounts\b", topic, commands)):
        assert (program, main(words)) == ("eo-kafka", 0), words
        said.append(capsys.readouterr().out)
    doctor, decisions, _ = said
    assert not re.search("^problem", doctor, re.MULTILINE), doctor
    assert re.search(r"^ +2 +0 +DONE ", decisions, re.M), decisions

    for words in typed(made):
        subprocess.run([*words, "--dry-run"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def version(diff: str, sign: str) -> str:
    """One side of a diff."""
    return "".join(line[1:] for line in diff.splitlines(True) if line[0] in (" ", sign))


def typed(block: str) -> list[list[str]]:
    """Its commands, as a shell takes them."""
    return [shlex.split(line, comments=True) for line in block.splitlines()]
