"""The demo in a short form: what `make demo` prints, and its exit code."""

from __future__ import annotations

from demo_run import exact, run_demo


def test_a_killed_job_over_real_flights_loses_and_repeats_nothing(broker, tmp_path):
    told, _ = run_demo(
        *("demo.py", "--format", "eo-kafka", "--bootstrap-servers", broker.bootstrap_servers),
        *("--output", str(tmp_path), "--limit", "20000", "--seconds", "1", "--kills", "1"),
        timeout=300,
    )
    assert told == exact("20,000", "1")
    (chart,) = tmp_path.glob("*/delays.png")
    assert chart.stat().st_size > 10_000
