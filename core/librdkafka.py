"""All use of confluent-kafka's private parts.

confluent-kafka keeps configuration, callbacks, security and transactions. The loops over records,
and the tokens of a login by OAuth, work on the `rd_kafka_t` inside its objects, through public
functions of the very librdkafka that confluent-kafka has loaded. Three things here are not
public API:

1. where confluent-kafka's C objects hold the `rd_kafka_t *` (first field after the object header);
2. that they are librdkafka's `opaque`, which proves 1 without trusting it;
3. that a delivery report callback can be exchanged after creation, which lets failed records be
   counted by compiled code instead of taking the GIL once a record.

Each is checked before use; when a check fails, `available()` or `raw_handle()` says so and the
plain path is taken.
"""

from __future__ import annotations

import ctypes
import difflib
import functools
import importlib
import platform
import re
import struct
import sys
from collections.abc import Mapping
from typing import Any

from . import java_settings, loops

POINTER = ctypes.c_void_p
QUEUE_FULL = -184
PARTITION_EOF = -191
MSG_F_COPY = 2
# confluent-kafka versions whose C objects were read; above, the checks below still decide.
_OLDEST, _TOO_NEW = (2, 16), (3,)
_CONF_UNKNOWN, _CONF_INVALID = -2, -1
_SECRET_PARTS = ("password", "secret", "sasl", ".pem", ".key", "token", "credential")
_IN_COMPILED_LOOPS = (
    "rd_kafka_consume_batch_queue",
    "rd_kafka_message_timestamp",
    "rd_kafka_message_headers",
    "rd_kafka_header_cnt",
    "rd_kafka_header_get_all",
    "rd_kafka_headers_new",
    "rd_kafka_headers_destroy",
    "rd_kafka_header_add",
    "rd_kafka_produceva",
    "rd_kafka_error_code",
    "rd_kafka_error_destroy",
    "rd_kafka_topic_name",
    "rd_kafka_msg_partitioner_murmur2_random",
)
_LISTED = re.compile(rb"^([a-z_.]+) +\|", re.MULTILINE)  # in librdkafka's table of its settings
_SCAN_BYTES = 64 * 1024


class Unavailable(Exception):
    """The fast path cannot be used; the text says why."""


@functools.cache
def library() -> ctypes.CDLL:
    """The librdkafka that confluent-kafka has loaded. Raises Unavailable."""
    # cimpl is what links the library; importing it loads it
    import confluent_kafka.cimpl

    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "librdkafka" in line}
    except OSError:
        raise Unavailable("this system has no /proc, where the loaded library is found") from None
    if len(paths) != 1:
        raise Unavailable(
            f"confluent-kafka {confluent_kafka.__version__} has not loaded one librdkafka as a "
            f"library of its own but {len(paths)}"
        )
    loaded = ctypes.CDLL(paths.pop())
    try:
        _declare(loaded)
    except AttributeError as missing:
        raise Unavailable(f"this librdkafka lacks a function: {missing}") from None
    return loaded


def _declare(rk: ctypes.CDLL) -> None:
    text, number, size = ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "rd_kafka_opaque": (POINTER, [POINTER]),
        "rd_kafka_type": (number, [POINTER]),
        "rd_kafka_conf": (POINTER, [POINTER]),
        "rd_kafka_conf_new": (POINTER, []),
        "rd_kafka_conf_destroy": (None, [POINTER]),
        "rd_kafka_conf_properties_show": (None, [POINTER]),
        "rd_kafka_conf_set": (number, [POINTER, text, text, POINTER, size]),
        "rd_kafka_conf_get": (number, [POINTER, text, POINTER, POINTER]),
        "rd_kafka_conf_set_dr_msg_cb": (None, [POINTER, POINTER]),
        "rd_kafka_err2str": (text, [number]),
        "rd_kafka_queue_get_partition": (POINTER, [POINTER, text, ctypes.c_int32]),
        "rd_kafka_queue_forward": (None, [POINTER, POINTER]),
        "rd_kafka_queue_length": (size, [POINTER]),
        "rd_kafka_queue_destroy": (None, [POINTER]),
        "rd_kafka_topic_new": (POINTER, [POINTER, text, POINTER]),
        "rd_kafka_topic_destroy": (None, [POINTER]),
        "rd_kafka_produce_batch": (number, [POINTER, ctypes.c_int32, number, POINTER, number]),
        "rd_kafka_message_destroy": (None, [POINTER]),
        "rd_kafka_message_errstr": (text, [POINTER]),
        "rd_kafka_oauthbearer_set_token": (
            number,
            [POINTER, text, ctypes.c_int64, text, POINTER, size, POINTER, size],
        ),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(rk, name)
        function.restype, function.argtypes = result, arguments
    for name in _IN_COMPILED_LOOPS:
        getattr(rk, name)


@functools.cache
def available() -> str | None:
    """Why the fast path cannot be used in this process, or None if it can. Opens no connection."""
    if sys.platform != "linux" or struct.calcsize("P") != 8 or sys.byteorder != "little":
        return f"it needs 64-bit little-endian Linux, and this is {platform.platform()}"
    try:
        import confluent_kafka

        version = tuple(int(part) for part in str(confluent_kafka.__version__).split(".")[:2])
        if not _OLDEST <= version < _TOO_NEW:
            return f"confluent-kafka {confluent_kafka.__version__} is not one it was tested with"
        bind()
        if not loops.are_kept():
            importlib.import_module("numba.extending")
    except Unavailable as reason:
        return str(reason)
    except (ImportError, OSError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def bind() -> None:
    """Make librdkafka's functions known to compiled loops. Raises Unavailable."""
    import llvmlite.binding

    llvmlite.binding.load_library_permanently(library()._name)


def raw_handle(client: Any) -> int:
    """The `rd_kafka_t *` inside a confluent-kafka Producer or Consumer.

    Raises Unavailable unless the memory it would point to is readable, holds the address of
    `client`, and librdkafka itself names `client` as the handle's opaque. Reading goes through
    /proc/self/mem, so that a changed layout gives an answer and not a segmentation fault.
    """
    if type(client).__basicsize__ < object.__basicsize__ + 8:
        raise Unavailable(f"{type(client).__name__} has no room for a handle")
    pointer = POINTER.from_address(id(client) + object.__basicsize__).value
    if not pointer or pointer % 8:
        raise Unavailable(f"the {type(client).__name__} is closed or laid out differently")
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            memory.seek(pointer)
            seen = memory.read(_SCAN_BYTES)
    except (OSError, OverflowError, ValueError):
        raise Unavailable(f"the {type(client).__name__} is laid out differently") from None
    if id(client) not in memoryview(seen[: len(seen) // 8 * 8]).cast("Q"):
        raise Unavailable(f"the {type(client).__name__} is laid out differently")
    if library().rd_kafka_opaque(pointer) != id(client):
        raise Unavailable(f"librdkafka does not know the {type(client).__name__}")
    return pointer


def exchange_delivery_callback(handle: int, mine: int) -> int:
    """Put `mine` in the place of the producer's delivery report callback; return the one before.

    To be called by the thread that polls, before the first record. Raises Unavailable.
    """
    rk = library()
    before = delivery_callback(handle)
    if before != mine:
        rk.rd_kafka_conf_set_dr_msg_cb(rk.rd_kafka_conf(handle), mine)
        if delivery_callback(handle) != mine:
            raise Unavailable("the delivery report callback of a live producer cannot be set")
    return before


def delivery_callback(handle: int) -> int:
    """The address of the producer's delivery report callback. Raises Unavailable."""
    try:
        return int(setting(handle, "dr_msg_cb"), 16)
    except ValueError:
        raise Unavailable("librdkafka does not show its delivery report callback") from None


def set_token(
    client: Any, token: str, until_ms: int, principal: str, extensions: Mapping[str, str]
) -> None:
    """What a client shows brokers from now on (SASL OAUTHBEARER); the client must not be closed
    meanwhile. Raises Unavailable, also for what librdkafka does not take."""
    words = [word.encode() for pair in extensions.items() for word in pair]
    listed, reason = (ctypes.c_char_p * len(words))(*words), ctypes.create_string_buffer(512)
    code = library().rd_kafka_oauthbearer_set_token(
        *(raw_handle(client), token.encode(), until_ms, principal.encode()),
        *(listed, len(words), reason, len(reason)),
    )
    if code:
        raise Unavailable(f"librdkafka says: {reason.value.decode('utf-8', 'replace')}")


def setting(handle: int, name: str) -> str:
    """A short setting as the client has it; empty if librdkafka does not show it."""
    rk = library()
    shown, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    if rk.rd_kafka_conf_get(rk.rd_kafka_conf(handle), name.encode(), shown, ctypes.byref(size)):
        return ""
    return shown.value.decode()


def error_text(code: int) -> str:
    """librdkafka's words for an error code."""
    return str(library().rd_kafka_err2str(code).decode("utf-8", "replace"))


def setting_problems(settings: Mapping[str, str]) -> list[str]:
    """What librdkafka would refuse of `settings`, one sentence each; no connection is made.

    Values of secrets stay out of the sentences. [] where the library is not found: the client's
    own constructor will then complain.
    """
    try:
        rk = library()
    except (Unavailable, ImportError, OSError):
        return []
    problems = []
    conf, reason = rk.rd_kafka_conf_new(), ctypes.create_string_buffer(512)
    for name, value in settings.items():
        if "\0" in name + value:
            problems.append(f"Kafka option 'kafka.{name}' holds a zero byte.")
            continue
        found = rk.rd_kafka_conf_set(conf, name.encode(), value.encode(), reason, len(reason))
        if found == _CONF_UNKNOWN:
            problems.append(f"Kafka option 'kafka.{name}' is not known to librdkafka{_meant(name)}")
        elif found == _CONF_INVALID:
            secret = any(part in name for part in _SECRET_PARTS)
            said = "" if secret else f": {reason.value.decode('utf-8', 'replace')}"
            problems.append(f"Kafka option 'kafka.{name}' has a value librdkafka refuses{said}.")
    rk.rd_kafka_conf_destroy(conf)
    return problems


def _meant(unknown: str) -> str:
    """The end of a sentence about a setting that librdkafka does not know."""
    close = difflib.get_close_matches(unknown, _known() | java_settings.NAMES, n=1, cutoff=0.85)
    if close:
        return f": did you mean 'kafka.{close[0]}'?"
    return ". Take it away, or give librdkafka's name of it."


def _known() -> set[str]:
    """The names of all its settings, as it prints them."""
    libc, table, size = ctypes.CDLL(None), ctypes.c_char_p(), ctypes.c_size_t()
    libc.open_memstream.restype = POINTER
    libc.fclose.argtypes, libc.free.argtypes = [POINTER], [POINTER]
    stream = libc.open_memstream(ctypes.byref(table), ctypes.byref(size))
    library().rd_kafka_conf_properties_show(stream)
    libc.fclose(stream)
    found = {name.decode() for name in _LISTED.findall(table.value or b"")}
    libc.free(table)
    return found
