"""Connects to a RabbitMQ server; turns its errors into sentences.

Nothing of the connection's URL but host, port and virtual host is ever shown.
"""

from __future__ import annotations

import builtins
import logging
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ...core.errors import EnvironmentRefused, EoKafkaError, ReadTimeout, SourceError, cut
from ...core.options import Option, OptionReader, text
from ...core.patience import patience_s
from .repairs import repair

if TYPE_CHECKING:
    import pika

URL: Option[str | None] = Option(
    "url",
    text,
    None,
    "The RabbitMQ server: `amqp://user:password@host:5672/vhost` (the virtual host `/` is written "
    "`%2F`), or `amqps://` for TLS. A password in it is shown nowhere.",
)
USER: Option[str | None] = Option("user", text, None, "The user, if the URL does not say it.")
PASSWORD: Option[str | None] = Option(
    "password", str, None, "Its password, if the URL does not say it."
)
OPTIONS: tuple[Option[Any], ...] = (URL, USER, PASSWORD)
_SCHEMES = ("amqp", "amqps")
_NEEDED = "Queues need pika on the driver: pip install 'eo-kafka[queue]'."
# Why pika has given a connection up: the exception, by its name
_LOST = re.compile(r"connection lost: (\w*)")
_END_OF_TLS = "RxEndOfFile"  # pika's own OSError, of a private class
# Of pika's errors, what it says of a header that it does not know
_UNREADABLE = ("InvalidFieldTypeException", "UnsupportedAMQPFieldException")
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_GONE, _LOCKED, _REFUSED = 404, 405, 403
# What a 404 says of a queue that is there
_NO_HOME = re.compile("is down or inaccessible|stopped by supervisor|failed to restart")
_EXCLUSIVE = "in exclusive use"  # says a 403
# pika's guess of what ended a connection before it was open: a reset, and a server that is stopped,
# have these names, too. What is certain is what RabbitMQ itself said when it closed it.
_GUESS = "Probable"
_NO_LOGIN = re.compile(
    r"ConnectionClosedByBroker: \((?:403|530)\) "
    r".*(?:user|login|password|permission|vhost .* not found)",
    re.IGNORECASE,
)
# What it adds where a backend that it asks for rights fails; not where it asks for a login
_BACKEND_FAILED = "returned an error"
_LIMIT, _VHOST_DOWN = "connection limit", re.compile("vhost '(.*)' is down")


@dataclass(frozen=True)
class AmqpSettings:
    """How to reach a server. Pickled with the reader; its repr shows no secrets."""

    place: str  # host:port/vhost, for sentences
    url: str = field(repr=False)
    user: str | None = field(repr=False)
    password: str | None = field(repr=False)

    @classmethod
    def read(cls, reader: OptionReader) -> AmqpSettings:
        """Out of options; problems are noted in `reader`. Contacts nobody."""
        url = reader.get(URL)
        if URL.name not in reader:
            reader.problem(
                f"Option '{URL.name}' must be specified: where the queue's server is. "
                "For records of Kafka there is 'shareGroup'."
            )
        found = cls("", url or "", reader.get(USER), reader.get(PASSWORD))
        if url is None:
            return found
        try:
            parameters, said = found.parameters(), urlsplit(url)
            # A password that is not escaped ends early, and its rest would be taken for a place
            is_cut = "@" in said.path or "@" in said.fragment
            if said.scheme.lower() not in _SCHEMES or not said.hostname or is_cut:
                raise ValueError
        except ImportError:
            reader.problem(_NEEDED)
            return found
        except Exception:  # its text may show the password
            reader.problem(
                "Option 'url' cannot be read: it must be amqp://user:password@host:5672/vhost, with"
                " only the parameters that pika's URLParameters knows, and with a password if it "
                "has a user. In a password or a virtual host, '/' is written %2F, '@' %40, '#' %23"
                " and '%' %25."
            )
            return found
        for option, in_url in ((USER, said.username), (PASSWORD, said.password)):
            if option.name in reader and in_url is not None:
                reader.problem(
                    f"Option '{option.name}' and option 'url' say the same: take one away."
                )
        if (found.user is None) != (found.password is None):
            reader.problem("Options 'user' and 'password' go together.")
        host, vhost = parameters.host, unquote(parameters.virtual_host)
        return cls(f"{host}:{parameters.port}/{vhost}", url, found.user, found.password)

    def parameters(self) -> pika.URLParameters:
        """As pika takes them. Raises ImportError, ValueError and others for a wrong URL."""
        import pika

        parameters = pika.URLParameters(self.url)
        if parameters.ssl_options is not None:  # of one that the URL describes, too
            parameters.ssl_options.context.verify_mode = ssl.CERT_REQUIRED
            parameters.ssl_options.context.check_hostname = True
        if self.user is not None:
            parameters.credentials = pika.PlainCredentials(self.user, self.password or "")
        return parameters


def connect(settings: AmqpSettings, name: str) -> pika.BlockingConnection:
    """A connection, which the server's tools show under `name`. Raises pika's errors, and
    EnvironmentRefused where pika is missing."""
    try:
        import pika
    except ImportError:
        raise EnvironmentRefused(_NEEDED) from None
    repair()
    its_log = logging.getLogger("pika")
    if its_log.level == logging.NOTSET:  # our sentences say the same, once and without tracebacks
        its_log.setLevel(logging.CRITICAL)
    parameters = settings.parameters()
    parameters.client_properties = {"connection_name": name, "product": "eo-kafka"}
    return pika.BlockingConnection(parameters)


@contextmanager
def told(settings: AmqpSettings, queue: str) -> Iterator[None]:
    """Within it, the client's errors come out as ours."""
    try:
        yield
    except EoKafkaError:
        raise
    except Exception as error:
        raise explained(error, settings, queue) from None


def explained(error: Exception, settings: AmqpSettings, queue: str) -> EoKafkaError:
    """The client's error as one of ours."""
    from pika.adapters.utils.connection_workflow import AMQPConnectorException
    from pika.exceptions import AMQPError

    place, said = settings.place, _said(error)
    if (waits_for := _waits_for(error, said, place, queue)) is not None:
        return ReadTimeout(waits_for)
    if (shut_out := _shut_out(error, said, place, queue)) is not None:
        return shut_out
    refusal = _refusal(error, said, place, queue)
    if refusal is not None:
        return EnvironmentRefused(refusal)
    if isinstance(error, AMQPError | AMQPConnectorException | OSError) and _is_outage(said):
        return ReadTimeout(
            f"No answer from RabbitMQ at {place} for queue '{queue}' ({said}). Start again when it "
            "is up, with the majority of a quorum queue's nodes: messages that were not "
            "acknowledged are delivered again, and those that are in the inbox already are dropped "
            "then."
        )
    return SourceError(
        f"A message of queue '{queue}' at {place} cannot be read by the client ({said}). Nothing "
        "of it was acknowledged: it goes back into the queue, near its head. Take it out with "
        "RabbitMQ's own tools, and start again. Each start counts as a delivery of all that came "
        "with it, and at its delivery-limit a quorum queue drops them."
    )


def _is_outage(said: str) -> bool:
    """Not where pika has given the connection up because it could not read what arrived. That may
    raise anything, so what ends a connection is what is known. The next attempt would end the same
    way, and count as a delivery of all that came with it."""
    found = _LOST.search(said)
    if found is None or found[1] == _END_OF_TLS:
        return True
    from pika import exceptions

    name = found[1]
    if hasattr(exceptions, name):
        return name not in _UNREADABLE
    # struct's `error` is none of socket's, which is a second name of OSError
    kinds = [getattr(module, name, None) for module in (builtins, socket, ssl)]
    return any(
        isinstance(kind, type) and issubclass(kind, OSError | EOFError) and kind.__name__ == name
        for kind in kinds
    )


def _waits_for(error: Exception, said: str, place: str, queue: str) -> str | None:
    """What RabbitMQ calls by the code of what a person must correct, and goes by itself."""
    if _is_guess(error) and _LIMIT in said:
        return (
            f"RabbitMQ at {place} takes no more connections, and queue '{queue}' is not read "
            f"({said}). That of a machine that died counts until RabbitMQ misses its heartbeats, "
            "about two minutes. If it stays so, look at rabbitmqctl list_connections user vhost "
            "peer_host, and end those that are too many or raise the limit: rabbitmqctl "
            "set_vhost_limits or set_user_limits, or connection_max of the node."
        )
    if _is_guess(error) and (down := _VHOST_DOWN.search(said)) is not None:
        return (
            f"Virtual host '{down[1]}' of RabbitMQ at {place} is down, and queue '{queue}' with it "
            f"({said}). Its messages are on the node: do not delete it. RabbitMQ's log says why it "
            f"went down. Bring it back by rabbitmqctl restart_vhost -p '{down[1]}'."
        )
    code: Any = getattr(error, "reply_code", None)
    if code == _GONE and _NO_HOME.search(said):
        return (
            f"RabbitMQ at {place} cannot reach queue '{queue}' ({said}): the node that has it is "
            "down, or the queue has crashed there. Its messages are on that node: do not delete or "
            "declare the queue. Start the node, look at rabbitmqctl list_queues name pid state, and"
            " start again when the queue is running."
        )
    if code == _REFUSED and _EXCLUSIVE in said:
        return (
            f"Another consumer has queue '{queue}' at {place} for itself ({said}), and RabbitMQ "
            "hands out nothing to this query. Look at its consumers, rabbitmqctl list_consumers, "
            "and start again when that one has left."
        )
    return None


def _shut_out(error: Exception, said: str, place: str, queue: str) -> EoKafkaError | None:
    """A login or a right that RabbitMQ refuses, or that it cannot ask its backend for."""
    is_login = _is_guess(error) and _NO_LOGIN.search(said) is not None
    is_asked = is_login or getattr(error, "reply_code", None) == _REFUSED
    if is_asked and _BACKEND_FAILED in said:
        return ReadTimeout(
            f"RabbitMQ at {place} cannot find out whether queue '{queue}' may be read ({said}): the"
            " backend that says who may do what (LDAP, HTTP) gives it no answer. Start again when "
            "that is up."
        )
    if not is_login:
        return None
    kind = ReadTimeout if patience_s(place, 0.0) else EnvironmentRefused  # it was let in before
    return kind(
        f"RabbitMQ at {place} refuses this user or this virtual host: {said}. It says the same "
        "where a backend that it asks (LDAP, HTTP) does not answer; its log tells which. Correct "
        "the user, its password or its permissions, or bring the backend up, and start again."
    )


def _refusal(error: Exception, said: str, place: str, queue: str) -> str | None:
    """What a person must correct, if that is what it is."""
    if _UNTRUSTED in said:
        return (
            f"The certificate of RabbitMQ at {place} is not trusted: {said}. Name its authority in "
            "the URL, ?ssl_options={'ca_certs': '/path/to/ca.pem'}, and the host by a name that is "
            "in the certificate."
        )
    code: Any = getattr(error, "reply_code", None)
    sentences = {
        _GONE: f"RabbitMQ at {place} has no queue '{queue}': {said}. eo-queue creates none: declare"
        " it (durable, not exclusive, not auto-delete), or correct option 'queue'.",
        _LOCKED: f"Queue '{queue}' at {place} is another connection's alone, and is deleted with it"
        f" (exclusive): {said}. Its messages cannot be kept by anybody else: take a queue that is "
        "durable and not exclusive.",
        _REFUSED: f"RabbitMQ at {place} refuses access to queue '{queue}': {said}. The user needs "
        "the permission 'read' on it; nothing was taken.",
    }
    return sentences.get(code)


def _is_guess(error: Exception) -> bool:
    return type(error).__name__.startswith(_GUESS)


def _said(error: Exception) -> str:
    name = type(error).__name__
    words = " ".join((str(error) or repr(error)).split())
    is_named = words.startswith(name) or _is_guess(error)  # the words of a guess name what it was
    return cut(words if is_named else f"{name}: {words}", 500)
