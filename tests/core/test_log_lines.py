"""Warnings of ours where nobody configured logging, and where somebody did."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

IMPORT = "import eo_kafka.errors"
WARN = "logging.getLogger('eo_kafka.sinks').warning('Topic %s is odd.', 't')"
OWN = "logging.basicConfig(format='mine: %(message)s')"
OWN_OF_OURS = "logging.getLogger('eo_kafka').addHandler(logging.StreamHandler())"


def said(*lines: str) -> str:
    program = "; ".join(("import logging", *lines))
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return ran.stderr


def test_a_warning_has_time_and_level() -> None:
    line = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARNING eo_kafka\.sinks: Topic t is odd\.\n"
    assert re.fullmatch(line, said(IMPORT, WARN))


@pytest.mark.parametrize("order", [(IMPORT, OWN), (OWN, IMPORT)])
def test_a_program_that_configures_logging_has_its_own_line_once(order: tuple[str, ...]) -> None:
    assert said(*order, WARN) == "mine: Topic t is odd.\n"


def test_a_handler_of_our_logger_alone_is_enough() -> None:
    assert said(IMPORT, OWN_OF_OURS, WARN) == "Topic t is odd.\n"


def test_the_root_logger_is_the_programs() -> None:
    ask = "r = logging.getLogger(); print(r.handlers, r.level, file=__import__('sys').stderr)"
    assert said(IMPORT, ask) == "[] 30\n"
