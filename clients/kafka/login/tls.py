"""TLS for the control plane: Python's `ssl`, from the settings that librdkafka understands."""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from ....core.errors import OptionsError

log = logging.getLogger(__name__)
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.crl.location")
# Each is in a format that Python's ssl cannot load; the PEM settings say the same.
_NOT_PEM = ("ssl.keystore.location", "ssl.engine.location")


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """The context that librdkafka would make of the same settings."""
    for name in _NOT_PEM:
        if name in settings:
            raise OptionsError(
                [
                    f"Option 'kafka.{name}' cannot be used for an exactly-once write, whose commit "
                    "needs PEM: set 'kafka.ssl.certificate.location' and 'kafka.ssl.key.location' "
                    "(or '.pem' with the texts)."
                ]
            )
    context = _Context(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    check = settings.get("ssl.endpoint.identification.algorithm", "https").lower()
    verify = settings.get("enable.ssl.certificate.verification", "true").lower()
    context.check_hostname = check != "none" and verify != "false"
    if verify == "false":
        context.verify_mode = ssl.CERT_NONE
    context.settings, context.read = settings, _written(settings)
    _load(context, settings)
    return context


class _Context(ssl.SSLContext):
    """Reads its files again where they were renewed: certificates may live for an hour, and a
    control plane, which connects again and again, as long as its process."""

    settings: Mapping[str, str]
    read: list[tuple[int, int, int]]  # of which files it is

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """For each new connection."""
        if (now := _written(self.settings)) != self.read:
            try:
                _load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), self.settings)  # one that may break
                _load(self, self.settings)
                self.read = now
            except OptionsError as error:  # they are being written, perhaps
                log.warning("The files of before are used: %s", error)
        return super().wrap_socket(*args, **kwargs)


def _written(settings: Mapping[str, str]) -> list[tuple[int, int, int]]:
    """What changes with each of the files, as far as they are there."""
    found = []
    for name in _FILES:
        with suppress(OSError):
            told = os.stat(settings.get(name, ""))
            found.append((told.st_ino, told.st_size, told.st_mtime_ns))
    return found


def _load(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    """Raises OptionsError."""
    step = "ssl.ca"
    try:
        _load_authorities(context, settings)
        step = "ssl.certificate, ssl.key and ssl.key.password"
        with ExitStack() as files:
            certificate = files.enter_context(_file(settings, "ssl.certificate"))
            key = files.enter_context(_file(settings, "ssl.key"))
            if certificate is not None:
                # Never asks at the terminal, as OpenSSL would for an encrypted key.
                context.load_cert_chain(certificate, key, settings.get("ssl.key.password", ""))
        step = "ssl.crl.location"
        if "ssl.crl.location" in settings:
            context.load_verify_locations(settings["ssl.crl.location"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
        raise OptionsError(
            [
                f"The TLS settings kafka.{step} cannot be used "
                f"({reason or type(error).__name__}): is each a PEM file that this process may "
                "read, with the right password?"
            ]
        ) from None


def _load_authorities(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    location, text = settings.get("ssl.ca.location"), settings.get("ssl.ca.pem")
    if location in (None, "probe") and text is None:
        context.load_default_certs()
    elif location is not None and os.path.isdir(location):
        context.load_verify_locations(capath=location)
    else:
        context.load_verify_locations(cafile=location, cadata=text)


@contextmanager
def _file(settings: Mapping[str, str], name: str) -> Iterator[str | None]:
    """The path of a PEM setting. `ssl` reads keys from files only: a text gets one for a moment,
    that nobody else may read."""
    text = settings.get(f"{name}.pem")
    if text is None:
        yield settings.get(f"{name}.location")
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name
