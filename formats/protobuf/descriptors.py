"""Reads a descriptor set and finds a message in it. No I/O but `of_file`, on the driver.

A schema travels as text: the base64 of the files that the message needs, and no others.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message

from ...core.errors import cut

_HOW = "protoc --include_imports --descriptor_set_out=FILE"
_SHOWN = 8  # names in a sentence


class Unusable(Exception):
    """Why a descriptor set cannot be used, as the end of a sentence."""


def of_file(path: str) -> str:
    """The base64 of a file of the driver's machine. Raises Unusable."""
    try:
        return base64.b64encode(Path(path).read_bytes()).decode()
    except OSError as error:
        raise Unusable(
            f"cannot be read on the driver's machine: {type(error).__name__}: {error.strerror}"
        ) from None


def pruned(schema: str, name: str) -> str:
    """The same with only what message `name` needs. Raises Unusable if it is none."""
    files = {file.name: file for file in _files(schema)}
    homes = {full: file.name for file in files.values() for full in _names(file)}
    if name not in homes:
        raise Unusable(f"has no message '{name}'; {_offered(name, list(homes))}")
    made = descriptor_pb2.FileDescriptorSet()
    needed: dict[str, None] = {}
    _need(homes[name], files, needed, ())
    made.file.extend(files[file] for file in needed)
    text = base64.b64encode(made.SerializeToString(deterministic=True)).decode()
    try:
        descriptor(text, name)
    except Exception as error:  # what the library raises differs with how it was built
        raise Unusable(f"does not hold together: {cut(error)}") from None
    return text


def _files(schema: str) -> Iterator[Any]:
    try:
        data = base64.b64decode("".join(schema.split()), validate=True)
    except (binascii.Error, ValueError):
        raise Unusable(f"is not the base64 of a descriptor set ({_HOW})") from None
    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(data)
    except (message.DecodeError, RecursionError):
        raise Unusable(f"is no descriptor set ({_HOW})") from None
    if not found.file or not all(file.name for file in found.file):
        raise Unusable(f"is no descriptor set: no file is in it ({_HOW})")
    yield from found.file


def _need(
    name: str, files: Mapping[str, Any], needed: dict[str, None], inside: tuple[str, ...]
) -> None:
    """Adds a file behind what it imports."""
    if name in needed:
        return
    if name in inside:
        raise Unusable(f"has files that import each other: {cut(' -> '.join((*inside, name)))}")
    if name not in files:
        raise Unusable(f"lacks '{name}', which '{inside[-1]}' imports: make it with {_HOW}")
    for dependency in files[name].dependency:
        _need(dependency, files, needed, (*inside, name))
    needed[name] = None


def _names(file: Any) -> Iterator[str]:
    yield from (name for name, _ in named(file))


def named(file: Any, maps: bool = True) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The full names of a FileDescriptorProto's messages, each with its way: which one in the file,
    which one in that, ... `maps`: whether a map, to the file a message inside, is counted."""
    prefix = f"{file.package}." if file.package else ""
    yield from _named(file.message_type, prefix, (), maps)


def _named(
    messages: Iterable[Any], prefix: str, way: tuple[int, ...], maps: bool
) -> Iterator[tuple[str, tuple[int, ...]]]:
    number = 0
    for one in messages:
        full, is_map = f"{prefix}{one.name}", one.options.map_entry
        if not is_map:
            yield full, (*way, number)
            yield from _named(one.nested_type, f"{full}.", (*way, number), maps)
        number += 1 if maps or not is_map else 0


def _offered(name: str, names: list[str]) -> str:
    own = [one for one in names if not one.startswith("google.protobuf.")]
    ends = [one for one in own if one.rpartition(".")[2] == name.rpartition(".")[2]]
    close = ends or difflib.get_close_matches(name, own, n=1, cutoff=0.7)
    if close:
        return f"did you mean '{close[0]}'?"
    more = ", ..." if len(own) > _SHOWN else ""
    return f"it has {', '.join(sorted(own)[:_SHOWN]) or 'none'}{more}"


@functools.lru_cache(maxsize=64)
def descriptor(schema: str, name: str) -> Any:
    """The message's descriptor, of a text that was `pruned`. In a pool of its own: two queries
    may have different messages of one name."""
    pool = descriptor_pool.DescriptorPool()
    for file in files(schema):
        pool.Add(file)
    return pool.FindMessageTypeByName(name)


def files(schema: str) -> tuple[Any, ...]:
    """The files of a text that was `pruned`: each behind what it imports, the message's last."""
    return tuple(_files(schema))
