"""A writer that is refused while Spark pickles it says so itself."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer

from eo_kafka.connectors.pickling import tells_errors
from eo_kafka.errors import EnvironmentRefused, Fenced, OptionsError


class Writer:
    """Refused, by two methods of which one calls the other."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @tells_errors
    def check(self) -> dict[str, Any]:
        raise self._error

    @tells_errors
    def __getstate__(self) -> dict[str, Any]:
        return self.check()


@pytest.mark.parametrize("kind", [EnvironmentRefused, Fenced, OptionsError])
def test_an_error_of_ours_is_raised_as_it_is_and_printed_by_nobody(
    kind: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind(["There is no topic."] if kind is OptionsError else "There is no topic.")
    with pytest.raises(kind, match=r"^There is no topic\.$") as raised:
        CloudPickleSerializer().dumps(Writer(error))
    assert raised.value is error
    found = type(error)
    assert (found.__module__, found.__qualname__) == (kind.__module__, kind.__qualname__)
    assert capsys.readouterr().err == ""
    assert type(pickle.loads(pickle.dumps(error))) is kind
    assert pickle.loads(pickle.dumps(error)).args == error.args


def test_any_other_error_is_left_to_spark() -> None:
    with pytest.raises(Exception, match="Could not serialize object: KeyError: 'a'"):
        CloudPickleSerializer().dumps(Writer(KeyError("a")))
