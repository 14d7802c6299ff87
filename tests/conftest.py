"""Settings of all unit tests."""

import pytest
from hypothesis import settings

# A deadline for one example measures the machine, not the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests of this folder are those of `make test`, but for the long ones."""
    if not item.get_closest_marker("long"):
        item.add_marker("unit")
