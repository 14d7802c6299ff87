"""`eo-kafka new`: what it writes, what it refuses, and the settings of a project."""

from __future__ import annotations

import ast
import errno
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


@pytest.mark.parametrize("place", ["there", "new/below"])
def test_on_a_full_disk_nothing_is_left_that_is_in_the_way_of_the_next_try(
    place, tmp_path, monkeypatch, capsys
):
    (tmp_path / "there").mkdir()
    before, write = [*tmp_path.rglob("*")], Path.write_text

    def full(path: Path, text: str, **how: str) -> int:
        if path.name != "rows.py":
            return write(path, text, **how)
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        assert new("copy", tmp_path / place) == 1
    assert "cannot be written: No space left on device" in capsys.readouterr().err
    assert [*tmp_path.rglob("*")] == before
    assert new("copy", tmp_path / place) == 0


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


def test_the_first_steps_are_true_of_the_kafka_that_was_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    at = "--bootstrap-servers localhost:19492`"
    assert new("backfill", "a b", "--name", "x", "--dev-servers", "localhost:19492") == 0
    readme = Path("a b/README.md").read_text()
    for told in (capsys.readouterr().out, readme):
        assert "\neo-kafka broker --port 19492 " in told.replace("  eo-kafka", "eo-kafka")
    assert f"--at 2026-11-24T09:30:00Z {at}" in readme
    assert new("copy", "it's", "--name", "y", "--dev-servers", "kafka-1:9092,kafka-2:9092") == 0
    said = capsys.readouterr().out
    assert "cd 'it'\"'\"'s'\n  python sample.py write" in said
    assert "eo-kafka broker" not in said + Path("it's/README.md").read_text()


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


@pytest.mark.parametrize("ended", [EOFError, KeyboardInterrupt])
def test_a_terminal_is_asked_for_what_has_no_good_answer_only(tmp_path, monkeypatch, ended):
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
    with monkeypatch.context() as patch:
        patch.setattr("builtins.input", lambda _: (_ for _ in ()).throw(ended))
        assert new("copy", tmp_path / "a") == 1
    assert not (tmp_path / "a").exists()
    assert new("copy", tmp_path / "a", "--production-checkpoint", "s3a://b") == 0
    assert len(asked) == 1
    shown = (tmp_path / "a" / "config.toml").read_text()
    assert 'bootstrap_servers = "k-1:9092"\ncheckpoint = "s3a://b"' in shown


def test_without_a_terminal_nothing_is_asked_and_the_job_says_what_is_missing(tmp_path):
    assert new("copy", tmp_path / "my-job") == 0
    code = """
import job, streams, pipeline
given = {**job.config("job", "production"), "large_cents": "1.5", "x": "", "sink": ""}
streams.typed(pipeline.Settings, given)
"""
    missing = "The job's settings: 'bootstrap_servers' is missing; "
    assert told(tmp_path / "my-job", code) == (
        f"ValueError: {missing}'sink' is empty; 'checkpoint' is missing; "
        "'large_cents' is '1.5', and must be a whole number; 'x' is unknown."
    )
    assert told(tmp_path / "my-job", "import job; job.settings('production')") == (
        f"config.toml, [job] and [production]: {missing}'checkpoint' is missing."
    )


@pytest.mark.parametrize(
    ("old", "new_", "said"),
    [
        ("[production]", "[prod]", "config.toml has no section [production]."),
        ("[production]", "[production", "config.toml: Expected "),
        (
            "[production]",
            "[production]\nsink = ['a', 'b']",
            "config.toml: 'sink' must be text, as ",
        ),
    ],
)
def test_what_is_wrong_in_the_settings_is_said_of_the_file(old, new_, said, tmp_path):
    assert new("copy", tmp_path / "my-job") == 0
    config = tmp_path / "my-job" / "config.toml"
    config.write_text(config.read_text().replace(old, new_))
    assert told(tmp_path / "my-job", "import job; job.settings('production')").startswith(said)


def test_a_checkpoint_is_in_the_projects_folder_unless_it_says_where_it_is(tmp_path):
    assert new("copy", tmp_path / "my-job") == 0
    config = tmp_path / "my-job" / "config.toml"
    code = "import job; print(job.config('dev')['checkpoint'])"
    for given, found in (
        ("checkpoints/dev", f"{tmp_path}/my-job/checkpoints/dev"),
        ("/data/a b", "/data/a b"),
        ("s3a://bucket/a", "s3a://bucket/a"),
        ("file:/data/a", "file:/data/a"),
    ):
        text = re.sub("(?m)^checkpoint = .*$", f'checkpoint = "{given}"', config.read_text())
        config.write_text(text)
        assert told(tmp_path, f"import sys; sys.path[:0] = ['my-job']\n{code}") == f"{found}\n"


def test_a_session_without_a_gap_would_lose_each_view(tmp_path):
    assert new("sessions", tmp_path / "my-job") == 0
    code = """
import job, streams, pipeline
given = {**job.config("job", "dev"), "gap_minutes": "0"}
streams.typed(pipeline.Settings, given)
"""
    assert "'gap_minutes' must be 1 or more." in told(tmp_path / "my-job", code)


@pytest.mark.parametrize("name", ["a b", "100%", "a#b", "[1]"])
def test_a_flow_is_refused_where_spark_would_keep_its_checkpoint_elsewhere(name, tmp_path):
    assert new("copy", tmp_path / name, "--name", "x") == 0
    assert told(tmp_path / name, "import flow") == (
        "spark-pipeline.yml: Spark would keep the checkpoint in another folder than "
        f"file://{tmp_path}/{name}/checkpoints/flow: it escapes blanks and signs such as '%' and "
        "'#', and takes that for the name. Give 'storage' a path of letters, digits, '-', '_' and "
        "'.', or move the project to one."
    )


def test_letters_of_any_kind_stand_in_a_flows_storage_as_they_are(tmp_path):
    assert new("copy", tmp_path / "für-数", "--name", "x") == 0
    spec = (tmp_path / "für-数" / "spark-pipeline.yml").read_text()
    assert f'\nstorage: "file://{tmp_path}/für-数/checkpoints/flow"    #' in spec
    assert "storage" not in told(tmp_path / "für-数", "import flow")


def test_a_backfill_takes_no_offset_that_is_another_one_each_time(tmp_path):
    assert new("backfill", tmp_path / "my-job") == 0
    code = """
import job, pipeline, streams
given = {"bootstrap_servers": "k:1", "checkpoint": "c", **job.config("job")}
settings = streams.typed(pipeline.Settings, given)
print(pipeline._offsets(settings, %r))
"""
    given = '{"0": 0, "1": 7}'
    assert told(tmp_path / "my-job", code % given) == f'{{"my-job-orders": {given}}}\n'
    for wrong in ('{"0": -1}', '{"a": 1}', '{"0": 1.5}', '{"0": "2"}', "{}", "200", '{"0": 1'):
        said = told(tmp_path / "my-job", code % wrong)
        assert f"from 0 on, of partitions: '{{\"0\": 200}}', not '{wrong}'." in said


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
