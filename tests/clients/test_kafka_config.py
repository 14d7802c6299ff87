"""What every client is made with, whatever its user wants."""

from __future__ import annotations

import pytest

from eo_kafka.clients.kafka import config as kafka_config
from eo_kafka.clients.kafka.control_requests import create_nothing
from eo_kafka.core.options import OptionReader
from eo_kafka.errors import OptionsError

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}


@pytest.mark.parametrize("kind", ["admin.AdminClient", "Producer", "Consumer"])
def test_no_client_creates_topics_by_asking(monkeypatch, kind):
    import confluent_kafka.admin

    made = []
    monkeypatch.setattr(f"confluent_kafka.{kind}", made.append)
    make = {
        "admin.AdminClient": kafka_config.admin_client,
        "Producer": kafka_config.producer,
        "Consumer": kafka_config.consumer,
    }[kind]
    make({**NOWHERE, "allow.auto.create.topics": "true"})
    (settings,) = made
    assert settings.pop("error_cb")
    wanted = {"allow.auto.create.topics": "false", "connections.max.idle.ms": "180000"}
    assert settings == {**NOWHERE, **wanted}
    assert confluent_kafka.admin is not None


@pytest.mark.parametrize("kind", ["admin_client", "producer", "consumer", "share_consumer"])
def test_connections_end_before_what_is_between_forgets_them(monkeypatch, kind):
    """Balancers and firewalls forget a flow after four minutes and more, and tell nobody."""
    given = []
    made = kafka_config.token_feed.make

    def make(of, settings, **named):
        given.append(settings)
        return made(of, settings, **named)  # that it takes them

    monkeypatch.setattr(kafka_config.token_feed, "make", make)
    group = {"group.id": "g"} if kind.endswith("consumer") else {}
    own = kafka_config.connection_settings({"connections.max.idle.ms": "7000"})
    for settings in ({}, own):
        getattr(kafka_config, kind)({**NOWHERE, **group, **settings})
    assert [one["connections.max.idle.ms"] for one in given] == ["180000", "7000"]


@pytest.mark.parametrize(("value", "is_refused"), [("true", True), ("1", True), ("False", False)])
def test_a_user_who_wants_topics_made_is_told(value, is_refused):
    reader = OptionReader(
        {"kafka.bootstrap.servers": "a:1", "kafka.allow.auto.create.topics": value}
    )
    reader.kafka({})
    if not is_refused:
        reader.finish()
        return
    with pytest.raises(OptionsError, match="Create topics before the query starts"):
        reader.finish()


def test_kafka_pythons_own_look_ups_create_nothing():
    """An admin client asks of no topic by itself today; its request would allow the creation."""
    from types import SimpleNamespace

    from kafka.cluster import ClusterMetadata

    cluster = ClusterMetadata(bootstrap_servers=["127.0.0.1:1"])
    cluster.add_topic("t")
    assert cluster.metadata_request().allow_auto_topic_creation
    create_nothing(SimpleNamespace(_manager=SimpleNamespace(cluster=cluster)))
    assert not cluster.metadata_request().allow_auto_topic_creation
