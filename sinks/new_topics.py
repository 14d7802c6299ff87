"""Option `createTopics`: how topics that are missing are made, and making them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..clients.kafka import topics
from ..core.errors import EnvironmentRefused
from ..core.options import Option, OptionReader, boolean, whole_number

log = logging.getLogger(__name__)

PREFIX = "createtopics."
CREATE_TOPICS = Option(
    "createTopics",
    boolean,
    False,
    "Whether the start creates what is missing of output topic (option `topic`) and dead letter "
    "topic. `createTopics.config.<name>` is a setting of both, such as "
    "`createTopics.config.retention.ms`; `cleanup.policy` is the output topic's only. A topic "
    "that is there stays as it is. Topics that rows name are not created.",
)
PARTITIONS: Option[int | None] = Option(
    "createTopics.partitions",
    whole_number(1, 100_000),
    None,
    "Partitions of a topic that `createTopics` makes. Default: the brokers' `num.partitions`.",
)
REPLICAS: Option[int | None] = Option(
    "createTopics.replicas",
    whole_number(1, 10_000),
    None,
    "Replicas of a topic that `createTopics` makes. Default: the brokers' "
    "`default.replication.factor`.",
)
OPTIONS = (CREATE_TOPICS, PARTITIONS, REPLICAS)
_CONFIG = "config."
_POLICY = "cleanup.policy"


@dataclass(frozen=True)
class NewTopics:
    """How a topic is made; None: as the brokers have it."""

    partitions: int | None = None
    replicas: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)

    def of_letters(self) -> NewTopics:
        """The same for dead letters: a compacted topic would not keep them all."""
        return replace(self, config={**self.config, _POLICY: "delete"})


def read(reader: OptionReader, topic: str | None) -> NewTopics | None:
    """Parse the options; None if nothing is to be created. Contacts nobody."""
    wanted = reader.get(CREATE_TOPICS)
    found = NewTopics(
        reader.get(PARTITIONS), reader.get(REPLICAS), reader.prefixed(PREFIX + _CONFIG)
    )
    known = {option.key.removeprefix(PREFIX) for option in OPTIONS}
    given = reader.prefixed(PREFIX)
    for name in sorted(given):
        if name not in known and not (name.startswith(_CONFIG) and name != _CONFIG):
            reader.problem(
                f"Unknown option '{PREFIX}{name}': 'createTopics.partitions', "
                "'createTopics.replicas' and 'createTopics.config.<name>' are known."
            )
    if given and not wanted:
        reader.problem(
            "Options 'createTopics.*' say how topics are created, and option 'createTopics' is not "
            "true: set it, or take them away."
        )
    if wanted and topic is None:
        reader.problem(
            "Option 'createTopics' is true, which needs option 'topic': topics that rows name are "
            "not created."
        )
    return found if wanted else None


def check_of_map(reader: OptionReader) -> None:
    """Note it if the topic that is made could not be a map."""
    policy = reader.prefixed(PREFIX + _CONFIG).get(_POLICY)
    if reader.get(CREATE_TOPICS) and policy != "compact":
        reader.problem(
            "Option 'createTopics' is true, and a map's topic must be compacted: set option "
            "'createTopics.config.cleanup.policy' to 'compact'."
        )


def ensure(admin: Any, name: str, wanted: NewTopics) -> None:
    """Create the topic if it is missing. One that is there is left as it is, and what it has
    otherwise is logged. Driver, once a process. Raises EnvironmentRefused."""
    from confluent_kafka.admin import NewTopic

    is_ours = False
    if not topics.exists(admin, name):
        topic = NewTopic(
            name, wanted.partitions or -1, wanted.replicas or -1, config=dict(wanted.config)
        )
        advice = "Correct options 'createTopics.*', grant Create on it, or create it by hand."
        is_ours = topics.create(admin, topic, advice)
    differences = _differences(admin, name, wanted)
    if is_ours and differences:
        raise EnvironmentRefused(
            f"Topic '{name}' was created, and has not become what options 'createTopics.*' ask "
            f"for: {'; '.join(differences)}. Nothing was written. Do the brokers have a policy for "
            "new topics? Correct the options or the topic."
        )
    if is_ours:
        log.warning("Topic '%s' was missing and has been created (createTopics).", name)
    elif differences:
        log.warning(
            "Topic '%s' is left as it is, other than options 'createTopics.*' say: %s.",
            name,
            "; ".join(differences),
        )


def _differences(admin: Any, name: str, wanted: NewTopics) -> list[str]:
    there = topics.partitions_of(admin, name)
    replicas = min((len(partition.replicas) for partition in there.values()), default=0)
    found = [
        f"{count} {what}, not {asked}"
        for what, count, asked in (
            ("partition(s)", len(there), wanted.partitions),
            ("replica(s)", replicas, wanted.replicas),
        )
        if asked not in (None, count)
    ]
    # What may not be seen is not other: a warning has been given.
    settings = topics.settings_of(admin, name) if wanted.config else {}
    found += [
        f"{setting}={settings[setting]}, not {value}"
        for setting, value in sorted(wanted.config.items())
        if setting in settings and _plain(settings[setting]) != _plain(value)
    ]
    return found


def _plain(value: str) -> str:
    """Brokers may write a list's blanks and a boolean's letters otherwise."""
    return "".join(value.lower().split())
