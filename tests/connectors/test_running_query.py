"""Whether a checkpoint outlives the start that Spark made it for."""

from __future__ import annotations

import pytest

from eo_kafka.connectors.running_query import _is_of_one_start

ANEW = "0b1c5b2e-6f00-4000-8000-0123456789ab"


@pytest.mark.parametrize(
    ("checkpoint", "root", "is_one"),
    [
        (f"file:/tmp/temporary-{ANEW}", None, True),
        (f"file:/data/{ANEW}", "/data", True),
        (f"hdfs://nn/data/{ANEW}", "hdfs://nn/data", True),
        (f"file:/data/{ANEW}", None, False),
        (f"file:/other/{ANEW}", "/data", False),
        ("file:/data/orders", "/data", False),
        ("file:/data/temporary-orders", None, False),
    ],
)
def test_a_folder_that_spark_chose_is_told_from_one_that_a_user_did(
    checkpoint: str, root: str | None, is_one: bool
) -> None:
    assert _is_of_one_start(checkpoint, root) == is_one
