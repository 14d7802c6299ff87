"""Confluent's wire format for Protobuf, and what a registry's schema can be held to.

Behind the schema's number stands which of its messages the value is: a list of numbers, the way
from the file into nested messages. The registry's schema is a file's descriptor in base64, which is
compared field by field, or a `.proto` text, of which only the messages' names are read: for more it
takes Protobuf's compiler.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from ..shared.registry import PROTOBUF, Reference, UnknownSchema
from .descriptors import descriptor, files, named

if TYPE_CHECKING:
    from ..shared.registry import Registry

_Place: TypeAlias = "tuple[str, tuple[int, ...]]"  # a message's full name and its way
_WAY_MAX = 100  # deeper than the library reads messages
_BUILT_IN = "google/protobuf/"  # every registry has these
# Comments and texts, in which anything may stand; then what makes the outline of a file.
_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|(?P<text>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<word>[A-Za-z_][\w.]*)|(?P<sign>[{};])|.",
    re.DOTALL,
)


def unpack(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """The message's way and its bytes. Raises ValueError."""
    count, at = _varint(data, 0)
    if not 0 <= count <= _WAY_MAX:
        raise ValueError("it does not say which message of its schema it is")
    if count == 0:
        return (0,), data[at:]
    way = []
    for _ in range(count):
        one, at = _varint(data, at)
        way.append(one)
    return tuple(way), data[at:]


def pack(way: tuple[int, ...]) -> bytes:
    """The way back. The first message of all is a single zero."""
    if way == (0,):
        return b"\0"
    return b"".join(map(_packed, (len(way), *way)))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag, and where it ends."""
    found = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
    raise ValueError("it does not say which message of its schema it is")


def _packed(number: int) -> bytes:
    left, made = number << 1, bytearray()
    while left >= 0x80:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left])


# --- what is registered -------------------------------------------------------------------------


def ways(registered: str, number: int, schema: str, name: str) -> frozenset[tuple[int, ...]]:
    """What stands before values of message `name` that were written with the registered schema.
    Clients differ in whether a map, which is a message inside, is counted: either is taken. Raises
    UnknownSchema if the schema does not have the message, or another one."""
    file = _as_file(registered)
    if file is not None and (problem := _differs(file, descriptor(schema, name), frozenset())):
        raise UnknownSchema(f"schema {number} is not that of the options: {problem}")
    counted, uncounted = (
        dict(_outline(registered, maps) if file is None else named(file, maps))
        for maps in (True, False)
    )
    if name not in counted:
        raise UnknownSchema(f"schema {number} of the registry has no message '{name}'")
    return frozenset({counted[name], uncounted[name]})


def _as_file(registered: str) -> Any:
    try:
        data = base64.b64decode("".join(registered.split()), validate=True)
        file = descriptor_pb2.FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, DecodeError):
        return None
    return file


@functools.cache
def _wider() -> frozenset[tuple[int, int]]:
    """Types that may be read as another one: every value is the same, or is refused."""
    f = descriptor_pb2.FieldDescriptorProto
    whole = (f.TYPE_INT32, f.TYPE_INT64, f.TYPE_UINT32, f.TYPE_UINT64)
    return frozenset(
        {
            (f.TYPE_INT32, f.TYPE_INT64),
            (f.TYPE_UINT32, f.TYPE_INT64),
            (f.TYPE_UINT32, f.TYPE_UINT64),
            (f.TYPE_SINT32, f.TYPE_SINT64),
            (f.TYPE_ENUM, f.TYPE_INT32),
            (f.TYPE_ENUM, f.TYPE_INT64),
            (f.TYPE_STRING, f.TYPE_BYTES),
            *((f.TYPE_BOOL, kind) for kind in whole),
        }
    )


def _differs(file: Any, wanted: Any, seen: frozenset[str]) -> str | None:
    """Where the file has a field of the message as another type. Enums, and messages of other
    files, are not looked at: their names are compared."""
    name = wanted.full_name
    messages = dict(_messages(file))
    if name not in messages or name in seen:
        return None
    ours = {field.number: field for field in wanted.fields}
    for theirs in messages[name].field:
        field = ours.get(theirs.number)
        if field is None:
            continue
        if theirs.type != field.type and (theirs.type, field.type) not in _wider():
            return (
                f"field {field.number} of '{name}' is {_word(theirs.type)} there, and "
                f"{_word(field.type)} here"
            )
        if theirs.label == theirs.LABEL_REPEATED and not field.is_repeated:
            return f"field {field.number} of '{name}' is repeated there, and not here"
        kind = field.message_type or field.enum_type
        if kind is None:
            continue
        type_name = theirs.type_name.removeprefix(".")
        if type_name != kind.full_name:
            return f"field {field.number} of '{name}' is a '{type_name}'"
        if problem := _differs(file, kind, seen | {name}):
            return problem
    return None


def _word(kind: int) -> str:
    name = descriptor_pb2.FieldDescriptorProto.Type.Name(kind)
    return str(name).removeprefix("TYPE_").lower()


def _messages(file: Any) -> Iterator[tuple[str, Any]]:
    prefix = f"{file.package}." if file.package else ""
    left = [(f"{prefix}{one.name}", one) for one in file.message_type]
    while left:
        full, one = left.pop()
        yield full, one
        left += [(f"{full}.{inner.name}", inner) for inner in one.nested_type]


def _outline(text: str, maps: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The messages of a `.proto` text, with their ways."""
    package = ""
    words: list[str] = []  # of the statement so far
    inside: list[_Place | None] = []  # the messages around; None: blocks that are none
    counts: dict[tuple[int, ...], int] = {}
    for token in _TOKEN.finditer(text):
        around: _Place | None = inside[-1] if inside else (package, ())
        if word := token["word"]:
            words.append(word)
        elif token["sign"] == ";":
            if words[:1] == ["package"] and len(words) > 1 and not inside:
                package = words[1]
            words = []
        elif token["sign"] == "{":
            opens = None
            if around is not None and _begins_message(words):
                opens = _next(around, words[-1], counts)
                if "message" in words[:2]:
                    yield opens
            inside.append(around if words[:1] == ["oneof"] else opens)
            words = []
        elif token["sign"] == "}":
            if inside:
                inside.pop()
            words = []
        elif token.group() == "<" and words == ["map"] and around is not None and maps:
            _next(around, "", counts)


def _begins_message(words: list[str]) -> bool:
    """`message A`, `export message A`, and groups, which are messages, too."""
    first = words[0] if words else ""
    named = "message" in words[:2] and first in ("message", "export", "local")
    return len(words) > 1 and (named or "group" in words[:2])


def _next(around: _Place, name: str, counts: dict[tuple[int, ...], int]) -> _Place:
    prefix, way = around
    number = counts.get(way, 0)
    counts[way] = number + 1
    return f"{prefix}.{name}" if prefix else name, (*way, number)


# --- registering --------------------------------------------------------------------------------


def head(schema: str, name: str) -> bytes:
    """What stands before a value's bytes, behind the schema's number."""
    return pack(dict(named(files(schema)[-1]))[name])


def number(known: Registry, subject: str, schema: str, register: bool, if_unknown: str) -> int:
    """The number under `subject` of the file that the message is in; what it imports is looked up,
    or registered, under the imports' names, as confluent-kafka does. Raises SourceError."""
    versions: dict[str, Reference] = {}
    *imported, own = files(schema)
    for file in imported:
        if file.name.startswith(_BUILT_IN):
            continue
        text, refers_to = _text(file), _references(file, versions)
        if register:
            known.register(file.name, text, PROTOBUF, refers_to)
        version = known.version(file.name, text, if_unknown, refers_to)
        versions[file.name] = (file.name, file.name, version)
    text, refers_to = _text(own), _references(own, versions)
    if register:
        return known.register(subject, text, PROTOBUF, refers_to)
    return known.number(subject, text, if_unknown, PROTOBUF, refers_to)


def _text(file: Any) -> str:
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def _references(file: Any, versions: Mapping[str, Reference]) -> list[Reference]:
    return [versions[name] for name in file.dependency if name in versions]
