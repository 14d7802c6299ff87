"""Actions that were confirmed: each runs once, in a thread, and its page tells how it goes."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...core.errors import EoKafkaError
from .actions import Action

VALID_S = 3600.0  # since a form was made, in which it may be sent
KEPT_S = 2 * VALID_S  # longer than that: what was sent once is known for as long as it may be sent
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
        self._key = secrets.token_bytes(32)
        self._kept: dict[str, Doing] = {}

    def of(self, id_: str) -> Doing | None:
        """The one of this id."""
        return self._kept.get(id_)

    def new_id(self) -> str:
        """For a form: when it was made, and what only this server can have written beside that."""
        begun = f"{int(_now_s())}.{secrets.token_urlsafe(16)}"
        return f"{begun}.{self._word(begun)}"

    def start(self, id_: str, action: Action, fields: Mapping[str, str]) -> Doing | None:
        """Do it; what was sent twice is done once. None: it is no id of ours, or an old one."""
        begun, _, word = id_.rpartition(".")
        if not hmac.compare_digest(self._word(begun).encode(), word.encode()):
            return None
        with self._lock:
            if _age_s(id_) > VALID_S:
                return None
            if id_ in self._kept:
                return self._kept[id_]
            for old, one in list(self._kept.items()):
                if one.ok is not None and _age_s(old) > KEPT_S:
                    del self._kept[old]
            made = self._kept[id_] = Doing(id_, action.title, action.command, action.back)
        log.warning("By the page: %s", action.command)
        arguments = (made, action, dict(fields))
        threading.Thread(target=self._run, args=arguments, daemon=True).start()
        return made

    def _word(self, begun: str) -> str:
        return hmac.new(self._key, begun.encode(), hashlib.sha256).hexdigest()

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


def _age_s(id_: str) -> float:
    return _now_s() - int(id_.partition(".")[0])


def _now_s() -> float:
    return time.monotonic()  # the ids are this process's
