"""What of a checkpoint's URL must not be logged."""

from __future__ import annotations

import re

# To the last `@`: also a password with a `/` in it that should have been escaped.
_SECRET = re.compile(r"(//[^/@:\s]*):\S*(?:@|%40)")
_SECRET_SETTING = re.compile(r"([?&](?:client_secret|sig)=)[^&\s]*")  # Azure's


def without_secrets(text: str) -> str:
    """A URL, or what was said about it, without that."""
    return _SECRET_SETTING.sub(r"\1***", _SECRET.sub(r"\1:***@", text))
