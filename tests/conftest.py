"""Settings of all unit tests."""

from hypothesis import settings

# A deadline for one example measures the machine, not the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
