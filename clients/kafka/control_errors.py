"""What errors of kafka-python say: silence, an outage, or an answer."""

from __future__ import annotations

from ...core.errors import cut


def is_silence(error: BaseException | None) -> bool:
    """No answer. A request that gets none in time has the error of a broker that says so of others:
    both are silence."""
    from kafka import errors

    if isinstance(error, errors.BrokerResponseError):
        return isinstance(error, errors.RequestTimedOutError)
    return isinstance(error, errors.KafkaError | OSError)


def is_outage(error: BaseException | None) -> bool:
    """Whether brokers do not answer, or answer that others are away, have moved, or are
    just coming back."""
    from kafka import errors

    cause = error.__cause__ if error else None
    of_others = (
        errors.CoordinatorNotAvailableError,
        errors.CoordinatorLoadInProgressError,
        errors.NotCoordinatorError,
        errors.LeaderNotAvailableError,
    )
    return isinstance(cause, of_others) or is_silence(cause)


def is_leaderless(error: BaseException) -> bool:
    """Whether a partition has no leader."""
    from kafka import errors

    return isinstance(error.__cause__, errors.LeaderNotAvailableError)


def is_not_offered(error: BaseException) -> bool:
    """Whether a broker lacks the request, or a version of it that is of use."""
    from kafka import errors

    return isinstance(error.__cause__, errors.UnsupportedVersionError)


def is_not_allowed(error: BaseException) -> bool:
    """Whether the principal lacks a right."""
    from kafka import errors

    return isinstance(error.__cause__, errors.AuthorizationError)


def is_without_acls(error: BaseException) -> bool:
    """Whether brokers say that they have no authorizer: everybody may do everything."""
    from kafka import errors

    return isinstance(error.__cause__, errors.SecurityDisabledError)


def is_retriable(error: Exception) -> bool:
    """Whether a broker that answers this may answer otherwise soon."""
    return bool(getattr(error, "retriable", False))


def named(error: Exception) -> str:
    """Its class and what it says."""
    name, text = type(error).__name__, cut(error)
    return f"{name}: {text}" if text and text != name else name
