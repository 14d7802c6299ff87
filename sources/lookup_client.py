"""The client of a source's look-ups, and what brokers say of its login."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ..clients.kafka import config
from ..clients.kafka.cluster import is_refusal
from ..clients.kafka.listener import Suspicion
from ..core.errors import SourceError
from .settings.options import SourceOptions

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

log = logging.getLogger(__name__)


class LookupClient:
    """An AdminClient that is made when it is first asked for. `last_error`: what it told last, or
    that it is refused, since a question was begun. `was_let_in`: whether brokers have answered."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin: Any = None
        self._suspicion = Suspicion(options.kafka)
        self.last_error: KafkaError | None = None
        self.was_let_in = False

    def admin(self) -> Any:
        """Raises SourceError if none can be made of the settings."""
        if self._admin is None:
            from confluent_kafka import KafkaException

            settings: dict[str, Any] = {
                **config.quick_connect(self._options.kafka),
                **config.connection_settings(self._options.kafka),
                "error_cb": self._on_error,
            }
            try:
                self._admin = config.admin_client(settings)
            except KafkaException as error:
                raise SourceError(
                    f"No client can be made of these 'kafka.*' settings: {error.args[0].str()}."
                ) from None
        return self._admin

    def begin(self) -> None:
        """A question begins."""
        self.last_error, self._suspicion = None, Suspicion(self._options.kafka)

    def close(self) -> None:
        """Drop it; a later question makes a new one."""
        self._admin = None

    @property
    def is_shut_out(self) -> bool:
        """Whether brokers that have answered before refuse the login: that may pass."""
        return self.was_let_in and self._refusal is not None

    def check(self) -> None:
        """Take in what it tells: a wrong password shows nowhere else. Raises SourceError for a
        login, or TLS, that no broker has ever taken, and for a protocol that none speaks."""
        self.admin().poll(0)
        if self._refusal is not None and not self.was_let_in:
            raise SourceError(
                f"The brokers at '{self._options.servers}' cannot be talked to with these "
                f"'kafka.*' settings: {self._refusal.str()}. Check the security protocol, the "
                "credentials and the certificates."
            )
        if not self.was_let_in and (problem := self._suspicion.problem()):
            raise SourceError(problem)

    def tell(self, subject: str, error: KafkaError) -> None:
        """That `subject` is asked for again, and what the client has told: that says more."""
        said = f" ({self.last_error.str()})" if self.last_error is not None else ""
        log.warning("looking up %s: %s%s; asking again", subject, error.str(), said)

    @property
    def _refusal(self) -> KafkaError | None:
        error = self.last_error
        return error if error is not None and is_refusal(error) else None

    def _on_error(self, error: KafkaError) -> None:
        from confluent_kafka import KafkaError

        # "All brokers are down" comes after what says more
        if self.last_error is not None and error.code() == KafkaError._ALL_BROKERS_DOWN:
            return
        if self._refusal is None or is_refusal(error):
            self.last_error = error
