"""A change to what users write is seen: it changes a file that is reviewed."""

from __future__ import annotations

from public_api import GOLDEN, listing


def test_names_signatures_options_and_defaults_are_those_that_were_agreed_on():
    assert listing() == GOLDEN.read_text(), (
        "the public API has changed: run 'make public-api', look at the difference, and say it in "
        "CHANGELOG.md"
    )
