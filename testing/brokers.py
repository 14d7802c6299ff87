"""The fixture `eo_broker`: a test's topics, and what it may do to its Kafka."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ..broker.embedded import KafkaBroker
from .errors import CheckRefused, FaultMissed
from .kafka_places import Place
from .proxy import Proxy
from .topics import Topic
from .trial import Trial


class Broker:
    """A real Kafka. Other tests use it, too, unless the test is marked
    `@pytest.mark.eo_kafka(own=True)`: only then may it be killed, paused or cut off."""

    def __init__(self, place: Place, trial: Trial) -> None:
        self.place, self.trial = place, trial
        trial.broker = self

    @property
    def bootstrap_servers(self) -> str:
        """Where the test reaches Kafka, whatever is done to the jobs' connections."""
        return self.place.servers

    def topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> Topic:
        """A topic of this test.

        Args:
            name: What the test calls it. Kafka's topic has a name that no other test has:
                `Topic.real_name`.
            partitions: How many, if this call creates it.
            config: The topic's settings, if this call creates it.

        Returns:
            The topic, created by the first call with this name.

        Raises:
            EnvironmentRefused: Kafka does not create it.
        """
        return self.trial.new_topic(name, partitions, config)

    def kill(self, number: int = 0) -> None:
        """SIGKILL a broker. `start` starts it again.

        Args:
            number: Which one of a cluster.

        Raises:
            CheckRefused: The broker is shared with other tests.
        """
        self._mine(number).kill()
        self._note("broker killed", broker=number)

    def start(self) -> None:
        """Start each broker that does not run.

        Raises:
            CheckRefused: The broker is shared with other tests.
            BrokerError: It does not start.
        """
        self._mine(0)
        for broker in self.place.brokers:
            broker.start()
        self._note("brokers started")

    def pause(self, seconds: float, number: int = 0) -> None:
        """SIGSTOP a broker, and let it go on: others take over, and it does not know.

        Args:
            seconds: How long it stands still. This call takes as long.
            number: Which one of a cluster.

        Raises:
            CheckRefused: The broker is shared with other tests.
        """
        broker = self._mine(number)
        self._note("broker paused", broker=number, seconds=seconds)
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(broker.pid, signal.SIGCONT)

    @contextmanager
    def network_cut(self) -> Iterator[None]:
        """While this block runs, the jobs' connections to Kafka are cut, and new ones refused. The
        test itself still reaches Kafka.

        Raises:
            CheckRefused: There is no proxy: the broker is shared, or it is one of a cluster.
            FaultMissed: The jobs had no connection, and tried to make none.
        """
        proxy = self._network()
        proxy.cut()
        self._note("network cut")
        with self._healed(proxy, "cut"):
            yield

    @contextmanager
    def network_hangs(self, flow: str = "responses") -> Iterator[None]:
        """While this block runs, no bytes of the jobs' connections pass; they stay open.

        Args:
            flow: `requests` or `responses`.

        Raises:
            CheckRefused: There is no proxy: the broker is shared, or it is one of a cluster.
            FaultMissed: No such bytes were on their way.
        """
        proxy = self._network()
        proxy.hang(flow)
        self._note("network hangs", flow=flow)
        with self._healed(proxy, "held up"):
            yield

    @contextmanager
    def _healed(self, proxy: Proxy, what: str) -> Iterator[None]:
        try:
            yield
        finally:
            struck = proxy.struck()
            proxy.heal()
            self._note("network healed", struck=struck)
        if not struck:
            raise FaultMissed(
                f"Nothing was {what}: the jobs said nothing to Kafka meanwhile. Let a job run "
                f"(job.start()), and wait until it is at work.\n{self.trial.report()}"
            )

    def _mine(self, number: int) -> KafkaBroker:
        if not self.place.brokers:
            raise CheckRefused(
                "Other tests use this Kafka, too: nothing was done to it. Mark the test with "
                "@pytest.mark.eo_kafka(own=True), and it gets one of its own."
            )
        return self.place.brokers[number]

    def _network(self) -> Proxy:
        self._mine(0)
        if self.place.proxy is None:
            raise CheckRefused(
                "The network of a cluster cannot be cut: only one broker alone is behind a proxy. "
                "Mark the test with @pytest.mark.eo_kafka(own=True, nodes=1)."
            )
        return self.place.proxy

    def _note(self, what: str, **details: object) -> None:
        self.trial.history.add("kafka", what, **details)
