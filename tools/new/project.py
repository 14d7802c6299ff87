"""Makes a project of a template: the template's own files, and the skeleton that all share."""

from __future__ import annotations

import ast
import difflib
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from string import Template

from ...core.errors import EoKafkaError

TEMPLATES = Path(__file__).parents[2] / "templates"
DEV_SERVERS = "localhost:9092"
_SKELETON = "skeleton"
_STEPS = "steps.txt"
_BASE = "base.txt"  # names folders whose files this template has, too
_PARTS = ("settings.toml", "picture.txt", "limits.md", _STEPS, _BASE)  # go into other files
_RENDERED = (".toml", ".md", ".yml", "")  # Python is copied as it stands
_DOTTED = {"gitignore": ".gitignore"}
_LOCAL = re.compile(r"(?:localhost|127\.0\.0\.1):(\d+)")  # Kafka that `eo-kafka broker` can be
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # topics are named after it
_EXAMPLES = {
    "bootstrap_servers": "kafka-1:9092,kafka-2:9092,kafka-3:9092",
    "checkpoint": "s3a://bucket/checkpoints/$name",
}


def questions() -> dict[str, str]:
    """Each template, and the question that it answers."""
    paths = sorted(TEMPLATES.glob("*/pipeline.py"))
    return {path.parent.name: _docstring(path)[0] for path in paths}


def about(template: str) -> str:
    """What more there is to say of it."""
    return _docstring(TEMPLATES / template / "pipeline.py")[1]


def steps(template: str, dev_servers: str = DEV_SERVERS) -> list[str]:
    """How a project is tried: the commands, one a line, with comments."""
    path = TEMPLATES / template / _STEPS
    path = path if path.exists() else TEMPLATES / _SKELETON / _STEPS
    first, *others = path.read_text(encoding="utf-8").splitlines()
    if not (local := _LOCAL.fullmatch(dev_servers)):
        return others  # that Kafka is somebody else's
    return [first.replace(" 9092 ", f" {local[1]:<5}"), *others]


def checked(template: str) -> str:
    """The template of this name. Raises EoKafkaError, which names the nearest."""
    known = questions()
    if template not in known:
        (nearest,) = difflib.get_close_matches(template, known, 1, cutoff=0)
        raise EoKafkaError(
            f"There is no template '{template}'. Did you mean '{nearest}'? 'eo-kafka new --list' "
            "names all."
        )
    return template


def make(
    template: str,
    folder: Path,
    name: str | None,
    production: Mapping[str, str],
    dev_servers: str = DEV_SERVERS,
) -> str:
    """Write the project; its job's name.

    Args:
        template: Its name.
        folder: Where to; it may be there if nothing is in it.
        name: The job's; without one the folder's.
        production: Of section production of config.toml; what is missing is left to be filled in.
        dev_servers: Kafka in section dev.

    Raises:
        EoKafkaError: The template, the name or the folder will not do. Nothing was written.
    """
    checked(template)
    name = check_place(folder, name)
    made = files(template, name, production, dev_servers, folder)
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in made.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        _take_back([folder / file for file in made], new)
        raise EoKafkaError(f"'{folder}' cannot be written: {error.strerror}.") from None
    return name


def _take_back(files: Iterable[Path], folders: Iterable[Path]) -> None:
    """Remove what was made of a project, also the folders that were not there: half of one would
    be in the way of the next try."""
    for file in files:
        with suppress(OSError):
            file.unlink()
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def check_place(folder: Path, name: str | None) -> str:
    """The job's name: the one that was given, or the folder's. Raises EoKafkaError where that or
    the folder will not do."""
    found = _job_name(folder, name)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise EoKafkaError(
            f"'{folder}' is there already, and is not an empty folder. Nothing was written: name "
            "another one."
        )
    return found


def files(
    template: str,
    name: str,
    production: Mapping[str, str],
    dev_servers: str,
    folder: Path,
) -> dict[str, str]:
    """What a project consists of: names of files and what is in them."""
    found = {
        path.name: path.read_text(encoding="utf-8")
        for folder in folders(template)
        for path in sorted((TEMPLATES / folder).iterdir())
        if path.is_file()
    }
    words = {
        "name": name,
        "template": template,
        "question": questions()[template],
        "about": about(template),
        "dev_servers": _quoted(dev_servers),
        "servers": shlex.quote(dev_servers),
        "production": _section(production, name),
        # Spark takes no other than an absolute one, with its scheme, and nothing escaped in it
        "storage": _quoted(f"file://{folder.resolve()}/checkpoints/flow"),
    }
    parts = {part.partition(".")[0]: found.pop(part, "") for part in _PARTS}
    parts["steps"] = "\n".join(steps(template, dev_servers))
    words |= {part: Template(text).substitute(words).rstrip() for part, text in parts.items()}
    return {
        _DOTTED.get(file, file): Template(text).substitute(words)
        if Path(file).suffix in _RENDERED
        else text
        for file, text in found.items()
    }


def folders(template: str) -> list[str]:
    """Whose files a project has; one of a later folder takes the place of an earlier one's."""
    base = TEMPLATES / template / _BASE
    more = base.read_text(encoding="utf-8").split() if base.exists() else []
    return [_SKELETON, *more, template]


def _job_name(folder: Path, name: str | None) -> str:
    found = name or folder.resolve().name
    if not _NAME.fullmatch(found):
        better = re.sub(r"[^A-Za-z0-9._-]+", "-", found).strip("-._")[:100]
        advice = f": --name {better}" if _NAME.fullmatch(better) else ""
        raise EoKafkaError(
            f"'{found}' cannot be the name of a job, after which its topics are named: letters, "
            "digits, '.', '_' and '-' can be in it, 100 at most, and a letter or digit comes "
            f"first. Give another name{advice}."
        )
    return found


def _section(given: Mapping[str, str], name: str) -> str:
    """The lines of a section of config.toml; the missing ones as comments, with an example."""
    lines = []
    for key, example in _EXAMPLES.items():
        shown = _quoted(given.get(key) or Template(example).substitute(name=name))
        lines.append(f"{key} = {shown}" if given.get(key) else f"# {key} = {shown}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """As TOML has it: JSON's escapes, but none in pairs."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _docstring(path: Path) -> tuple[str, str]:
    """A module's first line, and the rest as one paragraph."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first, _, rest = text.partition("\n")
    return first, " ".join(rest.split())
