"""A RabbitMQ behind TLS: its certificate is checked, whatever the URL says of it."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from eo_kafka.broker.rabbitmq import RabbitMQ
from eo_kafka.broker.settings import free_port
from eo_kafka.errors import EnvironmentRefused
from harness import committed
from queue_job import copy_of, numbered, once, publish
from secure_broker import Certificates


@pytest.mark.usefixtures("eo_rabbitmq")  # skipped where there is none
def test_a_server_is_trusted_by_its_authority_and_its_name(broker, make_topic, tmp_path) -> None:
    made, port = Certificates(tmp_path), free_port()
    settings = {
        "listeners.ssl.default": f"127.0.0.1:{port}",
        "ssl_options.cacertfile": made.ca,
        "ssl_options.certfile": made.broker,
        "ssl_options.keyfile": made.broker.with_suffix(".key"),
    }
    with RabbitMQ(settings) as server:
        job = copy_of(server.url, broker.bootstrap_servers, make_topic, tmp_path)
        publish(job.url, job.queue, numbered(10))

        def url(host: str, **options: str) -> str:
            said = f"?ssl_options={quote(str(options))}" if options else ""
            return f"amqps://guest:guest@{host}:{port}/%2F{said}"

        right = {"ca_certs": str(made.ca)}
        for wrong in (
            url("localhost"),  # an authority that this machine does not know
            url("localhost", **right, server_hostname="elsewhere.example.org"),
        ):
            with pytest.raises(EnvironmentRefused, match="is not trusted.*ca_certs"):
                job.receiver(url=wrong).receive()
        assert job.receiver(url=url("localhost", **right)).receive(all_there=True) == 10
    assert committed(job.servers, job.source_topic) == once(numbered(10))
