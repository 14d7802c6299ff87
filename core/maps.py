"""What readers and writers of maps share: the backends and the names of a map."""

from __future__ import annotations

from .options import Option, one_of, text

HAZELCAST, KAFKA = "hazelcast", "kafka"
TEXT, JSON = "text", "json"

MAP = Option("map", text, "", "The map's name; with `kafka` the topic's.")
BACKEND = Option(
    "backend",
    one_of(HAZELCAST, KAFKA),
    "",
    "Where the map is: `hazelcast`, an IMap, or `kafka`, a compacted topic.",
)
NEEDED = ((MAP.name, "the map's name"), (BACKEND.name, f"'{HAZELCAST}' or '{KAFKA}'"))
