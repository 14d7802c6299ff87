"""What tests of the page share: a cluster that answers as it is told, and clients of the page."""

from __future__ import annotations

import time
from dataclasses import replace

from starlette.testclient import TestClient

from eo_kafka.core.transaction import (
    Decision,
    DecisionState,
    Described,
    Identity,
    Participant,
    TransactionState,
)
from eo_kafka.state.ledger import records
from eo_kafka.tools.control.words import Told, Wish
from eo_kafka.tools.jobs.standing import Lag, Standing, standing
from eo_kafka.tools.jobs.tails import Tail
from eo_kafka.tools.jobs.watchers import Control, Watch
from eo_kafka.tools.transactions.verdict import Judged
from eo_kafka.tools.transactions.verdict import Standing as LedgerSays
from eo_kafka.tools.ui import actions, cluster
from eo_kafka.tools.ui.command import OWN_NAMES, built

NASTY = "<script>alert(1)</script>"
SECRET = "hunter2-hunter2-hunter2"
TOKEN = "a-token-of-some-length"
PORT = 8360
NOW = int(time.time() * 1000)


def decision(batch: int, generation: int, state=DecisionState.DONE, round_=0, **more) -> Decision:
    identity = Identity(f"eo-kafka.0123456789ab.0123456789ab.p0.g{generation % 4}.a0", 7, 0)
    topics = (("counts", "id"),)
    part = Participant(0, 0, generation, identity, 10, "digest", topics)
    facts = {"target": "topic 'counts'", "source_ids": (("orders", "id-2"),), **more}
    return Decision("main", batch, round_, state, generation, 5, 1, 0, (part,), **facts)


def tail(batches: int, topic: str = "__eo_kafka.shout.ledger", per_batch_ms: int = 1000) -> Tail:
    """Of a ledger with so many batches, the last of which ended now: each was planned 300 ms before
    it was decided, and done 50 ms later."""
    found = Tail(topic)
    for number in range(batches):
        at = NOW - (batches - number) * per_batch_ms
        generation = number + 1
        found.apply(records.GENERATION_KEY, records.encode_generation(generation), at)
        for state, later in ((DecisionState.DECIDED, 300), (DecisionState.DONE, 350)):
            record = decision(number, generation, state)
            key = records.decision_key(record.sink, record.batch, record.round)
            found.apply(key, records.encode_decision(record), at + later)
    return found


def job(name: str = "shout", batches: int = 3, lag: int = 5, said: str = "") -> Standing:
    found = standing(name, tail(batches, f"__eo_kafka.{name}.ledger"), [], Lag(lag), ["kept"], NOW)
    if not said:
        return found
    control = Control("t", wish=Wish("suspend", said), told=Told("running", said=said, host=said))
    return replace(found, watch=Watch(("host:1",), control))


def foreign(name: str) -> Judged:
    described = Described(name, TransactionState.ONGOING, 7, 0, 60_000, NOW - 1000)
    return Judged(described, LedgerSays.FOREIGN)


class World:
    """`found`: what the cluster says of its jobs; an error is raised. `asked`: how often."""

    def __init__(self, monkeypatch, *found: Standing) -> None:
        self.found: list[Standing] | Exception = list(found)
        self.asked, self.delay_s = 0, 0.0
        self.transactions: list[Judged] = []
        self.ran: list[str] = []
        monkeypatch.setattr(cluster, "Onlooker", lambda *_: self)
        monkeypatch.setattr(cluster.Cluster, "_transactions", lambda *_: self.transactions)
        monkeypatch.setattr(cluster.Cluster, "_on_topic", lambda *_: self.transactions)
        monkeypatch.setattr(cluster.Cluster, "_snapshots", lambda *_: cluster.Kept({}, ()))
        monkeypatch.setattr(cluster.Cluster, "_topics", lambda *_: cluster.TopicsSeen((), ()))
        monkeypatch.setattr(actions, "ask", self._ask)

    def look(self) -> list[Standing]:
        """As Onlooker."""
        self.asked += 1
        time.sleep(self.delay_s)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def close(self) -> None:
        """As Onlooker."""

    def _ask(self, job, do, *_) -> Told:
        self.ran.append(f"{do.value} {job.job}")
        return Told("suspended", ok=True, done=True, said="Suspended.", host="there")

    def client(
        self,
        *,
        act: bool = False,
        token: str | None = None,
        hosts: frozenset[str] | None = OWN_NAMES,
    ):
        """A browser, which does not follow where it is sent."""
        given = {
            "kafka.bootstrap.servers": "kafka:9092",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "user",
            "kafka.sasl.password": SECRET,
        }
        app = built(given, {}, ("--config", "client.properties"), act, PORT, token, hosts)
        return TestClient(app, base_url=f"http://localhost:{PORT}", follow_redirects=False)
