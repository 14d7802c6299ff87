"""Puts what an earlier version left into a Kafka of today: the same records at the same offsets,
the same markers between them, and the transactions that were open are open again.

What Kafka gives out anew is put into the records: ids of topics, and (producer id, epoch) of what
is open. Nothing else is changed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eo_kafka.core.transaction import Identity
from eo_kafka.testing.processes import wait_until
from harness import control_plane

FOLDER = Path(__file__).parent
TIMEOUT_MS = 600_000


@dataclass
class Golden:
    """What one job left. `job` are the fields of the harness' class that ran it."""

    name: str
    found: dict[str, Any]
    # Those that were open and are again; they stay open while these are referred to.
    writers: dict[int, Producer] = field(default_factory=dict)

    @classmethod
    def read(cls, name: str) -> Golden:
        return cls(name, json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes())))

    @property
    def job(self) -> dict[str, Any]:
        return self.found["job"]

    def values(self, topic: str) -> list[bytes]:
        """All values in a topic."""
        return [value for _, value in self.records(topic)]

    def records(self, topic: str) -> list[tuple[Any, Any]]:
        """All keys and values in a topic."""
        logs = self.found["topics"][topic]["logs"]
        batches = [batch for log in logs for batch in log if "records" in batch]
        return [(content(key), content(value)) for one in batches for key, value in one["records"]]

    def write_checkpoint(self, folder: Path) -> None:
        for name, text in self.found["checkpoint"].items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content(text))

    def load(self, servers: str, still_open: bool = True) -> None:
        """Make and fill all topics; `still_open`: or what was open was aborted since."""
        self._create(servers)
        topics = self.found["topics"]
        # The ledger's decisions come last: they name transactions that must be open by then.
        logs = [
            (name, number) for name, topic in topics.items() for number in range(len(topic["logs"]))
        ]
        decisions = [at for at in logs if at[0].endswith(".ledger") and at[1] == 0]
        for at in [at for at in logs if at not in decisions]:
            self._fill(servers, *at)
        changed = self._identities(servers)
        for at in decisions:
            self._fill(servers, *at, changed=changed)
        if not still_open:
            for writer in self.writers.values():
                writer.abort_transaction(30)
            self.writers.clear()

    def _create(self, servers: str) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        made = admin.create_topics(
            [
                NewTopic(name, num_partitions=len(topic["logs"]), config=topic["settings"])
                for name, topic in self.found["topics"].items()
            ]
        )
        for future in made.values():
            future.result(30)

    def _identities(self, servers: str) -> dict[str, Identity]:
        """Transactional id -> the identity of what is open under it now."""
        with control_plane(servers) as control:
            found = control.describe(self.found["open"].values())
            ids = control.topic_ids(self.found["topics"])
        self._ids = {topic["id"]: ids[name] for name, topic in self.found["topics"].items()}
        return {name: described.identity for name, described in found.items()}

    def _fill(
        self, servers: str, topic: str, number: int, changed: dict[str, Identity] | None = None
    ) -> None:
        log, batches = _Log(servers, topic, number), self.found["topics"][topic]["logs"][number]
        for place, batch in enumerate(batches):
            log.wait_for_end(batch["offset"])
            producer = batch["producer"]
            if "end" in batch:
                log.end(producer, batch["end"])
                continue
            if not batch["transactional"]:
                writer = log.plain
            elif any("end" in one and one["producer"] == producer for one in batches[place:]):
                writer = log.begun(producer)
            else:
                writer = self._open(servers, producer)
            records = [(content(key), content(value)) for key, value in batch["records"]]
            if changed is not None:
                records = [(key, self._as_it_is_now(value, changed)) for key, value in records]
            log.write(writer, records)
        log.close()

    def _open(self, servers: str, producer: int) -> Producer:
        """A transaction under the job's own id, over all partitions it wrote to."""
        if producer not in self.writers:
            self.writers[producer] = transactional(servers, self.found["open"][str(producer)])
            self.writers[producer].begin_transaction()
        return self.writers[producer]

    def _as_it_is_now(self, value: bytes | None, changed: dict[str, Identity]) -> bytes | None:
        if value is None:
            return None
        for before, now in self._ids.items():
            value = value.replace(before.encode(), now.encode())
        fields = json.loads(value)
        for part in fields.get("participants", ()):
            if part["id"] in changed and fields["state"] == "DECIDED":
                identity = changed[part["id"]]
                part |= {"producerId": identity.producer_id, "epoch": identity.epoch}
        return json.dumps(fields, separators=(",", ":")).encode()


class _Log:
    """One partition while it is filled: a transaction has a producer of its own until it ends."""

    def __init__(self, servers: str, topic: str, number: int) -> None:
        self._servers, self._at = servers, TopicPartition(topic, number)
        self._reader = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "golden",
                "isolation.level": "read_uncommitted",  # or the end would be the last stable offset
            }
        )
        self.plain = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self._busy: dict[int, Producer] = {}
        self._idle: list[Producer] = []
        self._made = 0

    def wait_for_end(self, offset: int) -> None:
        """A marker is written some time after its transaction was ended."""
        wait_until(lambda: self._end() >= offset, f"{self._at} ends at {offset}")
        assert self._end() == offset, f"{self._at} has more records than then"

    def _end(self) -> int:
        try:
            return self._reader.get_watermark_offsets(self._at, timeout=10)[1]
        except KafkaException:  # the broker has not heard of a new topic
            return -1

    def begun(self, producer: int) -> Producer:
        if producer not in self._busy:
            self._busy[producer] = self._idle.pop() if self._idle else self._new()
            self._busy[producer].begin_transaction()
        return self._busy[producer]

    def _new(self) -> Producer:
        self._made += 1
        return transactional(
            self._servers, f"golden-{self._at.topic}-{self._at.partition}-{self._made}"
        )

    def end(self, producer: int, how: str) -> None:
        writer = self._busy.pop(producer)
        writer.commit_transaction(30) if how == "commit" else writer.abort_transaction(30)
        self._idle.append(writer)

    def write(self, writer: Producer, records: Collection[tuple[Any, Any]]) -> None:
        for key, value in records:
            writer.produce(self._at.topic, value, key, self._at.partition)
        assert writer.flush(30) == 0

    def close(self) -> None:
        assert not self._busy, f"{self._at} has open transactions that nothing tells of"
        self._reader.close()


def transactional(servers: str, name: str) -> Producer:
    settings = {"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 0}
    made = Producer({**settings, "transaction.timeout.ms": TIMEOUT_MS})
    made.init_transactions(30)
    return made


def content(text: str | None) -> bytes | None:
    """What make.py's `text` was made of."""
    return None if text is None else text.encode("latin-1")
