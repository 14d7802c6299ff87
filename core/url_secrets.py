"""What of a URL must not be told."""

from __future__ import annotations

import re

# To the last `@`: also a password with a `/` in it that should have been escaped.
_LOGIN = re.compile(r"(//[^/@:\s]*):\S*(?:@|%40)")
_USER = re.compile(r"(https?://)[^/@:\s]+@", re.IGNORECASE)  # it may be a token
_SETTING = re.compile(
    r"([?&](?:[^=&\s]*(?:secret|token|passw|credential|key)[^=&\s]*|code|sas|sig)=)[^&\s]*",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """A URL, or what was said about it, without that."""
    text = _USER.sub(r"\1***@", _LOGIN.sub(r"\1:***@", text))
    return _SETTING.sub(r"\1***", text)
