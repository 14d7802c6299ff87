"""Topics: whether they are there, what they are, and their creation. Driver, and commands."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeAlias, TypeVar

from ...core.errors import EnvironmentRefused, Unreachable, cut
from ...core.patience import Wait, patience_s
from .outages import is_no_answer, refused_login

T = TypeVar("T")
log = logging.getLogger(__name__)

TIMEOUT_S = 30.0
ATTEMPTS = 3
_PAUSE_S = 0.1
DEFAULT_REPLICAS = -1  # as many as the brokers give a topic by default
WithReplicas: TypeAlias = Callable[[int], Any]  # makes a NewTopic


def asked(admin: Any, what: str, attempt: Callable[[float], T], *, once: bool = False) -> T:
    """What `attempt` returns, which may wait for Kafka for the seconds that it is told. While no
    broker answers it is made again, but for `once`: for as long as `patience.py` says of where an
    admin of `connect` leads to, else for TIMEOUT_S.

    Raises Unreachable, which names `what` was asked for; KafkaException: what a broker answered.
    """
    from confluent_kafka import KafkaException

    servers = servers_of(admin)
    wait, began = Wait(contact_of(admin), TIMEOUT_S), time.monotonic()
    while True:
        left = patience_s(contact_of(admin), TIMEOUT_S) - (time.monotonic() - began)
        within_s = max(_PAUSE_S, min(TIMEOUT_S, left))
        try:
            return attempt(within_s)
        except FutureTimeout:
            problem = f"no answer in {within_s:.0f} s"
        except KafkaException as error:
            if not _may_be_away(error.args[0]):
                raise
            problem = cut(error.args[0].str())
        said = f"{servers or 'Kafka'} did not answer when asked for {what} ({problem})."
        if once or not wait.goes_on(True, said):
            raise Unreachable(f"{said}{refused_login()} Start again when Kafka answers.")
        time.sleep(_PAUSE_S)


def servers_of(admin: Any) -> str:
    """The `bootstrap.servers` of an admin that `connect` made; "" of another."""
    servers: str = getattr(admin, "servers", "")
    return servers


def contact_of(admin: Any) -> str:
    """Whom one waits for (`config.contact`), of an admin that `connect` made."""
    found: str = getattr(admin, "contact", servers_of(admin))
    return found


def metadata(admin: Any, topic: str | None = None) -> Any:
    """What Kafka says of its brokers, and of the topic, or of all that the principal may see. As
    `asked`; raises EnvironmentRefused in place of KafkaException."""
    from confluent_kafka import KafkaException

    what = "its topics" if topic is None else f"topic '{topic}'"
    try:
        return asked(admin, what, lambda within_s: admin.list_topics(topic=topic, timeout=within_s))
    except KafkaException as error:
        raise EnvironmentRefused(f"Kafka does not tell {what}: {error.args[0].str()}.") from None


def exists(admin: Any, topic: str) -> bool:
    """Whether the topic exists and may be described. Raises as `metadata`."""
    from confluent_kafka import KafkaError

    found = metadata(admin, topic).topics[topic]
    if found.error is None:
        return True
    if found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise EnvironmentRefused(
            f"Not authorized for topic '{topic}': the principal needs Describe on it, and what else"
            " 'Least ACLs' in docs/security.md asks for."
        )
    return False


def partitions_of(admin: Any, topic: str) -> Any:
    """The topic's partitions. Each broker hears of a new topic in its own time. Raises as
    `metadata`."""
    deadline = None
    while not (found := metadata(admin, topic).topics[topic].partitions):
        deadline = deadline or time.monotonic() + TIMEOUT_S  # an outage before it does not count
        if time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_S)
    return found


def settings_of(
    admin: Any, name: str, kind: Any = None, *, must_answer: bool = False
) -> dict[str, str]:
    """The effective settings of a topic (or of a `kind`); none if they may not be seen, or if the
    broker that was asked has not heard of a new topic for long. No answer counts as that, unless
    it `must_answer`: then it raises Unreachable. A broker, which is the only one that knows its
    own, is asked once: it may be away for good."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(kind or ResourceType.TOPIC, name)
    what = f"the configuration of {resource.restype.name.lower()} {name}"
    deadline = None

    def attempt(within_s: float) -> Any:
        return admin.describe_configs([resource])[resource].result(within_s)

    while True:
        try:
            entries = asked(admin, what, attempt, once=kind == ResourceType.BROKER)
        except KafkaException as error:
            problem = error.args[0].str()
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                deadline = deadline or time.monotonic() + TIMEOUT_S
                if time.monotonic() < deadline:
                    time.sleep(_PAUSE_S)
                    continue
        except Unreachable:
            if must_answer:
                raise
            problem = "no answer"
        else:
            return {name: entry.value for name, entry in entries.items() if entry.value is not None}
        log.warning("Configuration of %s not checked: %s", name, problem)
        return {}


def create(
    admin: Any,
    topic: Any,
    advice: str,
    *,
    dispensable: Collection[str] = (),
    with_replicas: WithReplicas | None = None,
    named: str = "",
) -> bool:
    """Create a `NewTopic`. Driver, or a command.

    Args:
        admin: An AdminClient.
        topic: What to create. Its name and number of partitions are in what is raised.
        advice: A sentence: what to do where the brokers refuse.
        dispensable: Its settings that are left out where the brokers have a policy that forbids
            them, as those of hosted Kafka do. What holds instead is for the caller to check.
        with_replicas: Makes it with fewer, where there are not so many brokers, or with
            DEFAULT_REPLICAS, where they allow no other number. Without it the number stands.
        named: What to do in place of `advice` where it may be the name that is refused: that helps
            by hand no more than here.

    Returns:
        Whether it was created by this call; False if it was there. A broker that does not say what
        became of an attempt is asked again: what is there then counts as created. Brokers that have
        just started, or miss a heartbeat, are waited for, and as `patience.py` says in an outage.

    Raises:
        EnvironmentRefused: The brokers refuse; Unreachable: nobody says whether they did it.
    """
    from confluent_kafka import KafkaError, KafkaException

    servers = servers_of(admin)
    attempt, wait, outage = 1, Wait(contact_of(admin), TIMEOUT_S), Wait(contact_of(admin), 0.0)
    while True:
        try:
            admin.create_topics([topic])[topic.topic].result(TIMEOUT_S)
        except FutureTimeout:
            is_known = False
            problem = (
                f"Nobody said within {TIMEOUT_S:.0f} s whether topic '{topic.topic}' was created. "
                "Try again when Kafka answers."
            )
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return attempt > 1
            if _are_all_away(error) and wait.goes_on(True, f"{servers}: {error.str()}."):
                time.sleep(0.2)
                continue
            if with_replicas and _are_too_few(error) and topic.replication_factor > 1:
                topic = _like(with_replicas(topic.replication_factor - 1), topic)
                continue
            forbidden = _forbidden(admin, topic, dispensable) if _is_of_policy(error) else set()
            if forbidden:
                _tell_of(forbidden, topic, error)
                topic, dispensable = _without(topic, forbidden), ()
                continue
            if with_replicas and (_is_of_policy(error) or _are_too_few(error)):
                other = _like(with_replicas(DEFAULT_REPLICAS), topic)
                with_replicas = None
                if _is_valid(admin, other):
                    _tell_of_replicas(topic, error)
                    topic = other
                    continue
            is_known = not _may_be_away(error)
            ways = named if named and _is_perhaps_of_name(error) else advice
            problem = f"Topic '{topic.topic}' could not be created: {error.str()}. {ways}"
        else:
            return True
        if is_known or (attempt >= ATTEMPTS and not outage.goes_on(True, problem)):
            raise (EnvironmentRefused if is_known else Unreachable)(problem)
        attempt += 1
        time.sleep(_PAUSE_S)


def _are_too_few(error: Any) -> bool:
    """Whether more replicas are asked for than there are brokers."""
    from confluent_kafka import KafkaError

    found: bool = error.code() == KafkaError.INVALID_REPLICATION_FACTOR
    return found and not _are_all_away(error)


def _is_perhaps_of_name(error: Any) -> bool:
    """Whether another name may be allowed: Kafka takes '.' and '_' for the same in a new one, and
    a policy of theirs may go by it."""
    from confluent_kafka import KafkaError

    return error.code() in (KafkaError.TOPIC_EXCEPTION, KafkaError.POLICY_VIOLATION)


def _is_of_policy(error: Any) -> bool:
    """Whether brokers have looked at the settings and do not want them. Apache Kafka with a
    `create.topic.policy.class.name` answers with the first code."""
    from confluent_kafka import KafkaError

    codes = (KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG, KafkaError.INVALID_REQUEST)
    return error.code() in codes


def _forbidden(admin: Any, topic: Any, dispensable: Collection[str]) -> set[str]:
    """Those of its dispensable settings that the brokers refuse, each alone beside the others that
    it must have; none if they refuse it without any, too, or do not say. Creates nothing."""
    from confluent_kafka import KafkaException

    asked = set(dispensable) & set(topic.config)
    if not asked:
        return set()

    def is_allowed(setting: str | None) -> bool:
        tried = _without(topic, asked - {setting})
        futures = admin.create_topics([tried], validate_only=True)
        try:
            futures[topic.topic].result(TIMEOUT_S)
        except KafkaException as error:
            if _is_of_policy(error.args[0]):
                return False
            raise
        return True

    try:
        return {one for one in asked if not is_allowed(one)} if is_allowed(None) else set()
    except (KafkaException, FutureTimeout) as error:
        log.warning("Which settings the brokers forbid is not known: %s", error)
        return set()


def _like(other: Any, topic: Any) -> Any:
    """`other`, without the settings that are left out of `topic` already."""
    return _without(other, other.config.keys() - topic.config.keys())


def _is_valid(admin: Any, topic: Any) -> bool:
    """Whether the brokers would create it. False if they do not say."""
    from confluent_kafka import KafkaException

    try:
        admin.create_topics([topic], validate_only=True)[topic.topic].result(TIMEOUT_S)
    except (KafkaException, FutureTimeout) as error:
        log.info("Topic '%s' is not wanted with the default of replicas: %s", topic.topic, error)
        return False
    return True


def _tell_of_replicas(topic: Any, error: Any) -> None:
    log.warning(
        "Topic '%s' is created with the number of replicas that the brokers give by default: they "
        "do not allow %d (%s). What it has is checked.",
        topic.topic,
        topic.replication_factor,
        error.str(),
    )


def _without(topic: Any, settings: Collection[str | None]) -> Any:
    from confluent_kafka.admin import NewTopic

    left = {name: value for name, value in topic.config.items() if name not in settings}
    return NewTopic(topic.topic, topic.num_partitions, topic.replication_factor, config=left)


def _tell_of(forbidden: Collection[str], topic: Any, error: Any) -> None:
    log.warning(
        "Topic '%s' is created without %s, which the brokers do not allow (%s). What they have "
        "instead is checked.",
        topic.topic,
        ", ".join(f"{name}={topic.config[name]}" for name in sorted(forbidden)),
        error.str(),
    )


def _may_be_away(error: Any) -> bool:
    """Whether no broker has said no."""
    from confluent_kafka import KafkaError

    timed_out = error.code() == KafkaError.REQUEST_TIMED_OUT
    return timed_out or is_no_answer(error) or _are_all_away(error)


def _are_all_away(error: Any) -> bool:
    """Whether the controller hears of no broker at this moment. The error has the code of a
    replication factor that no broker count will ever allow: only its text tells them apart
    (`StripedReplicaPlacer` of Apache Kafka)."""
    from confluent_kafka import KafkaError

    return (
        error.code() == KafkaError.INVALID_REPLICATION_FACTOR
        and "all brokers are currently fenced" in error.str().lower()
    )
