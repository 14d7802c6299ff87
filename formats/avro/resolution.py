"""Which type of a wanted schema each part of a written one becomes: decided here, not by fastavro.

fastavro takes the first type that a value could become, knows named types by the last part of their
names whatever they are, and loses a definition that is used for the first time in a dropped field.
So it gets two schemas that leave it no choice: alike but for fields that are dropped or not
written, and every named type with a name of its own in each place. What a value becomes in them,
its mark says (`marks.py`). No I/O.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import fastavro

from .marks import default, marked, refused
from .program import PROMOTED
from .types import full_name, is_one_column

_WHOLE = "eo_kafka"
_RECORDS, _NAMED = ("record", "error"), ("record", "error", "enum", "fixed")
_Pair: TypeAlias = "tuple[Any, Any]"  # of what fastavro reads, and what it gives


def for_reading(written: Any, wanted: Any = None) -> _Pair:
    """Both (parsed) for fastavro. `wanted` must end somewhere, if there is one."""
    resolution = _Resolution(written, wanted)
    source, target = resolution.pair(written, written if wanted is None else wanted)
    found = _wrapped(source, dict(resolution.written))  # a dropped field names types as they were
    return found, None if wanted is None else _wrapped(target, {})


def _wrapped(schema: Any, named: dict[str, Any]) -> Any:
    """As the only field of a record, whose bytes are the same. fastavro parses any other type again
    for each value."""
    fields = [{"name": "value", "type": schema}]
    return fastavro.parse_schema({"type": "record", "name": _WHOLE, "fields": fields}, named)


def unwrapped(read: Any) -> Any:
    """What was read by one of the two."""
    return read["value"]


class _Resolution:
    """Walks over what was written and what is wanted, side by side."""

    def __init__(self, written: Any, wanted: Any) -> None:
        self._is_same = wanted in (None, written)  # then an alias means nothing
        self.written = {full_name(one): one for one in _definitions(written)}
        self._wanted = {full_name(one): one for one in _definitions(wanted or written)}
        self._names = (f"{_WHOLE}_{number}" for number in itertools.count())

    def pair(self, written: Any, wanted: Any, is_among: bool = False) -> _Pair:
        """`is_among`: others of its union, one of which fastavro may take it for."""
        written, wanted = _defined(written, self.written), _defined(wanted, self._wanted)
        if isinstance(written, list):
            is_among = sum(branch != "null" for branch in written) > 1
            pairs = [self.pair(branch, wanted, is_among) for branch in written]
            return [one for one, _ in pairs], [one for _, one in pairs]
        member, into = self._member(written, wanted) if isinstance(wanted, list) else (None, wanted)
        if into is None or not self._is_for(written, into):
            return self._refused(written, f"{_words(written)} is not {_words(wanted)}")
        if "fields" in written:
            return self._record(written, into, member)
        inner = {"array": "items", "map": "values"}.get(written["type"])
        if inner:
            pair = self.pair(written[inner], into[inner])
            source, target = ({"type": written["type"], inner: one} for one in pair)
            return marked(source, written, into, member), target
        name = {"name": next(self._names)} if "name" in written else {}
        found = marked({**written, **name}, written, into, member, is_among)
        return found, found

    def _member(self, written: Any, branches: Sequence[Any]) -> tuple[int | None, Any]:
        """The type of a union that it becomes, and its number if the union is a struct."""
        types = [_defined(branch, self._wanted) for branch in branches]
        same = [one for one in types if _kind(one) == _kind(written)]
        if written["type"] in _NAMED:  # by its name; by the end of it only if that is of one type
            exact = [one for one in same if full_name(written) in self._names_of(one)]
            fits = exact or [one for one in same if self._is_for(written, one)]
            found = fits[0] if len(fits) == 1 else None
        else:
            wider = [one for one in types if (written["type"], one["type"]) in PROMOTED]
            found = next(iter(same + wider), None)
        present = [n for n, branch in enumerate(branches) if branch != "null"]
        if is_one_column([branches[n] for n in present]):
            return None, found
        return next((i for i, n in enumerate(present) if types[n] is found), None), found

    def _is_for(self, written: Any, wanted: Any) -> bool:
        """Whether a value of one type may become one of the other, without a look at its parts."""
        if isinstance(wanted, list) or _kind(written) != _kind(wanted):
            return not isinstance(wanted, list) and (written["type"], wanted["type"]) in PROMOTED
        if written["type"] not in _NAMED:
            return True
        name, names = full_name(written), self._names_of(wanted)
        is_near = _last(name) in (_last(full_name(wanted)), *wanted.get("aliases", ()))
        if "fields" not in written and full_name(wanted) in self.written:
            is_near = False  # it has not moved there, where another one was
        return (name in names or is_near) and written.get("size") == wanted.get("size")

    def _names_of(self, wanted: Any) -> list[str]:
        name, aliases = full_name(wanted), [] if self._is_same else wanted.get("aliases", [])
        space = name.rpartition(".")[0]
        return [name] + [f"{space}.{one}" if space and "." not in one else one for one in aliases]

    def _record(self, written: Any, wanted: Any, member: int | None) -> _Pair:
        left = {one["name"]: one for one in wanted["fields"]}
        own = {one["name"] for one in written["fields"]}
        aliases = {} if self._is_same else {
            alias: name
            for name, one in left.items() if name not in own
            for alias in one.get("aliases", ())
        }  # fmt: skip
        source: list[Any] = []
        target: list[Any] = []
        for field in written["fields"]:
            name = aliases.get(field["name"], field["name"])
            if name in left:
                pair = self.pair(field["type"], left.pop(name)["type"])
                source.append({"name": name, "type": pair[0]})
                target.append({"name": name, "type": pair[1]})
            elif any(one["name"] == name for one in source):
                return self._refused(written, f"two fields of {_words(written)} are its '{name}'")
            else:
                source.append({"name": name, "type": _by_name(field["type"])})
        for name, field in left.items():
            if "default" not in field:
                reason = f"{_words(written)} has no field '{name}', which has no default"
                return self._refused(written, reason)
            value = default(field["type"], field["default"], self._wanted)
            # fastavro looks whether a default is of its type; of one that it knows by name not
            target.append({"name": name, "type": _WHOLE, "default": value})
        found = {"type": "record", "name": next(self._names)}
        made = marked({**found, "fields": source}, written, wanted, member)
        return made, {**found, "fields": target}

    def _refused(self, written: Any, reason: str) -> _Pair:
        """A record of the same bytes, which are dropped; told when there is a value."""
        found = {"type": "record", "name": next(self._names), "fields": []}
        fields = [{"name": "value", "type": _by_name(written)}]
        return refused({**found, "fields": fields}, reason), found


def _kind(schema: Any) -> str:
    return "record" if schema["type"] in _RECORDS else str(schema["type"])


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _definitions(schema: Any) -> Iterator[Any]:
    """Of the types that have a name."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _definitions(branch)
    elif isinstance(schema, Mapping):
        if "name" in schema:
            yield schema
        inner = [field["type"] for field in schema.get("fields", ())]
        for one in (*inner, schema.get("items"), schema.get("values"), schema["type"]):
            yield from _definitions(one)


def _defined(schema: Any, names: Mapping[str, Any]) -> Any:
    """A schema as a list or a mapping, by its definition if it is a name."""
    if isinstance(schema, str):
        return names.get(schema, {"type": schema})
    if isinstance(schema, list) or isinstance(schema["type"], str):
        return schema
    return _defined(schema["type"], names)


def _by_name(schema: Any) -> Any:
    """A schema that defines nothing."""
    if isinstance(schema, list):
        return [_by_name(branch) for branch in schema]
    if isinstance(schema, str) or "name" in schema:
        return schema if isinstance(schema, str) else full_name(schema)
    if not isinstance(schema["type"], str):
        return _by_name(schema["type"])
    inner = {name: _by_name(schema[name]) for name in ("items", "values") if name in schema}
    return {**schema, **inner}


def _words(schema: Any) -> str:
    if isinstance(schema, list):
        return f"one of {', '.join(_words(branch) for branch in schema)}"
    if isinstance(schema, Mapping) and "name" in schema:
        size = f" of {schema['size']} bytes" if "size" in schema else ""
        return f"{schema['type']} '{full_name(schema)}'{size}"
    return str(schema["type"] if isinstance(schema, Mapping) and len(schema) == 1 else schema)
