"""Whether all transactional ids are seen is not said before it is known. What ACLs mean, a real
Kafka shows: integration_tests/kafka/test_hidden_ids.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka import admin
from kafka.errors import (
    ClusterAuthorizationFailedError,
    SecurityDisabledError,
    TransactionalIdAuthorizationFailedError,
    UnknownError,
)

from eo_kafka.clients.kafka.hidden_ids import hidden, why_not_all
from eo_kafka.core.errors import EnvironmentRefused


class Control:
    """Brokers whose coordinators' log has these leaders, and that hide ids with this beginning."""

    admin = SimpleNamespace(describe_topics="topics", describe_acls="acls")

    def __init__(self, acls=(), leaders=(1, 2), log_error=0, hides="-") -> None:
        self._acls, self._hides = acls, hides
        self._log = {
            "error_code": log_error,
            "partitions": [{"leader_id": leader} for leader in leaders],
        }

    def call(self, what, *_):
        if what == "topics":
            return [self._log]
        if isinstance(self._acls, Exception):
            raise EnvironmentRefused("no") from self._acls
        return [SimpleNamespace(resource_pattern=one) for one in self._acls], None

    def describe(self, names):
        if any(name.startswith(self._hides) for name in names):
            raise EnvironmentRefused("no") from TransactionalIdAuthorizationFailedError()
        return {}


def pattern(name: str, kind: str) -> admin.ResourcePattern:
    kinds = admin.ACLResourcePatternType
    return admin.ResourcePattern(admin.ResourceType.TRANSACTIONAL_ID, name, kinds[kind])


OTHERS = (pattern("billing", "LITERAL"), pattern("orders.", "PREFIXED"), pattern("*", "LITERAL"))


@pytest.mark.parametrize(
    ("brokers", "why"),
    [
        (Control(SecurityDisabledError()), ""),
        (Control(OTHERS), ""),
        (Control(OTHERS, hides="orders.x"), ""),  # no ACL of theirs hides it
        (Control(OTHERS, log_error=3, leaders=()), ""),
        (Control(SecurityDisabledError(), leaders=(1, -1)), "a coordinator is away"),
        (Control(OTHERS, log_error=29), "may not Describe topic '__transaction_state'"),
        (Control(OTHERS, hides="billing"), "may not Describe every transactional id"),
        (Control(OTHERS, hides="orders."), "may not Describe every transactional id"),
        (Control(ClusterAuthorizationFailedError()), "brokers do not say whether"),
        (Control(UnknownError()), "brokers do not say whether"),  # an authorizer that tells none
        (Control(ClusterAuthorizationFailedError(), hides=""), "every transactional id"),
    ],
)
def test_it_is_known_by_one_id_of_each_kind(brokers, why):
    found = why_not_all(brokers)
    assert why in found and bool(why) is bool(found)


def test_each_hidden_one_is_found_though_an_error_names_one():
    names = [f"a{number}" for number in range(5)] + ["b1", "b2"]
    assert hidden(Control(hides="b"), names) == {"b1", "b2"}
    assert hidden(Control(), names) == hidden(Control(), []) == frozenset()
