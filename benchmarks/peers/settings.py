"""What all contenders that write are told alike, each in its own words."""

from __future__ import annotations

# librdkafka and the Java client call these the same. A 1 MB batch is librdkafka's default, 20 ms
# are eo-kafka's. The Java client's defaults are 16 KB and 5 ms.
PRODUCER = {
    "linger.ms": "20",
    "batch.size": "1000000",
    "compression.type": "none",
    "acks": "all",
    "enable.idempotence": "true",
}
OF_SPARK = {f"kafka.{name}": value for name, value in PRODUCER.items()}
COMMIT_INTERVAL_S = 1
TRANSACTION_TIMEOUT_MS = 600_000  # Flink's own, an hour, is more than brokers allow
