"""Connects to a Hazelcast cluster; turns the client's errors into sentences."""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ...core.errors import EnvironmentRefused, EoKafkaError, ReadTimeout, SourceError, cut
from ...core.options import Option, OptionReader, boolean, text, whole_number

if TYPE_CHECKING:
    from hazelcast import HazelcastClient

PREFIX = "hazelcast."


def _members(value: str) -> tuple[str, ...]:
    found = tuple(one.strip() for one in value.split(",") if one.strip())
    for one in found:
        host, separator, port = one.rpartition(":")
        if separator and not (host and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError("must be a list of host:port, separated by commas")
    if not found:
        raise ValueError("must be a list of host:port, separated by commas")
    return found


MEMBERS: Option[tuple[str, ...]] = Option(
    "hazelcast.members", _members, (), "Members to start from: `host:port`, separated by commas."
)
CLUSTER = Option("hazelcast.cluster", text, "dev", "The cluster's name.")
ROUTING = Option(
    "hazelcast.smart.routing",
    boolean,
    True,
    "Whether the client connects to every member; `false` if only the given addresses can be "
    "reached.",
)
CONNECT_MS = Option(
    "hazelcast.connect.timeout.ms",
    whole_number(1),
    20_000,
    "How long connecting may take, in milliseconds.",
)
REQUEST_MS = Option(
    "hazelcast.request.timeout.ms",
    whole_number(1),
    60_000,
    "How long a request may take, including a fail-over, in milliseconds.",
)
USERNAME: Option[str | None] = Option(
    "hazelcast.username", text, None, "The name, for members that ask for name and password."
)
PASSWORD: Option[str | None] = Option("hazelcast.password", str, None, "The password.")
TLS = Option("hazelcast.ssl.enabled", boolean, False, "Whether connections are encrypted.")
TLS_CA: Option[str | None] = Option(
    "hazelcast.ssl.ca.location",
    text,
    None,
    "File with the certificates of the authorities to trust, in PEM.",
)
TLS_CERTIFICATE: Option[str | None] = Option(
    "hazelcast.ssl.certificate.location", text, None, "File with the client's certificate, in PEM."
)
TLS_KEY: Option[str | None] = Option(
    "hazelcast.ssl.key.location", text, None, "File with its private key, in PEM."
)
TLS_KEY_PASSWORD: Option[str | None] = Option(
    "hazelcast.ssl.key.password", str, None, "The key's password."
)
TLS_HOSTNAME = Option(
    "hazelcast.ssl.check.hostname",
    boolean,
    True,
    "Whether a member's certificate must name its host.",
)
OPTIONS: tuple[Option[Any], ...] = (
    *(MEMBERS, CLUSTER, ROUTING, CONNECT_MS, REQUEST_MS, USERNAME, PASSWORD),
    *(TLS, TLS_CA, TLS_CERTIFICATE, TLS_KEY, TLS_KEY_PASSWORD, TLS_HOSTNAME),
)


@dataclass(frozen=True)
class HazelcastSettings:
    """How to reach a cluster. Pickled to the tasks; its repr shows no secrets."""

    members: tuple[str, ...]
    cluster: str
    smart_routing: bool
    connect_ms: int
    request_ms: int
    credentials: tuple[str, str] | None = field(repr=False)
    tls: tuple[tuple[str, Any], ...] = field(repr=False)  # the client's arguments

    @classmethod
    def read(cls, reader: OptionReader) -> HazelcastSettings:
        """Out of options; problems are noted in `reader`. Contacts nobody."""
        if MEMBERS.name not in reader:
            reader.problem(
                "Option 'hazelcast.members' must be specified: the host:port list of the members "
                "to start from."
            )
        known = {option.key for option in OPTIONS}
        for name in sorted(reader.prefixed(PREFIX)):
            if f"{PREFIX}{name}" not in known:
                reader.problem(f"Unknown option '{PREFIX}{name}'.")
        username, password = reader.get(USERNAME), reader.get(PASSWORD)
        if (username is None) != (password is None):
            reader.problem("Options 'hazelcast.username' and 'hazelcast.password' go together.")
        return cls(
            reader.get(MEMBERS),
            reader.get(CLUSTER),
            reader.get(ROUTING),
            reader.get(CONNECT_MS),
            reader.get(REQUEST_MS),
            None if username is None or password is None else (username, password),
            _tls(reader),
        )

    @property
    def place(self) -> str:
        """For sentences: which cluster."""
        return f"Hazelcast cluster '{self.cluster}' at {', '.join(self.members)}"


def _tls(reader: OptionReader) -> tuple[tuple[str, Any], ...]:
    names: dict[str, Option[str | None]] = {
        "ssl_cafile": TLS_CA,
        "ssl_certfile": TLS_CERTIFICATE,
        "ssl_keyfile": TLS_KEY,
        "ssl_password": TLS_KEY_PASSWORD,
    }
    if not reader.get(TLS):
        for name in (*(option.name for option in names.values()), TLS_HOSTNAME.name):
            if name in reader:
                reader.problem(f"Option '{name}' needs 'hazelcast.ssl.enabled' to be true.")
        return ()
    found: dict[str, Any] = {name: reader.get(option) for name, option in names.items()}
    found["ssl_check_hostname"] = reader.get(TLS_HOSTNAME)
    return (("ssl_enabled", True), *((name, one) for name, one in found.items() if one is not None))


_Key: TypeAlias = "tuple[int, HazelcastSettings]"  # a fork has the dictionary and not the threads

_lock = threading.Lock()
_clients: dict[_Key, HazelcastClient] = {}
_making: dict[_Key, threading.Lock] = {}  # connecting takes its time, and holds up nobody else


def client(settings: HazelcastSettings) -> HazelcastClient:
    """This process's client of that cluster, connected. Spark's workers live on from task to task,
    and connecting takes longer than a small batch. Raises EnvironmentRefused, ReadTimeout."""
    key = os.getpid(), settings
    with _lock:
        making = _making.setdefault(key, threading.Lock())
    with making:
        with _lock:
            known = _clients.get(key)
        if known is not None and known.lifecycle_service.is_running():
            return known
        made = connect(settings)
        with _lock:
            _clients[key] = made
        return made


@atexit.register
def close_clients() -> None:
    """Disconnect all clients of this process."""
    with _lock:
        ours = [one for (pid, _), one in _clients.items() if pid == os.getpid()]
        _clients.clear()
    for one in ours:
        one.shutdown()


def connect(settings: HazelcastSettings) -> HazelcastClient:
    """A new client, connected. The caller shuts it down. Raises EnvironmentRefused without the
    client's package, ReadTimeout when no member answers as one of that cluster."""
    try:
        import hazelcast
    except ImportError:
        raise EnvironmentRefused(
            "Reading a map of Hazelcast needs its Python client on driver and executors: "
            "pip install 'eo-kafka[hazelcast]'."
        ) from None
    from hazelcast.config import IntType

    from .internals import refuse_pickle
    from .repairs import bound_login, fix_waker, steady_clock

    steady_clock()
    bound_login()
    arguments: dict[str, Any] = dict(settings.tls)
    if settings.credentials is not None:
        arguments["creds_username"], arguments["creds_password"] = settings.credentials
    try:
        made = hazelcast.HazelcastClient(
            cluster_name=settings.cluster,
            cluster_members=list(settings.members),
            smart_routing=settings.smart_routing,
            # also for connecting again; after that the client ends, and is made anew
            cluster_connect_timeout=settings.connect_ms / 1000,
            invocation_timeout=settings.request_ms / 1000,
            default_int_type=IntType.LONG,  # Python's int as Java's long, and not "if it fits"
            statistics_enabled=False,
            **arguments,
        )
    except hazelcast.errors.HazelcastError as error:
        raise ReadTimeout(
            f"No member of {settings.place} let this client in within "
            f"{settings.connect_ms / 1000:g} s ({cut(error)}). Check the members' addresses, the "
            "cluster's name ('hazelcast.cluster'), and credentials and TLS if it has them."
        ) from None
    refuse_pickle(made)
    fix_waker(made)
    return made


def answer(asked: Any, name: str, settings: HazelcastSettings) -> Any:
    """What became of a request about the map `name`. Raises what `explained` makes of an error."""
    try:
        return asked.result()
    except Exception as error:
        raise explained(error, name, settings) from None


def explained(error: BaseException, name: str, settings: HazelcastSettings) -> EoKafkaError:
    """The client's error, from a request about the map `name`, as one of ours."""
    from hazelcast import errors

    place = f"map '{name}' of {settings.place}"
    if isinstance(error, EoKafkaError):
        return error
    said = _said(error)
    if isinstance(error, errors.SplitBrainProtectionError):
        return ReadTimeout(
            f"The members refuse requests for {place}: split-brain protection finds fewer members "
            f"than the map's configuration asks for ({said}). Start the missing members, or "
            "heal the network between them; the query can then go on where it was."
        )
    if isinstance(error, errors.UnsupportedOperationError):
        return EnvironmentRefused(
            f"There is no event journal of {place}, so it cannot be read as a stream. Add "
            "'event-journal: {enabled: true, capacity: N}' to the map's configuration on the "
            "members (N events over all partitions), or read it as a batch."
        )
    if isinstance(
        error,
        errors.OperationTimeoutError
        | errors.TargetDisconnectedError
        | errors.ClientOfflineError
        | errors.HazelcastClientNotActiveError
        | errors.HazelcastInstanceNotActiveError
        | errors.IndeterminateOperationStateError
        | TimeoutError
        | OSError,
    ):
        return ReadTimeout(
            f"No answer about {place} within {settings.request_ms / 1000:g} s ({said}). The "
            "task will be run again; 'hazelcast.request.timeout.ms' sets how long it waits."
        )
    return SourceError(f"A request about {place} failed: {type(error).__name__}: {said}.")


def _said(error: BaseException) -> str:
    """The first line: what comes from a member has its stack behind it."""
    return cut((str(error).splitlines() or [type(error).__name__])[0])
