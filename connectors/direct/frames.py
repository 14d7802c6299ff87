"""`eo_kafka.pandas_frames` and `eo_kafka.polars_frames`: transforms that are written for frames.

Every value stays what it was: a pandas frame has Arrow's types, by which an integer beside a null
is still an integer. What a frame holds in another type on its way out is written only if nothing is
lost (`shape.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from ...core.errors import EnvironmentRefused, OptionsError, SinkError
from ...formats.shared.arrow_types import nullable
from .given import Given, iterated
from .objects import of_objects
from .shape import cannot_be_written, check_names, not_one_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

_GAPS = (
    "pandas makes floats of integers when some are missing, and large ones lose digits: keep "
    "'int64[pyarrow]' or 'Int64', or say .astype('int64[pyarrow]')"
)


class FrameTransform(ABC):
    """A transform whose function sees frames. Pickled to the tasks with its function."""

    library: ClassVar[str]
    frame: ClassVar[str]  # in sentences

    def __init__(self, function: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
        if not callable(function):
            raise OptionsError(
                [
                    f"eo_kafka.{self.library}_frames needs a function from an iterator of "
                    f"{self.frame} to another one; it was given a {type(function).__name__}."
                ]
            )
        if find_spec(self.library) is None:
            raise OptionsError([self._missing()])
        self._function = function
        self._shape: pa.Schema | None = None

    def written_as(self, shape: pa.Schema) -> FrameTransform:
        """The same for columns of these types."""
        made = copy(self)
        made._shape = shape
        return made

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Executor, once a task attempt. Raises SinkError, and EnvironmentRefused where the library
        is not installed."""
        import pyarrow as pa

        if self._shape is None:
            raise SinkError(
                f"eo_kafka.{self.library}_frames is for 'transform' of eo_kafka.direct and "
                "eo_kafka.direct_batch."
            )
        if find_spec(self.library) is None:
            raise EnvironmentRefused(self._missing())
        frames = Given(map(self._frame_of, batches), self.frame)
        for frame in iterated(self._function(frames), self.frame):
            if not self._is_frame(frame):
                raise not_one_of(frame, f"a {self.frame}")
            check_names(list(frame.columns), self._shape)
            columns = self._columns(frame, self._shape)
            yield pa.RecordBatch.from_arrays(columns, names=self._shape.names)

    def _missing(self) -> str:
        return (
            f"eo_kafka.{self.library}_frames needs {self.library} on driver and executors: "
            f"pip install 'eo-kafka[{self.library}]'."
        )

    @abstractmethod
    def _frame_of(self, batch: pa.RecordBatch) -> Any: ...

    @abstractmethod
    def _is_frame(self, given: object) -> bool: ...

    @abstractmethod
    def _columns(self, frame: Any, shape: pa.Schema) -> list[pa.Array]:
        """Raises SinkError."""


class _Pandas(FrameTransform):
    library, frame = "pandas", "pandas.DataFrame"

    def _frame_of(self, batch: pa.RecordBatch) -> pd.DataFrame:
        import pandas as pd

        # pandas casts, and the null records of Avro and JSON have nulls in what is NOT NULL
        return batch.cast(nullable(batch.schema)).to_pandas(types_mapper=pd.ArrowDtype)

    def _is_frame(self, given: object) -> bool:
        import pandas as pd

        return isinstance(given, pd.DataFrame)

    def _columns(self, frame: pd.DataFrame, shape: pa.Schema) -> list[pa.Array]:
        return [_of_series(frame[field.name], field) for field in shape]


class _Polars(FrameTransform):
    library, frame = "polars", "polars.DataFrame"

    def _frame_of(self, batch: pa.RecordBatch) -> pl.DataFrame:
        import polars as pl

        found = pl.from_arrow(batch)
        assert isinstance(found, pl.DataFrame)
        return found

    def _is_frame(self, given: object) -> bool:
        import polars as pl

        return isinstance(given, pl.DataFrame)

    def _columns(self, frame: pl.DataFrame, shape: pa.Schema) -> list[pa.Array]:
        import polars as pl
        import pyarrow as pa

        columns = []
        for field in shape:
            series = frame.get_column(field.name)
            if series.dtype == pl.Object:  # Arrow would be given where they are in memory
                why = "polars does not say what its objects are"
                raise cannot_be_written(field.name, series.dtype, field.type, why)
            try:
                columns.append(series.to_arrow(compat_level=pl.CompatLevel.oldest()))
            except (pa.ArrowException, pl.exceptions.PolarsError) as error:
                raise cannot_be_written(field.name, series.dtype, field.type, error) from None
        return columns


def _of_series(series: pd.Series[Any], field: pa.Field) -> pa.Array:
    """Raises SinkError."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.types as kinds

    dtype = series.dtype
    held = dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
    try:
        kind = held.kind if isinstance(held, np.dtype) else ""
        if kind == "O":
            return of_objects(series, field)
        if kind == "f" and kinds.is_integer(field.type):
            raise cannot_be_written(field.name, dtype, field.type, _GAPS)
        found = pa.array(series, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise cannot_be_written(field.name, dtype, field.type, error) from None
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def pandas_frames(
    function: Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]],
) -> FrameTransform:
    """Make a `transform` for `eo_kafka.direct` of a function of pandas frames.

    The function is as `DataFrame.mapInPandas` takes it. Its frames have Arrow's types
    (`pandas.ArrowDtype`), so that a null makes no float of an integer, and decimals, times and
    bytes are what they were. Needs `eo-kafka[pandas]`. Called on the driver; the function runs on
    executors, once a task attempt.

    Args:
        function: From an iterator of `pandas.DataFrame` with the source's columns to one of frames
            with those of `schema`. Frames' indexes are not written, nor are other columns. It must
            take all frames that it is given.

    Returns:
        The transform.

    Raises:
        OptionsError: pandas is not installed, or `function` is none. On executors a frame whose
            values would not be written as they are raises SinkError, and nothing of the batch
            is visible: floats for a column of integers, times with a zone for one without.

    Examples:
        >>> def known(frames):
        ...     for frame in frames:
        ...         yield frame[frame["key"].notna()]
        >>> eo_kafka.direct_batch(
        ...     spark,
        ...     source={**kafka, "subscribe": "orders"},
        ...     transform=eo_kafka.pandas_frames(known),
        ...     sink={**kafka, "topic": "known"},
        ... ).save()
    """
    return _Pandas(function)


def polars_frames(
    function: Callable[[Iterator[pl.DataFrame]], Iterator[pl.DataFrame]],
) -> FrameTransform:
    """Make a `transform` for `eo_kafka.direct` of a function of polars frames.

    Needs `eo-kafka[polars]`. Called on the driver; the function runs on executors, once a task
    attempt.

    Args:
        function: From an iterator of `polars.DataFrame` with the source's columns to one of frames
            with those of `schema`. Other columns are not written. It must take all frames that it
            is given.

    Returns:
        The transform.

    Raises:
        OptionsError: polars is not installed, or `function` is none. On executors a frame whose
            values would not be written as they are raises SinkError, and nothing of the batch is
            visible.

    Examples:
        >>> def known(frames):
        ...     for frame in frames:
        ...         yield frame.drop_nulls("key")
        >>> eo_kafka.direct_batch(
        ...     spark,
        ...     source={**kafka, "subscribe": "orders"},
        ...     transform=eo_kafka.polars_frames(known),
        ...     sink={**kafka, "topic": "known"},
        ... ).save()
    """
    return _Polars(function)
