"""What a test of a job fails with. Each is an AssertionError: pytest shows it as a failure."""

from __future__ import annotations


class Anomaly(AssertionError):
    """The job's output is not what it must be. The message shows records, batches and faults."""


class JobFailed(AssertionError):
    """A driver of the job ended otherwise than it should, or did not do its work."""


class FaultMissed(AssertionError):
    """A fault that was asked for did not happen, so the test would have shown nothing."""


class CheckRefused(AssertionError):
    """A check that could only pass in silence: nothing to compare, or by nothing."""
