"""Which transactional ids a principal may not see: brokers leave those out of their lists, and say
nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...core.errors import EnvironmentRefused, EoKafkaError
from .control_errors import is_not_allowed, is_without_acls
from .every_broker import LOG

if TYPE_CHECKING:
    from .control_plane import ControlPlane


def hidden(control: ControlPlane, names: Iterable[str]) -> frozenset[str]:
    """Of these ids, which need not be in use, those that the principal may not Describe."""
    wanted = sorted(set(names))
    try:
        control.describe(wanted)
    except EnvironmentRefused as error:
        if not is_not_allowed(error):
            raise
        if len(wanted) == 1:
            return frozenset(wanted)
        half = len(wanted) // 2  # an error is about one of them
        return hidden(control, wanted[:half]) | hidden(control, wanted[half:])
    return frozenset()


def not_described(prefix: str) -> str:
    """What is not known of the jobs with this prefix, empty for any, in a sentence."""
    ids = f"'{prefix}.*'" if prefix else "of its prefix, which its ledger does not name, or '*'"
    return (
        "Whether transactions are open is not known: Kafka names none that this principal may not "
        f"Describe. Grant it Describe on transactional ids {ids}, or ask as one that has it."
    )


def of_no_prefix() -> str:
    """An id that nobody uses, under no prefix that anybody has: who may Describe it may Describe
    all but those of other ACLs."""
    return uuid.uuid4().hex


def why_not_all(control: ControlPlane) -> str:
    """Why a list of all coordinators may lack an id, as a part of a sentence; empty: it has all.

    An ACL is about one id, about all, or about all with a prefix. Those that no ACL tells from each
    other are all seen or all hidden: so one of each kind is asked for.
    """
    try:
        log = control.call(control.admin.describe_topics, [LOG])[0]
        if hidden(control, [of_no_prefix()]) or hidden(control, _told_apart(control)):
            return "this principal may not Describe every transactional id"
    except EoKafkaError as error:
        why = type(error.__cause__ or error).__name__
        return f"brokers do not say whether this principal sees every transactional id ({why})"
    if log["error_code"] not in (0, 3):  # 3: it does not exist, nor does a coordinator
        return f"this principal may not Describe topic '{LOG}', and so not see its coordinators"
    if [one for one in log["partitions"] if one["leader_id"] < 0]:
        return f"a coordinator is away: topic '{LOG}' has partitions without a leader"
    return ""


def _told_apart(control: ControlPlane) -> Iterable[str]:
    """An id of each kind that ACLs name; none where the brokers have no ACLs."""
    from kafka import admin

    pattern = admin.ACLResourcePatternType
    of_ids = admin.ResourcePatternFilter(admin.ResourceType.TRANSACTIONAL_ID, None, pattern.ANY)
    asked = admin.ACLFilter(None, None, admin.ACLOperation.ANY, admin.ACLPermissionType.ANY, of_ids)
    try:
        acls, _ = control.call(control.admin.describe_acls, asked)
    except EnvironmentRefused as error:
        if is_without_acls(error):
            return []
        raise
    found = {acl.resource_pattern for acl in acls}
    return [
        one.resource_name + (of_no_prefix() if one.pattern_type is pattern.PREFIXED else "")
        for one in found
    ]
