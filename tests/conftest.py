"""Settings of all unit tests."""

from collections.abc import Iterator
from logging import LogRecord

import pytest
from hypothesis import settings

# A deadline for one example measures the machine, not the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_itemcollected(item: pytest.Item) -> None:
    """So that `make test` can choose them, and of the integration tests the smoke set."""
    item.add_marker("unit")


def is_of_the_test(record: LogRecord) -> bool:
    """Threads of kafka-python outlive the test that had them, and log their lost connections."""
    return record.name.startswith(("eo_kafka", "httpx"))


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What eo-kafka logs, for whatever tests ran before in this process."""
    caplog.handler.addFilter(is_of_the_test)
    yield caplog
    caplog.handler.removeFilter(is_of_the_test)
