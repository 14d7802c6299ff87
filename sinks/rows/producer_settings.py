"""librdkafka's settings for producers that send rows."""

from __future__ import annotations

from typing import Any

from ...clients.kafka.config import quick_connect
from ..options import NONE, SinkOptions
from .plain import PRODUCER_SETTINGS

# Ours where the user says nothing.
_DEFAULTS = {
    # The partition the Java client would choose for the same key.
    "partitioner": "murmur2_random",
    # Rows come by the thousand: small waits make large requests.
    "linger.ms": "20",
}
ACKS_ALIAS = "request.required.acks"  # librdkafka's other name of acks; the later one wins
# By default librdkafka lets 1 GB wait for a broker that is slow. Rows wait in Spark instead.
QUEUE_KIB = 64 << 10


def producer_settings(options: SinkOptions) -> dict[str, Any]:
    """The user's settings over our defaults, under what the guarantee needs."""
    settings = {**_DEFAULTS, **quick_connect(options.kafka), **options.kafka, **PRODUCER_SETTINGS}
    settings.pop("transaction.timeout.ms", None)  # of the two-phase commit only
    largest = int(settings.get("message.max.bytes", 0)) >> 10
    settings.setdefault("queue.buffering.max.kbytes", str(max(QUEUE_KIB, 4 * largest)))
    if options.guarantee == NONE:
        idempotent = settings.get("enable.idempotence", "").strip().lower() in ("true", "t", "1")
        if not idempotent and ACKS_ALIAS not in settings:
            settings.setdefault("acks", "1")
    else:
        settings.update({"enable.idempotence": "true", "acks": "all"})
    return settings
