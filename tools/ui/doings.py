"""Actions that were confirmed: each runs once, in a thread, and its page tells how it goes."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...core.errors import EoKafkaError
from .actions import Action

KEPT = 100
log = logging.getLogger(__name__)


@dataclass
class Doing:
    """One of them. `ok` None: it goes on. `said`: what came of it."""

    id: str
    title: str
    command: str
    back: str
    began_s: float = field(default_factory=time.time)
    heard: list[str] = field(default_factory=list)
    ok: bool | None = None
    said: str = ""


class Doings:
    """Of one server. `changed` is called when one has ended."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Doing] = OrderedDict()

    def of(self, id_: str) -> Doing | None:
        """The one of this id."""
        return self._kept.get(id_)

    def start(self, id_: str, action: Action, fields: Mapping[str, str]) -> Doing:
        """Do it; what was sent twice is done once."""
        with self._lock:
            if id_ in self._kept:
                return self._kept[id_]
            made = self._kept[id_] = Doing(id_, action.title, action.command, action.back)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        log.warning("By the page: %s", action.command)
        arguments = (made, action, dict(fields))
        threading.Thread(target=self._run, args=arguments, daemon=True).start()
        return made

    def _run(self, made: Doing, action: Action, fields: Mapping[str, str]) -> None:
        try:
            made.said = action.run(fields, made.heard.append)
            ok = True
        except EoKafkaError as error:
            made.said, ok = str(error), False
        except Exception as error:
            log.exception("An action of the page failed.")
            made.said = f"It failed, and what became of it is not known ({type(error).__name__})."
            ok = False
        made.ok = ok  # last: whoever sees it reads what was said
        self._changed()
