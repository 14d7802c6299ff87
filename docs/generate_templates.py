"""Writes docs/templates.md, and the picture of each template's result: `python
docs/generate_templates.py`, after `make setup`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from textwrap import indent
from types import ModuleType

from eo_kafka.tools.new import project

PAGE = Path(__file__).parent / "templates.md"
TEMPLATES = Path(__file__).parent.parent / "templates"
RECORDS = 400
ROWS = 6  # shown of each topic
HEAD = """# Templates

Is there a pipeline that does nearly what I need?

`eo-kafka new TEMPLATE FOLDER` writes a project that runs: the job, data to try it, a model that
computes the right output without Spark, and a test that kills the job and compares. It is yours:
change it, and run `pytest`. (This page is made by `python docs/generate_templates.py`; a test fails
when it is stale.)

```sh
eo-kafka new sessions my-job
eo-kafka new --list
```

Each picture is what a template makes of the first records of its own data: topic, key, value. Tests
write these projects with the installed command and run their own tests
(`test_a_template_passes_its_own_test`).
[What each file is, and how to run it](tools.md#eo-kafka-new).
"""


def page() -> str:
    """The whole text."""
    sections = [HEAD]
    for template, question in project.questions().items():
        about = project.about(template)
        sections.append(
            f"## {template}\n\n**{question}** {about}\n\n{indent(picture(template), ' ' * 4)}\n"
        )
    return "\n".join(sections)


def picture(template: str) -> str:
    """What the model says that the job makes of generate.py's first records."""
    with tempfile.TemporaryDirectory() as folder:
        project.make(template, Path(folder), template, {})
        names = "generate", "job", "model", "pipeline", "rows", "sample", "streams"
        with _imported(Path(folder), *names) as modules:
            generate, job, model, pipeline, rows, sample, streams = modules
            places = {"bootstrap_servers": "-", "checkpoint": "-"}
            settings = streams.typed(pipeline.Settings, {**job.config("job"), **places})
            made = generate.records(RECORDS, rows.START)
            return "\n".join(
                f"{topic}\n{sample.shown(found[:ROWS])}"
                for topic, found in model.expected(made, settings).items()
            )


@contextmanager
def _imported(folder: Path, *names: str) -> Iterator[list[ModuleType]]:
    """Modules of a project; the next one has others of the same names."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield [import_module(name) for name in names]
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if Path(getattr(sys.modules[name], "__file__", None) or "").parent == folder:
                del sys.modules[name]


def main() -> None:
    """Write all."""
    for template in project.questions():
        (TEMPLATES / template / "picture.txt").write_text(f"{picture(template)}\n")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
