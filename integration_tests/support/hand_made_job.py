"""A job that takes snapshots, run by the sink's own code in the test's process: what Spark would
add is who calls it, and the checkpoint, which is made by hand here."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from eo_kafka.clients.kafka.topics import settings_of
from eo_kafka.sinks.batches.committable import TaskReport
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.testing.processes import wait_until
from harness import committed, delete_records

OPERATOR = (
    'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"stateStoreSave"},"stateStoreInfo":'
    '[{"storeName":"default","numColsPrefixKey":0,"numPartitions":1}]}'
)


def rows(batch: int) -> list[bytes]:
    """The same whoever writes the batch."""
    return [b"%d-%d" % (batch, number) for number in range(10)]


def all_rows(*batches: int) -> Counter[bytes]:
    return Counter(row for batch in batches for row in rows(batch))


@dataclass
class HandMadeJob:
    """A job of one task a batch, with one stateful operator."""

    servers: str
    topic: str
    name: str
    folder: Path
    query: str = field(default_factory=lambda: str(uuid.uuid4()))
    state_size: int = 1000
    salt: str = ""
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def given(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.servers,
            "topic": self.topic,
            "jobName": self.name,
            "checkpointLocation": self.location,
            "snapshots": "true",
            "kafka.transaction.timeout.ms": "60000",
            **self.extra,
        }

    @property
    def location(self) -> str:
        """The checkpoint, as Spark is told."""
        return str(self.folder)

    @property
    def options(self) -> SinkOptions:
        return SinkOptions.parse(self.given, streaming=True)

    @property
    def state_topic(self) -> str:
        return f"__eo_kafka.{self.name}.state"

    def put(self, path: str, content: str | bytes) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    def has(self, path: str) -> bool:
        return (self.folder / path).exists()

    def begin(self, batch: int) -> None:
        """What Spark has written when a batch's tasks start."""
        self.put("metadata", f'{{"id":"{self.query}"}}{self.salt}')
        self.put_offsets(batch)
        if batch:
            self.put(f"commits/{batch - 1}", f"v1\n{{}}{self.salt}")
            self.put("state/0/_metadata/metadata", OPERATOR + self.salt)
            if not self.has(f"state/0/0/{batch}.delta"):
                self.put(f"state/0/0/{batch}.delta", os.urandom(self.state_size))

    def put_offsets(self, batch: int) -> None:
        source = f'{{"in":{{"0":{10 * batch + 10}}}}}'
        self.put(f"offsets/{batch}", f'v1\n{{"batch":{batch}}}{self.salt}\n{source}')

    def replace_all(self, batch: int) -> None:
        """Spark compacts the state; and, which Spark would not do, all else changes too, so that
        the snapshot of `batch` shares no content with an earlier one."""
        for old in (self.folder / "state/0/0").iterdir():
            old.unlink()
        self.put(f"state/0/0/{batch}.snapshot", os.urandom(self.state_size))
        self.put(f"state/0/0/{batch}.delta", os.urandom(self.state_size))
        self.salt += " "
        self.put_offsets(batch - 1)

    def prepare(self, batch: int) -> list[TaskReport]:
        """S1 to S5."""
        task = TaskIdentity(self.query, batch, 0, 0, checkpoint=self.location)
        batches = iter([pa.RecordBatch.from_pydict({"value": rows(batch)})])
        return [two_phase.write(self.options, make_plan(self.options), task, batches)]

    def run(self, *batches: int) -> None:
        for batch in batches:
            self.begin(batch)
            committer.commit(self.options, self.prepare(batch), batch)

    @property
    def visible(self) -> Counter[bytes]:
        return committed(self.servers, self.topic)

    def files(self, folder: Path | None = None) -> dict[str, bytes]:
        root = folder or self.folder
        found = (path for path in root.rglob("*") if path.is_file())
        return {str(path.relative_to(root)): path.read_bytes() for path in found}


def cut_log(servers: str, topic: str, before: int, partition: int = 0) -> None:
    """Remove the records before an offset, as a compaction or a careless administrator would."""
    admin = AdminClient({"bootstrap.servers": servers})
    set_policy(admin, topic, "delete")
    wait_until(lambda: _deleted(servers, topic, before, partition), f"{topic} is cut at {before}")
    set_policy(admin, topic, "compact")


def set_policy(admin: AdminClient, topic: str, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    wait_until(
        lambda: settings_of(admin, topic)["cleanup.policy"] == policy, f"{topic} is told {policy}"
    )


def _deleted(servers: str, topic: str, before: int, partition: int) -> bool:
    """False while the leader has not heard of the new policy: its answer comes first."""
    try:
        delete_records(servers, topic, before, partition)
    except KafkaException as refused:
        if refused.args[0].code() != KafkaError.POLICY_VIOLATION:
            raise
        return False
    return True
