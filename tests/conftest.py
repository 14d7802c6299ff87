"""Settings of all unit tests."""

import pytest
from hypothesis import settings

# A deadline for one example measures the machine, not the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_itemcollected(item: pytest.Item) -> None:
    """So that `make test` can choose them, and of the integration tests the smoke set."""
    item.add_marker("unit")
