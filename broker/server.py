"""What servers that run on this machine have in common: `with` starts them and ends them."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

Started = TypeVar("Started", bound="Server")


class Server:
    """Started by `with`, and closed at its end, or if it does not start."""

    def start(self) -> None:
        """Start, and return once it answers."""
        raise NotImplementedError

    def close(self) -> None:
        """End it. `with` calls this."""
        raise NotImplementedError

    def __enter__(self: Started) -> Started:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
