"""What the registry's client raises: whose fault it is, whether it may pass, as sentences."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from ...core.errors import cut
from ...core.url_secrets import without_secrets

_SOURCE = "bearer.auth.credentials.source"
_FILE = ".location"
_DENIED, _NOT_FOUND = 403, 404
# The registry's own: no such subject, version or schema. Apicurio has the first one for a schema's
# number, too, where it counts as its older versions did (`legacy-id-mode`).
_UNKNOWN = (40401, 40402, 40403)


def is_unknown(error: BaseException) -> bool:
    """Whether the registry itself says that it does not have it: a 404 may be a proxy's, too."""
    return _status(error) == _NOT_FOUND and getattr(error, "error_code", None) in _UNKNOWN


def is_denied(error: BaseException) -> bool:
    """Whether somebody with other rights may read it."""
    return _status(error) == _DENIED


def not_taken(settings: Mapping[str, str], error: Exception) -> str:
    """Why there is no client of these settings, as a sentence."""
    if isinstance(error, OSError):  # which says neither which file nor of which setting
        named = (f"'{name}' ('{settings[name]}')" for name in settings if name.endswith(_FILE))
        return (
            f"The schema registry's {', '.join(named) or 'SSL_CERT_FILE'} cannot be used here: "
            f"{type(error).__name__}: {error.strerror}."
        )
    # Other libraries' words may show a password.
    is_its_own = type(error) in (ValueError, TypeError) or isinstance(error, ImportError)
    said = f": {without_secrets(cut(error))}" if is_its_own else ""
    is_bearer = any(name.startswith("bearer.auth.") for name in settings)
    advice = f" 'bearer.auth.*' needs '{_SOURCE}'." if is_bearer and _SOURCE not in settings else ""
    return (
        f"The schema registry's settings ({', '.join(sorted(settings))}) are not taken by its "
        f"client: {type(error).__name__}{said}.{advice}"
    )


def may_pass(error: BaseException) -> bool:
    """Whether who was asked is only away, starting or busy: the same question may do."""
    error = _of_token(error) or error
    status = _status(error)
    if status is not None:
        return status >= 500 or status == 429 or (status == _NOT_FOUND and not is_unknown(error))
    # By name: it is httpx's or httpx2's, whichever confluent-kafka finds.
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "TransportError" not in kinds or "UnsupportedProtocol" in kinds:
        return False
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            return False
        cause = cause.__cause__ or cause.__context__
    return True


def problem_of(error: Exception, what: str, if_unknown: str) -> str:
    """What the client raised, as a sentence. `if_unknown`: what to do if it has no such thing."""
    from confluent_kafka.schema_registry import SchemaRegistryError

    if (cause := _of_token(error)) is not None:
        return _of_token_endpoint(cause, what)
    if not isinstance(error, SchemaRegistryError):  # its HTTP library's errors are nobody's API
        return (
            f"The schema registry was asked for {what} and did not answer: "
            f"{type(error).__name__}. Check its 'url', and whether it is up."
        )
    status, said = error.http_status_code, cut(error.error_message, 400)
    if is_unknown(error):
        return f"The schema registry refused {what}: {said} ({error.error_code}). {if_unknown}"
    if status == _NOT_FOUND:
        return (
            f"The schema registry was asked for {what}, and what answers at its 'url' is no "
            f"registry: HTTP {status}, {said}. Check the path of the 'url', and the proxies "
            "before the registry."
        )
    if may_pass(error):
        return f"The schema registry was asked for {what} and is not well: HTTP {status}, {said}."
    return f"The schema registry refused {what}: {said} ({error.error_code})."


def _of_token_endpoint(cause: BaseException, what: str) -> str:
    status = _status(cause)
    code = getattr(cause, "error", None)  # such as invalid_client
    shown = f"HTTP {status}" if status is not None else f"{code or type(cause).__name__}"
    did = "is away" if may_pass(cause) else "gave none"
    return (
        f"The schema registry was not asked for {what}: it takes an OAuth token, and the token "
        f"endpoint {did}: {cut(shown)}. Check 'bearer.auth.issuer.endpoint.url'"
        f"{', and whether it is up' if may_pass(cause) else ' and the other bearer.auth settings'}."
    )


def _of_token(error: BaseException) -> BaseException | None:
    """What went wrong at the OAuth token endpoint, for which the client has an error of its own."""
    return error.__context__ if type(error).__name__ == "OAuthTokenError" else None


def _status(error: BaseException) -> int | None:
    """Of the HTTP answer: the registry's, or the token endpoint's."""
    answer = getattr(error, "response", None)
    return getattr(error, "http_status_code", getattr(answer, "status_code", None))
