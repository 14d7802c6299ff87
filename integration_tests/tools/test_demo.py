"""The demo in a short form: what `make demo` prints, and its exit code."""

from __future__ import annotations

import re

from demo_run import exact, run_demo


def test_a_killed_job_over_real_flights_loses_and_repeats_nothing(broker, tmp_path):
    told, said = run_demo(
        *("demo.py", "--format", "eo-kafka", "--bootstrap-servers", broker.bootstrap_servers),
        "--watch",
        *("--output", str(tmp_path), "--limit", "20000", "--seconds", "1", "--kills", "1"),
        timeout=300,
    )
    assert told == exact("20,000", "1")
    assert re.search(r"^ +0 +0 +DONE ", said, re.M), "its batches, as they were watched"
    (chart,) = tmp_path.glob("*/delays.png")
    assert chart.stat().st_size > 10_000


def test_a_killed_job_has_the_same_rows_in_a_topic_and_a_table(broker, eo_postgres, tmp_path):
    told, said = run_demo(
        *("demo.py", "--format", "eo-postgres", "--bootstrap-servers", broker.bootstrap_servers),
        *("--url", eo_postgres.url),
        *("--output", str(tmp_path), "--limit", "20000", "--seconds", "1", "--kills", "1"),
        timeout=300,
    )
    assert told == exact("20,000", "1")
    (rows,) = re.findall(
        r"^in the table of PostgreSQL: ([\d,]+) rows, ([\d,]+) expected", said, re.M
    )
    assert rows[0] == rows[1] != "0"
    assert "0 lost, 0 duplicates, 0 wrong" in said
