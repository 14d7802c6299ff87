"""A change to what users write is seen: it changes a file that is reviewed."""

from __future__ import annotations

from public_api import GOLDEN, listing

import eo_kafka


def test_names_signatures_options_and_defaults_are_those_that_were_agreed_on():
    assert listing() == GOLDEN.read_text(), (
        "the public API has changed: run 'make public-api', look at the difference, and say it in "
        "CHANGELOG.md"
    )


def test_dir_shows_what_can_be_used_for_a_notebook_to_complete():
    shown = dir(eo_kafka)
    assert {"foreach_batch", "restore", "start", "StateView", "__version__"} <= set(shown)
    assert all(getattr(eo_kafka, name) for name in shown)
