"""What a schema registry's client does not take: told with other bad options; nobody is asked."""

from __future__ import annotations

import pickle
from pathlib import Path

import certifi
import pytest

from eo_kafka.errors import OptionsError
from eo_kafka.formats.options import FormatOptions
from eo_kafka.formats.shared.registry import Registry

NOBODY = "http://127.0.0.1:1"
MARKER = "hunter2Secret"
WRONG = [
    ({"basic.auth.user.inf": f"me:{MARKER}"}, "basic.auth.user.inf"),
    ({"basic.auth.user.info": MARKER}, "basic.auth.user.info must be in the form"),
    ({"bearer.auth.token": MARKER}, "'bearer.auth.credentials.source'"),
    (
        {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": MARKER},
        "bearer.auth.logical.cluster",
    ),
    ({"ssl.ca.location": "/nope"}, "'ssl.ca.location' ('/nope')"),
    ({"ssl.key.location": "/nope"}, "ssl.certificate.location required"),
    ({"proxy": f"http://me:{MARKER}/x@host"}, "InvalidURL"),
    ({"proxy": f"ftp://me:{MARKER}@host"}, "proxy"),
    ({"url": f"ftp://registry?token={MARKER}"}, "Invalid url ftp://registry"),
]


@pytest.mark.parametrize(("settings", "told"), WRONG)
def test_they_are_named_with_all_other_bad_options(settings: dict[str, str], told: str) -> None:
    given = {f"schema.registry.{name}": value for name, value in settings.items()}
    given = {"schema.registry.url": NOBODY, "value.format": "avro", "mode": "perhaps", **given}
    with pytest.raises(OptionsError) as refused:
        FormatOptions.of_reader({**given, "subscribe": "topic"})
    of_registry = [one for one in refused.value.problems if "schema registry" in one]
    assert len(of_registry) == 1 and told in of_registry[0]
    assert any("'mode'" in one for one in refused.value.problems)
    assert "answer" not in of_registry[0] and MARKER not in str(refused.value)


def test_a_file_that_only_another_machine_has_is_named_there(tmp_path: Path) -> None:
    """Of a task, say, that got its settings from the driver."""
    authority = tmp_path / "ca.pem"
    authority.write_bytes(Path(certifi.where()).read_bytes())
    sent = pickle.dumps(Registry({"url": NOBODY, "ssl.ca.location": str(authority)}))
    authority.unlink()
    with pytest.raises(OptionsError, match=rf"'ssl.ca.location' \('{authority}'\)"):
        pickle.loads(sent).schema(1)
