"""`eo-kafka new`: what it writes, what it refuses, and the settings of a project."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eo_kafka.tools import cli
from eo_kafka.tools.new import project

OPEN = re.compile(r"\$\S*?\}|\$\w+")
KNOWN = {"${KAFKA_PASSWORD}", "${PGPASSWORD}", "${RABBITMQ_URL}", "${BASE}", "${NAME}"}
NAMES = ("my-job", "my.job", "class", "job_2", "json", "a b", "ä", "..", ".hidden")
FLOW = {"flow.py", "spark-pipeline.yml"}
MORE = {
    "backfill": {"backfill.py"},
    "cdc": {"customers.py", "debezium.py"},
    "queue-inbox": {"orders.py"},
    "upsert-postgres": {"customers.py", "debezium.py", "table.py"},
}
NO_FLOW = {"enrich", "late"}  # what writes by foreachBatch, and what needs a setting of Spark's
FILES = {
    *(".gitignore", "Dockerfile", "README.md", "config.toml", "pytest.ini", "requirements.txt"),
    *("conftest.py", "generate.py", "job.py", "model.py", "pipeline.py", "rows.py", "sample.py"),
    *("inputs.py", "outputs.py", "streams.py", "test_pipeline.py", "topics.py", "wanted.py"),
}


def new(*words: object) -> int:
    return cli.main(["new", *map(str, words)])


def told(folder: Path, code: str, **variables: str) -> str:
    """What Python prints in a project."""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    return ran.stdout if ran.returncode == 0 else ran.stderr.splitlines()[-1]


def test_text_of_any_kind_is_toml_and_a_name_of_digits_is_text_in_yaml(tmp_path):
    odd = "s3a://ü/\U0001f600\x7f"
    words = ("--production-checkpoint", odd, "--production-servers", odd, "--dev-servers", odd)
    assert new("tumbling", tmp_path / "2026", *words) == 0
    code = "import job; print(ascii(job.config('production', 'dev', 'job')))"
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    found = ast.literal_eval(told(tmp_path / "2026", code, **ascii_only))
    assert found["bootstrap_servers"] == odd
    assert found["job_name"] == "2026"
    production = "import job; print(ascii(job.config('production')))"
    found = ast.literal_eval(told(tmp_path / "2026", production))
    assert found == {"bootstrap_servers": odd, "checkpoint": odd}
    assert '\nname: "2026"\n' in (tmp_path / "2026" / "spark-pipeline.yml").read_text()


@pytest.mark.parametrize("template", project.questions())
def test_each_template_has_all_its_files_and_no_word_is_left_open(template, tmp_path):
    assert new(template, tmp_path / "my-job") == 0
    made = {path.name: path.read_text() for path in (tmp_path / "my-job").iterdir()}
    flow = set() if template in NO_FLOW else FLOW
    assert set(made) == FILES | flow | MORE.get(template, set())
    for name, text in made.items():
        if name.endswith(".py"):
            compile(text, name, "exec")
            assert text == next(
                one.read_text()
                for folder in reversed(project.folders(template))
                if (one := project.TEMPLATES / folder / name).exists()
            )
        else:
            assert KNOWN.issuperset(OPEN.findall(text)), name
    assert project.questions()[template] in made["README.md"]


def test_the_list_has_a_line_for_each(capsys):
    with pytest.raises(SystemExit) as ended:
        new("--list")
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(project.questions())
    assert all(line.endswith("?") for line in lines[1:])


def test_an_unknown_template_is_told_with_the_nearest(tmp_path, capsys):
    assert new("sesions", tmp_path / "a") == 1
    assert "no template 'sesions'. Did you mean 'sessions'?" in capsys.readouterr().err
    assert new("..", tmp_path / "a") == 1
    assert new("skeleton", tmp_path / "a") == 1
    assert not (tmp_path / "a").exists()


def test_what_is_there_is_not_touched(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "pipeline.py").write_text("mine")
    assert new("copy", tmp_path / "empty") == 0
    for name in ("file", "full", "empty"):
        assert new("copy", tmp_path / name) == 1
        assert f"{name}' is there already" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == (tmp_path / "full" / "pipeline.py").read_text()
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["pipeline.py"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert new("copy", tmp_path / "file" / "below") == 1
    assert "cannot be written: Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_names_that_no_topic_can_have_are_refused_with_one_that_will_do(name, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    code = new("copy", "--name", name, tmp_path / "project")
    said = capsys.readouterr()
    if name in ("my-job", "my.job", "class", "job_2", "json"):
        assert code == 0
        config = told(tmp_path / "project", "import job; print(job.config('job'))")
        assert f"'job_name': '{name}'" in config
        assert f"'source': '{name}-payments'" in config
    else:
        assert code == 1
        assert f"'{name}' cannot be the name of a job" in said.err
        assert {"a b": "--name a-b.", ".hidden": "--name hidden."}.get(
            name, "Give another name."
        ) in said.err
        assert not (tmp_path / "project").exists()


def test_the_folders_own_name_is_the_jobs(tmp_path, monkeypatch, capsys):
    (tmp_path / "my-job").mkdir()
    monkeypatch.chdir(tmp_path / "my-job")
    assert new("copy", ".") == 0
    assert "for job 'my-job'" in capsys.readouterr().out
    assert new("copy", "sub/other job", "--name", "other") == 0
    assert told(Path("sub/other job"), "import job; print(job.config('job')['sink'])") == (
        "other-small\n"
    )


PRODUCTION = "import job; print(sorted(set(job.config('production').items())))"


def test_production_is_as_it_was_said(tmp_path):
    odd = 's3a://b/"quoted"\\#, '
    words = (
        "--production-servers",
        "k-1:9092,k-2:9092",
        "--production-checkpoint",
        f"{odd}${{TENANT}}",
    )
    assert new("copy", tmp_path / "my-job", *words) == 0
    wanted = [("bootstrap_servers", "k-1:9092,k-2:9092"), ("checkpoint", f"{odd}me")]
    assert told(tmp_path / "my-job", PRODUCTION, TENANT="me") == f"{wanted}\n"
    assert told(tmp_path / "my-job", PRODUCTION) == (
        "config.toml: 'checkpoint' names 'TENANT', and the environment has no such variable."
    )


def test_a_terminal_is_asked_for_what_has_no_good_answer_only(tmp_path, monkeypatch):
    class Terminal:
        def isatty(self):
            return True

        def write(self, _text):
            pass

        def flush(self):
            pass

    asked = []
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or " k-1:9092 ")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert new("copy", tmp_path / "full") == 1
    assert not asked, "for nothing"
    assert new("copy", tmp_path / "a", "--production-checkpoint", "s3a://b") == 0
    assert len(asked) == 1
    shown = (tmp_path / "a" / "config.toml").read_text()
    assert 'bootstrap_servers = "k-1:9092"\ncheckpoint = "s3a://b"' in shown


def test_without_a_terminal_nothing_is_asked_and_the_job_says_what_is_missing(tmp_path):
    assert new("copy", tmp_path / "my-job") == 0
    code = """
import job, streams, pipeline
streams.typed(pipeline.Settings, {**job.config("job", "production"), "large_cents": "1.5", "x": ""})
"""
    assert told(tmp_path / "my-job", code) == (
        "ValueError: The job's settings: 'bootstrap_servers' is missing; 'checkpoint' is missing; "
        "'large_cents' is '1.5', and must be a whole number; 'x' is unknown."
    )


def test_a_backfill_takes_no_offset_that_is_another_one_each_time(tmp_path):
    assert new("backfill", tmp_path / "my-job") == 0
    code = """
import job, pipeline, streams
given = {"bootstrap_servers": "k:1", "checkpoint": "c", **job.config("job")}
settings = streams.typed(pipeline.Settings, given)
print(pipeline._offsets(settings, '{"0": 0, "1": %d}'))
"""
    assert told(tmp_path / "my-job", code % 7) == '{"my-job-orders": {"0": 0, "1": 7}}\n'
    assert "take offsets from 0 on, not" in told(tmp_path / "my-job", code % -1)


@pytest.mark.parametrize("template", ["cogroup", "late", "sliding", "top-n", "tumbling"])
def test_the_models_windows_begin_where_sparks_do(template, tmp_path):
    """At whole windows since 1970, whatever their length."""
    assert new(template, tmp_path / "my-job") == 0
    code = """
import re, job, pipeline, streams
from datetime import datetime
from generate import records
from model import expected
from rows import START
given = {"bootstrap_servers": "k:1", "checkpoint": "c", **job.config("job")}
given |= {"window_minutes": "77", "slide_minutes": "77"} if "slide_minutes" in given else {
    "window_minutes": "77"}
rows = expected(records(2000, START), streams.typed(pipeline.Settings, given))["sink"]
found = {re.search(r"20\\d\\d-.{11}", str(row))[0] for row in rows}
print([datetime.fromisoformat(one + "+00:00").timestamp() % (77 * 60) for one in found])
"""
    begins = json.loads(told(tmp_path / "my-job", code))
    assert begins
    assert not any(begins)


def test_settings_of_the_client_go_on_to_kafka(tmp_path):
    assert new("copy", tmp_path / "my-job", "--production-servers", "k:1") == 0
    path = tmp_path / "my-job" / "config.toml"
    more = 'kafka.security.protocol = "SASL_SSL"\nkafka.sasl.password = "${SECRET}"\n'
    path.write_text(path.read_text().replace("[production]\n", f"[production]\n{more}"))
    code = """
import json, job, streams, pipeline
given = {"checkpoint": "c", **job.config("job", "production")}
settings = streams.typed(pipeline.Settings, given)
print(json.dumps(streams.sink(settings)))
"""
    assert json.loads(told(tmp_path / "my-job", code, SECRET="p$w")) == {
        "kafka.bootstrap.servers": "k:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.password": "p$w",
        "jobName": "my-job",
        "snapshots": "true",
        "value.format": "json",
    }
