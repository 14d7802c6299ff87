"""Files keep what a target promises, for readers that honour the manifest and for plain ones."""

from __future__ import annotations

from collections import Counter

import polars
import pyarrow as pa
import pytest

from eo_kafka.testing import check_target
from files_job import REFERENCE, honest_rows, plain_rows, settings_of, words


def rows(number: int) -> pa.Table:
    return words(*[number * 100 + n for n in range(20)])


@pytest.mark.parametrize("file_format", ["json", "csv"])
@pytest.mark.timeout(300)
def test_json_and_csv_keep_their_promises(tmp_path, file_format):
    path = str(tmp_path / "orders")
    settings = settings_of(path, fileformat=file_format)
    check_target(REFERENCE, settings, rows, lambda: honest_rows(path), kills=3)


@pytest.mark.timeout(300)
def test_parquet_keeps_its_promises(tmp_path):
    path = str(tmp_path / "orders")

    def shown():
        found = honest_rows(path)
        assert Counter(plain_rows(path)) <= Counter(found)
        return found

    check_target(REFERENCE, settings_of(path), rows, shown, kills=6)
    assert Counter(plain_rows(path)) == Counter(honest_rows(path))
    globbed = polars.read_parquet(f"{path}/batch=*/*.parquet", hive_partitioning=False)
    assert Counter(globbed.rows()) == Counter(honest_rows(path))
