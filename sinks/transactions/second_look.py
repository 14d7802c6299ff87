"""Lets a task that writes for long check whether its transaction is still wanted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Lock, Thread

from ...core.errors import Fenced

log = logging.getLogger(__name__)

# A task that writes for longer looks again, one that does not leaves it to S5.
LOOK_AFTER_S = 0.5


class SecondLook:
    """Whoever ends what nobody needs shuts out tasks that look later, and then lists what is open.
    A task that had looked before, and opened its transaction after that, looks once more here, now
    that it is open: either the listing saw it, or this look is later and sees the driver's fence.

    Looks in the background: the task itself may be waiting for rows.
    """

    def __init__(
        self, is_open: Callable[[], bool], look: Callable[[], None], end: Callable[[], None]
    ) -> None:
        """`look` raises Fenced if nobody needs the transaction; then it is ended."""
        self._is_open, self._look, self._end = is_open, look, end
        self._stopped = Event()
        self._settling = Lock()
        self._found: Fenced | None = None
        Thread(target=self._run, name="eo-kafka-look", daemon=True).start()

    def stop(self) -> None:
        """From here on the caller looks, and ends the transaction. Raises Fenced if it has been."""
        self._stopped.set()
        with self._settling:
            self.check()

    def check(self) -> None:
        """Raise Fenced if the transaction was ended."""
        if self._found is not None:
            raise self._found

    def _run(self) -> None:
        pause_s = LOOK_AFTER_S
        try:
            while not self._stopped.wait(pause_s):
                if self._is_open():
                    self._look()
                    return
                pause_s = min(30.0, pause_s * 2)  # it may have been ended: then S5 says so
        except Fenced as error:
            with self._settling:
                if not self._stopped.is_set():
                    self._found = error
                    self._end()
        except Exception as error:  # S5 looks again, and says what is wrong
            log.debug("The second look failed: %s", error)
