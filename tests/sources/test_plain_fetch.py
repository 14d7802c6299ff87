"""What messages of the client mean, where no broker can be made to send them in this order."""

from __future__ import annotations

from typing import Any

from eo_kafka.sources.fetch.plain import from_messages

GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED = 30, 29


class Refusal:
    """A message of librdkafka's that is an error."""

    def __init__(self, code: int) -> None:
        self._code = code

    def error(self) -> Any:
        return self

    def code(self) -> int:
        return self._code

    def str(self) -> str:
        return "refused"


def test_an_error_about_the_group_hides_none_about_the_topic() -> None:
    """Each is told once. A slow first read found both at the same time, and then nothing more."""
    both = [Refusal(GROUP_AUTHORIZATION_FAILED), Refusal(TOPIC_AUTHORIZATION_FAILED)]

    assert from_messages(both, 10, False).error == (TOPIC_AUTHORIZATION_FAILED, "refused")
    assert from_messages(both[:1], 10, False).error is None
