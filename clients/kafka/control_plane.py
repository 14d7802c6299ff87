"""Asks the cluster about transactions and ends them, with retries and clear errors.

A `ControlPlane` keeps its connections; `shared` gives each process one per set of settings.
"""

from __future__ import annotations

import ssl
import struct
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ...core.errors import EnvironmentRefused, EoKafkaError, OutcomeUnknown, Unreachable, cut
from ...core.patience import Wait, patience_s
from ...core.transaction import (
    NO_ANSWER,
    Described,
    EndTxnAnswer,
    Identity,
    TransactionState,
    end_txn_answer,
)
from . import bootstrap, outages, topic_lists
from .config import contact, control_settings
from .control_errors import is_not_offered, is_outage, is_retriable, is_silence, named
from .control_requests import End, Look, TransactionRequests, create_nothing
from .every_broker import STEM, list_transactions
from .needed_requests import not_offered

LOOKUP_TIMEOUT_S = 30.0
OTHERS_AFTER_S = 3.0
_QUESTIONS = {
    "describe": "describe transactions",
    "end": "end transactions",
    "epoch_ends": "compare a partition's log with what was read",
    "look": "look at transactions and topics",
}
_AWAY = (NO_ANSWER, *outages.NO_COORDINATOR)  # answers to EndTxn of an outage
_shared: dict[tuple[tuple[str, str], ...], ControlPlane] = {}


def shared(settings: Mapping[str, str]) -> ControlPlane:
    """This process's control plane for these settings; connections are kept between batches."""
    key = tuple(sorted(settings.items()))
    if key not in _shared:
        _shared[key] = ControlPlane(settings)
    return _shared[key]


def forget(settings: Mapping[str, str]) -> None:
    """Drop the shared connections, after an error that may have been theirs."""
    plane = _shared.pop(tuple(sorted(settings.items())), None)
    if plane is not None:
        plane.close()


class ControlPlane:
    """Requests about transactions.

    Look-ups are retried for up to LOOKUP_TIMEOUT_S, in an outage for longer (`patience.py`), and
    then raise OutcomeUnknown. `end` is one round, not retried: where no answer arrived it says
    NO_ANSWER, and the caller decides.
    """

    def __init__(self, settings: Mapping[str, str], within_s: float | None = None) -> None:
        """`within_s`: by default as long as one waits for the cluster in an outage."""
        self._settings, self.servers = settings, settings.get("bootstrap.servers", "")
        control = control_settings(settings)
        try:
            longest_s = patience_s(contact(settings), bootstrap.TIMEOUT_S)
            self.admin: Any = bootstrap.connected(control, within_s or longest_s)
        except Exception as error:
            is_silent = type(error).__name__ == "KafkaTimeoutError"
            raise (Unreachable if is_silent else EnvironmentRefused)(
                f"No Kafka broker at {self.servers} could be reached for the commit "
                f"({named(error) if isinstance(error, ssl.SSLError) else type(error).__name__}). "
                "Check kafka.bootstrap.servers and security settings."
            ) from None
        create_nothing(self.admin)
        self._was_let_in = False
        self._requests = TransactionRequests(self.admin, self.servers)

    def close(self) -> None:
        """Close all connections."""
        self.admin.close()

    def check_offers(self) -> None:
        """Raise EnvironmentRefused where the broker that was met first did not offer, when it was,
        what the protocol needs. Asks nothing."""
        if problem := not_offered(self.servers, self._requests.offered()):
            raise EnvironmentRefused(problem)

    def transaction_version(self) -> int:
        """The finalized level of `transaction.version`; 0 where the broker has no such feature."""
        return self.look(version=True).transaction_version

    def end_txn_version(self) -> int:
        """The version of EndTxn to use, which is fixed in each decision."""
        return self.look(version=True).end_txn_version

    def describe(self, ids: Iterable[str]) -> dict[str, Described]:
        """The coordinators' view of each id. Raises OutcomeUnknown if one does not answer."""
        wanted = list(ids)
        if not wanted:
            return {}
        found: dict[str, Described] = self.ask(self._requests.describe, wanted)
        return found

    def describe_one(self, transactional_id: str) -> Described:
        """The coordinator's view of one id. Raises OutcomeUnknown if it does not answer."""
        return self.describe([transactional_id])[transactional_id]

    def end(self, identities: Iterable[Identity], commit: bool, version: int) -> dict[str, str]:
        """Send one EndTxn for each, all at once. Answers Kafka's error names, by id."""
        wanted = list(identities)
        if not wanted:
            return {}
        answers: dict[str, str] = self.ask(self._requests.end, wanted, commit, version)
        return answers

    def end_all(
        self, identities: Iterable[Identity], commit: bool, version: int, timeout_s: float
    ) -> dict[str, tuple[EndTxnAnswer, str]]:
        """`end`, asked again until each has a final answer, for up to `timeout_s`, in an outage for
        longer. By id: what the last answer means, RETRY where none was final, and Kafka's error
        name."""
        pending = {identity.transactional_id: identity for identity in identities}
        found: dict[str, tuple[EndTxnAnswer, str]] = {}
        wait, pause = Wait(contact(self._settings), timeout_s), 0.002
        while pending:
            for name, error in self.end(pending.values(), commit, version).items():
                found[name] = (answer := end_txn_answer(error)), error
                if answer is not EndTxnAnswer.RETRY:
                    del pending[name]
            away = any(found[name][1] in _AWAY for name in pending)
            problem = f"{self.servers} ends no transactions ({error})."
            if not pending or not wait.goes_on(away, problem):
                break
            time.sleep(pause)
            pause = min(0.2, pause * 2)
        return found

    def topics(self) -> list[str]:
        """The names of all that the principal may see."""
        names: list[str] = self.call(self.admin.list_topics)
        return names

    def open_transactions(
        self,
        pattern: str,
        matches: Callable[[str], bool],
        but: Collection[Identity] = (),
        stem: str = STEM,
    ) -> list[Described]:
        """Ongoing transactions whose id matches, and none of `but`, nor a later one of the same
        id and producer. Every broker is asked that is there; this is for cleaning up, and safety
        never rests on it. Raises OutcomeUnknown if one is silent, or a coordinator away."""
        try:
            rows = self.ask(list_transactions, self.admin, ["Ongoing"], pattern, stem)
        except EnvironmentRefused as error:
            if not is_not_offered(error):
                raise
            rows = self.ask(list_transactions, self.admin, ["Ongoing"], None, stem)
        known = {(one.transactional_id, one.producer_id) for one in but}
        ids = {
            name
            for name, producer_id in {(row.transactional_id, row.producer_id) for row in rows}
            if name and matches(name) and (name, producer_id) not in known
        }
        described = self.describe(sorted(ids))
        return [found for found in described.values() if found.state is TransactionState.ONGOING]

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """The ids of those topics that exist. One that was deleted and made again has another."""
        return self.look(topics=names).topic_ids

    def agreed_topic_ids(self, names: Iterable[str]) -> Mapping[str, str]:
        """`topic_ids`, where much hangs on it that a topic is gone: asked of all brokers. Raises
        OutcomeUnknown if most do not answer, or one says otherwise."""
        wanted = sorted(set(names))
        return topic_lists.agreed(
            lambda: self.ask(topic_lists.of_each, self.admin, wanted), wanted, self.servers
        )

    def end_offset(self, topic: str, partition: int, committed: bool | None) -> int:
        """The partition's last stable offset (`committed`), or its high watermark; None: where it
        begins."""
        return self.look(ends=[(topic, partition, committed)]).ends[0]

    def epoch_ends(
        self, asked: Mapping[tuple[str, int], tuple[int, int]]
    ) -> dict[tuple[str, int], int]:
        """Where what was read under a leader epoch ends in the log of each (topic, partition) now;
        -1 if that is not known. Asked are the epoch and one the leader has reached."""
        ends: dict[tuple[str, int], int] = self.ask(self._requests.epoch_ends, asked)
        return ends

    def reach(
        self,
        end: End,
        at_least: int,
        timeout_s: float,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> int:
        """The answer to `end` once it is `at_least` that much, which it must become; after
        `timeout_s`, what it is. `meanwhile` is called between two questions. A client that stays
        with a leader that is cut off would never hear more, so others are asked, too."""
        started = asked_others = time.monotonic()
        pause, within_s = 0.002, OTHERS_AFTER_S
        while True:
            asked = time.monotonic()
            found = self.end_offset(*end)
            now = time.monotonic()
            started += now - asked  # an outage says nothing of what the answer may become
            if found >= at_least or now - started > timeout_s:
                break
            if now - asked_others > OTHERS_AFTER_S:
                found = self._as_others_say(end, within_s)
                if found >= at_least:
                    break
                asked_others = time.monotonic()
                within_s = min(2 * within_s, bootstrap.TURN_MAX_S)
            meanwhile()
            time.sleep(pause)
            pause = min(0.1, pause * 2)
        return found

    def _as_others_say(self, end: End, within_s: float) -> int:
        """The same, by whichever broker a new client begins with; -1 if that does not work. One's
        own may know better meanwhile: so it is asked once, and has `within_s` to find a broker."""
        try:
            other = ControlPlane(self._settings, within_s)
        except EnvironmentRefused:
            return -1
        asks = other._requests
        try:
            look: Look = other._once(asks.run, asks.look, [], [end], [], False)
            return look.ends[0]
        except EoKafkaError:
            return -1
        finally:
            other.close()

    def look(
        self,
        ids: Iterable[str] = (),
        ends: Iterable[End] = (),
        topics: Iterable[str] = (),
        version: bool = False,
        others: Collection[str] = (),
    ) -> Look:
        """What `describe`, `end_offset`, `topic_ids` and `transaction_version` answer, all asked at
        once: nothing may hang on which was answered first. Raises what each would raise. Of
        `others`, topics that the principal may not be allowed to see, the ids of those it sees."""
        found: Look = self.ask(
            self._requests.look, list(ids), list(ends), sorted(set(topics)), version, others
        )
        return found

    def call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What a method of kafka-python's client answers, asked again as a look-up is."""
        import tenacity

        wait = Wait(contact(self._settings), LOOKUP_TIMEOUT_S)

        def stop(state: tenacity.RetryCallState) -> bool:
            error = state.outcome.exception() if state.outcome else None
            return not wait.goes_on(is_outage(error), str(error))

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._may_pass),
            stop=stop,
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=1.0),
            reraise=True,
        )
        return retrying(self._once, method, *args, **kwargs)

    def _may_pass(self, error: BaseException) -> bool:
        """No answer; or a refused login, where brokers have let this client in before."""
        from kafka.errors import SaslAuthenticationFailedError

        refused = isinstance(error.__cause__, SaslAuthenticationFailedError)
        return isinstance(error, OutcomeUnknown) or (refused and self._was_let_in)

    def _once(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        from kafka.errors import (
            AuthorizationError,
            KafkaError,
            SaslAuthenticationFailedError,
            UnsupportedVersionError,
        )

        name = (args[0] if method == self._requests.run else method).__name__
        what = _QUESTIONS.get(name, name.replace("_", " "))
        try:
            found = method(*args, **kwargs)
            self._was_let_in = True
            return found
        except UnsupportedVersionError as error:
            raise EnvironmentRefused(
                f"{self.servers} does not offer what is needed to {what} ({named(error)}). Use an "
                "Apache Kafka of 3.9 or newer; 'eo-kafka doctor --bootstrap-servers ...' says of "
                "each broker what it lacks."
            ) from error
        except SaslAuthenticationFailedError as error:
            raise EnvironmentRefused(
                f"{self.servers} did not let this principal in, to {what}: {cut(error)}. Correct "
                "the 'kafka.sasl.*' settings, or what the brokers know of the principal, and start "
                "again."
            ) from error
        except AuthorizationError as error:
            raise EnvironmentRefused(
                f"{self.servers} does not let this principal {what}: {cut(error)}. It needs Write "
                "and Describe on the job's transactional ids, Describe on its topics: "
                "docs/security.md has the list. Grant what is missing and start again."
            ) from error
        except (KafkaError, OSError) as error:
            if is_silence(error):
                outages.suspect(self.servers)
                # It may not have heard yet that a broker is back.
                self._requests.refresh()
                raise OutcomeUnknown(
                    f"{self.servers} did not answer when asked to {what} ({named(error)})."
                ) from error
            if is_retriable(error):
                raise OutcomeUnknown(f"{self.servers} answered {named(error)}.") from error
            raise EnvironmentRefused(
                f"{self.servers} refused to {what}: {named(error)}."
            ) from error
        except (ValueError, TypeError, LookupError, AttributeError, struct.error) as error:
            raise OutcomeUnknown(
                f"{self.servers}, asked to {what}, gave an answer that cannot be read "
                f"({named(error)})."
            ) from error

    def ask(self, coroutine: Callable[..., Any], *args: Any) -> Any:
        """The same, of a coroutine that runs in its loop."""
        return self.call(self._requests.run, coroutine, *args)
