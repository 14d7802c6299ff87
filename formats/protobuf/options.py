"""Checks the options of one Protobuf column, and reads its descriptor set. Driver only."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from ...core.options import OptionReader


def missing() -> str | None:
    """What is not installed here, as a sentence; None if it is."""
    try:
        if find_spec("google.protobuf") is not None:
            return None
    except ModuleNotFoundError:  # there is no `google` either
        pass
    return (
        "Protobuf needs the library protobuf, which is not installed: "
        "pip install 'eo-kafka[protobuf]', on this machine and where the tasks run."
    )


_READ = "base64:"  # a file's place in the options, once it was read


def with_files(given: Mapping[str, str]) -> dict[str, str]:
    """The options `key.schema.file` and `value.schema.file`, what is in the file in place of its
    name. Those that are wrong are left for `settled` to tell."""
    found: dict[str, str] = {}
    for name in ("key", "value"):
        file, message = (given.get(f"{name}.{option}") for option in ("schema.file", "message"))
        if file and message and not file.startswith(_READ) and not missing():
            from . import descriptors

            try:
                text = descriptors.pruned(descriptors.of_file(file), message.strip("."))
            except descriptors.Unusable:
                continue
            found[f"{name}.schema.file"] = f"{_READ}{text}"
    return found


def settled(
    reader: OptionReader, name: str, schema: str | None, file: str | None, message: str | None
) -> str | None:
    """The descriptor set of column `name` in base64, with what `message` needs; None after a
    problem was told. A registry has no descriptor set to take instead: it may hold a `.proto` text,
    which it takes Protobuf's compiler to read."""
    if (schema is None) == (file is None):
        reader.problem(
            f"Option '{name}.format' is 'protobuf', which needs one of '{name}.schema.file' (a "
            f"descriptor set: protoc --include_imports --descriptor_set_out=FILE) and "
            f"'{name}.schema' (the same in base64), also with a schema registry."
        )
    if message is None:
        reader.problem(
            f"Option '{name}.format' is 'protobuf', which needs '{name}.message': which message of "
            f"the descriptor set the {name}s are, such as 'shop.Order'."
        )
    if absent := missing():
        reader.problem(absent)
    if absent or message is None or (schema is None) == (file is None):
        return None
    return _read(reader, name, schema, file, message)


def _read(
    reader: OptionReader, name: str, schema: str | None, file: str | None, message: str
) -> str | None:
    from ...core.errors import OptionsError
    from . import descriptors
    from .types import spark_type

    option = f"Option '{name}.schema'"
    if file is not None and file.startswith(_READ):
        schema = file.removeprefix(_READ)
    elif file is not None:
        option = f"Option '{name}.schema.file' ({file})"
    try:
        found = descriptors.pruned(schema or descriptors.of_file(str(file)), message)
        spark_type(descriptors.descriptor(found, message))
    except descriptors.Unusable as problem:
        reader.problem(f"{option} {problem}.")
    except OptionsError as error:
        for sentence in error.problems:
            reader.problem(sentence)
    else:
        return found
    return None
