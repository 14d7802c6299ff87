"""Confluent's wire format, and the schema registry behind its schema numbers.

A value is a zero byte, the schema's number (four bytes, big-endian), and the data. The client
is confluent-kafka's; it remembers what it was told, because a number never changes its meaning.
"""

from __future__ import annotations

import functools
import struct
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

from ...core.errors import OptionsError, ReadTimeout, SourceError
from ...core.patience import Wait, served
from .ranges import Ranges
from .registry_errors import is_denied, is_unknown, may_pass, not_taken, problem_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

Reference: TypeAlias = "tuple[str, str, int]"  # an import's name, its subject, which one of it

_HEAD = struct.Struct(">bI")
HEAD_SIZE = _HEAD.size
_MAGIC = 0
AVRO, PROTOBUF = "AVRO", "PROTOBUF"  # types of schemas
ANSWER_S = 10.0  # for one attempt; the client itself would wait for ever
_USER_INFO = "basic.auth.user.info"
_NUMBER_MAX = 2**31 - 1  # of any registry
_CONTEXT = ":."  # begins a subject that names one
_PAUSE_S = 1.0


def unpack(value: bytes) -> tuple[int, bytes]:
    """The schema's number and the bytes behind it. Raises ValueError."""
    if len(value) < _HEAD.size or value[0] != _MAGIC:
        raise ValueError("it does not begin with a zero byte and a schema's number")
    return int(_HEAD.unpack_from(value)[1]), value[_HEAD.size :]


def numbers(values: pa.Array) -> npt.NDArray[np.int64] | None:
    """The schema's number of each value, -1 where there is none; None if they are not binary."""
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_binary(values.type):
        return None
    where = Ranges(values)
    found = np.full(len(values), -1, np.int64)
    sizes = where.ends - where.starts
    rows = np.flatnonzero((sizes >= HEAD_SIZE) & np.asarray(values.is_valid()))
    rows = rows[where.data[where.starts[rows]] == _MAGIC]
    head = where.data[where.starts[rows, None] + np.arange(1, HEAD_SIZE)]
    found[rows] = np.ascontiguousarray(head).view(">u4")[:, 0]
    return found


def pack(number: int, data: bytes) -> bytes:
    """The way back."""
    return _HEAD.pack(_MAGIC, number) + data


class UnknownSchema(Exception):
    """A number that means no schema that can be used here: the fault of the value that has it."""


class Registry:
    """Asks a registry; pickled without its client. `settings` are those of confluent-kafka's
    SchemaRegistryClient: `url`, `basic.auth.user.info`, `ssl.ca.location`, ... Their values stay
    out of reprs and messages."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        if not settings.get("url", "").strip():
            raise OptionsError(["The schema registry's settings must hold its 'url'."])
        self._settings = _without_user(settings)
        self._timeout = _seconds(settings.get("timeout", ANSWER_S))
        self._known: Any = None
        # Avro's, by context and number; they go to the tasks, which need not ask then
        self._newest: dict[tuple[str | None, int], str] = {}
        _ = self._client  # which looks at its settings when it is made

    @property
    def url(self) -> str:
        """Where it is."""
        return self._settings["url"]

    def __repr__(self) -> str:
        return f"Registry({', '.join(sorted(self._settings))}: values hidden)"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_known": None}

    @property
    def _client(self) -> Any:
        if self._known is None:
            # Its memory of what is newest would never end; a number's meaning never changes.
            given = {"cache.latest.ttl.sec": 1, **self._settings, "timeout": self._timeout}
            try:
                from confluent_kafka.schema_registry import SchemaRegistryClient

                self._known = SchemaRegistryClient(given)
            except Exception as error:  # of many kinds
                raise OptionsError([not_taken(self._settings, error)]) from None
        return self._known

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registry) and other._settings == self._settings

    def __hash__(self) -> int:
        return hash(frozenset(self._settings.items()))

    def look(self) -> None:
        """Whether it is there. Raises SourceError, ReadTimeout: tasks would tell it too late."""

        def question() -> None:
            try:
                self._client.get_schema(0)  # which none has
            except Exception as error:  # who may not read this one may read others
                if not (is_unknown(error) or is_denied(error)):
                    raise

        self._asked("schema 0", question)

    def schema(self, number: int, kind: str = AVRO, subject: str | None = None) -> str:
        """The schema of this number, asked for once a process; in the context of `subject`, if that
        names one. Raises UnknownSchema if there is none of this kind, SourceError if the registry
        does not say, ReadTimeout if it is away for too long."""
        context = _in_context(subject)
        newest = self._newest.get((context, number)) if kind == AVRO else None
        return newest or _schema(self, number, kind, context)

    def _ask_schema(self, number: int, kind: str, context: str | None) -> str:
        if number > _NUMBER_MAX:  # registries answer it as they do a wrong path
            raise UnknownSchema(f"the registry has no schema {number}")

        def question() -> Any:
            # Confluent's registry has Protobuf as text, too; this is the form to compare with.
            form = {"fmt": "serialized"} if kind == PROTOBUF else {}
            if context is not None:
                form["subject_name"] = context
            try:
                found = self._client.get_schema(number, **form)
                if found.schema_str is None:
                    raise ValueError("somebody else's JSON")
                return found
            except Exception as error:
                if is_unknown(error):
                    raise UnknownSchema(f"the registry has no schema {number}") from None
                raise

        found = self._asked(f"schema {number}", question)
        if problem := _unusable(found, kind):
            raise UnknownSchema(f"schema {number} {problem}")
        return str(found.schema_str)

    def latest(self, subject: str, if_unknown: str) -> str:
        """The newest schema of a subject. `if_unknown`: a sentence, what to do if it has none."""
        found = self._asked(
            f"subject '{subject}'", lambda: self._client.get_latest_version(subject), if_unknown
        )
        if problem := _unusable(found.schema, AVRO):
            raise SourceError(f"The newest schema of subject '{subject}' {problem}.")
        text = str(found.schema.schema_str)
        self._newest[_in_context(subject), int(found.schema_id)] = text
        return text

    def register(
        self, subject: str, schema: str, kind: str = AVRO, refers_to: Sequence[Reference] = ()
    ) -> int:
        """The number of `schema` under `subject`, made if it is new. Raises SourceError, with the
        registry's words, if it may not follow those before it."""
        wanted = _wanted(schema, kind, refers_to)
        return int(
            self._asked(
                f"subject '{subject}'", lambda: self._client.register_schema(subject, wanted)
            )
        )

    def number(
        self,
        subject: str,
        schema: str,
        if_unknown: str,
        kind: str = AVRO,
        refers_to: Sequence[Reference] = (),
    ) -> int:
        """The number that `schema` has under `subject`; it is not made. `if_unknown`: a sentence,
        what to do if it has none."""
        wanted = _wanted(schema, kind, refers_to)
        return int(self._found(subject, wanted, if_unknown).schema_id)

    def version(
        self, subject: str, schema: str, if_unknown: str, refers_to: Sequence[Reference] = ()
    ) -> int:
        """Which one of the subject's a Protobuf schema is, as others refer to it."""
        return int(self._found(subject, _wanted(schema, PROTOBUF, refers_to), if_unknown).version)

    def _found(self, subject: str, wanted: Any, if_unknown: str) -> Any:
        return self._asked(
            f"subject '{subject}'",
            lambda: self._client.lookup_schema(subject, wanted),
            if_unknown,
        )

    def _asked(self, what: str, question: Any, if_unknown: str = "") -> Any:
        wait = Wait(self.url)
        while True:
            try:
                found = question()
            except UnknownSchema:
                served(self.url)
                raise
            except OptionsError:
                raise
            except Exception as error:
                problem = problem_of(error, what, if_unknown)
                if not may_pass(error):
                    raise SourceError(problem) from None
                if not wait.goes_on(True, problem):
                    raise ReadTimeout(
                        f"{problem} Start again when it is up: the job goes on where it was."
                    ) from None
                time.sleep(_PAUSE_S)
            else:
                served(self.url)
                return found


@functools.lru_cache(maxsize=1024)
def _schema(registry: Registry, number: int, kind: str, context: str | None) -> str:
    """A task is unpickled for each batch, and a client of its own takes it 30 ms and more. A number
    never changes its meaning; errors are not remembered."""
    return registry._ask_schema(number, kind, context)


def _in_context(subject: str | None) -> str | None:
    """The subject, if it names a context: there a number is another schema than elsewhere."""
    return subject if subject is not None and subject.startswith(_CONTEXT) else None


def _seconds(given: object) -> float:
    """The client takes a number only, and options are texts."""
    try:
        found = float(str(given))
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise OptionsError(
            [f"The schema registry's 'timeout' must be a number of seconds; it is '{given}'."]
        )
    return found


def _without_user(settings: Mapping[str, str]) -> dict[str, str]:
    """With the user and the password of the URL in a setting of their own: the client's HTTP
    library logs each URL. Raises OptionsError, which shows nothing of them."""
    places, users, is_cut = [], set(), False
    for one in settings["url"].split(","):
        try:
            parts = urlsplit(one.strip())
        except ValueError:
            parts = urlsplit("//@/@")
        user, _, place = parts.netloc.rpartition("@")
        users.add(user)
        places.append(parts._replace(netloc=place).geturl())
        # a password that is not escaped ends early
        is_cut |= "@" in parts.path + parts.query + parts.fragment
    if users == {""} and not is_cut:
        return dict(settings)
    if is_cut or len(users) > 1 or _USER_INFO in settings:
        raise OptionsError(
            [
                "The schema registry's 'url' has a user or a password that is not clear. Give them "
                f"in '{_USER_INFO}', as user:password, and take them out of all its URLs."
            ]
        )
    name, _, password = users.pop().partition(":")
    return {
        **settings,
        "url": ",".join(places),
        _USER_INFO: f"{unquote(name)}:{unquote(password)}",
    }


def _wanted(schema: str, kind: str, refers_to: Sequence[Reference]) -> Any:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    return Schema(schema, kind, [SchemaReference(*one) for one in refers_to])


def _unusable(schema: Any, kind: str) -> str | None:
    """Why it cannot be read here, as the end of a sentence."""
    if schema.schema_type != kind:
        return f"is of type {schema.schema_type}, and only {kind} is read here"
    if schema.references and kind == AVRO:
        return "refers to schemas of other subjects, which is not supported"
    return None
