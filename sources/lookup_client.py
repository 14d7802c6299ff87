"""The client of a source's look-ups, and what brokers say of its login."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..clients.kafka import config
from ..clients.kafka.cluster import is_refusal
from ..core.errors import SourceError
from .settings.options import SourceOptions

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class LookupClient:
    """An AdminClient that is made when it is first asked for. `last_error`: what it told last, or
    that it is refused, since a question was begun. `was_let_in`: whether brokers have answered."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin: Any = None
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

    def close(self) -> None:
        """Drop it; a later question makes a new one."""
        self._admin = None

    @property
    def is_shut_out(self) -> bool:
        """Whether brokers that have answered before refuse the login: that may pass."""
        return self.was_let_in and self._refusal is not None

    def check(self) -> None:
        """Take in what it tells: a wrong password shows nowhere else. Raises SourceError for a
        login, or TLS, that no broker has ever taken."""
        self.admin().poll(0)
        if self._refusal is not None and not self.was_let_in:
            raise SourceError(
                f"The brokers at '{self._options.servers}' cannot be talked to with these "
                f"'kafka.*' settings: {self._refusal.str()}. Check the security protocol, the "
                "credentials and the certificates."
            )

    @property
    def _refusal(self) -> KafkaError | None:
        error = self.last_error
        return error if error is not None and is_refusal(error) else None

    def _on_error(self, error: KafkaError) -> None:
        # "All brokers are down" comes after a refusal, and says less
        if self._refusal is None or is_refusal(error):
            self.last_error = error
