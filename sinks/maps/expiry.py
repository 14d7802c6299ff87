"""Whether the members keep what is put into maps of ours: by their own configuration, which a map's
name chooses, entries may expire. Driver."""

from __future__ import annotations

import uuid

from ...clients.hazelcast.client import HazelcastSettings, answer, client
from ...core.errors import EnvironmentRefused

_NEVER = 2**63 - 1  # milliseconds, as members say it


def check_kept(settings: HazelcastSettings, name: str) -> None:
    """Raise EnvironmentRefused if entries of map `name`, one of ours, expire. No request says how a
    map is configured; an entry says how long it lives. To put ours for good is no way out: what
    replaces an entry, and what a transaction puts, gets the configuration's times again."""
    stored, key = client(settings).get_map(name), f"probe {uuid.uuid4().hex}"
    answer(stored.set(key, ""), name, settings)
    found = answer(stored.get_entry_view(key), name, settings)
    answer(stored.delete(key), name, settings)
    if found is not None and (found.ttl, found.max_idle) == (_NEVER, _NEVER):
        return
    raise EnvironmentRefused(
        f"Entries of map '{name}' of {settings.place} expire, as the members are configured "
        "(time-to-live-seconds, max-idle-seconds). It is eo-kafka's own: what must not be written "
        "twice would be forgotten. The query stops. Add to the members' configuration "
        "'map: {\"__eo_kafka.*\": {time-to-live-seconds: 0, max-idle-seconds: 0}}', which takes "
        "precedence over 'default', and restart the members one after the other."
    )
