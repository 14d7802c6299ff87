"""A query with state, run in a driver of its own so that a test can kill it.

The one argument is JSON: see `Stateful` in harness.py. The input's values are JSON objects with
`k` (a key), `n` (a number, some of them twice) and `t` (event time in seconds).
"""

import json
import os
import sys
from contextlib import contextmanager

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import eo_kafka


def main() -> None:
    job = json.loads(sys.argv[1])
    builder = (
        SparkSession.builder.master(job["master"])
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
    )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    start_stateful(spark, job).awaitTermination()


def start_stateful(spark, job):
    """Start it from the checkpoint, or from the newest snapshot if there is none; the tests also
    call this with a session of their own."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    with settings(spark, job["conf"]):
        result = OPERATORS[job["operator"]](events(spark, job))
        rest = [name for name in result.columns if name != "topic"]
        topic = ["topic"] if "topic" in result.columns else []
        rows = result.select(*topic, f.to_json(f.struct(*rest)).alias("value"))
        sink = dict(job["sink_options"])
        if topic:
            del sink["topic"]
        if job["mode"] == "append":
            writer = rows.writeStream.format(job["sink"]).options(**sink)
        else:
            writer = rows.writeStream.option("checkpointLocation", sink.pop("checkpointLocation"))
            writer = writer.outputMode(job["mode"]).foreachBatch(eo_kafka.foreach_batch(sink))
        return eo_kafka.start(writer.trigger(availableNow=True))


@contextmanager
def settings(spark, conf):
    """The session with these settings, and then as it was."""
    before = {name: spark.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def events(spark, job):
    def read(watermark=True):
        rows = spark.readStream.format(job["source"]).options(**job["source_options"]).load()
        fields = f.from_json(f.col("value").cast("string"), "k STRING, n LONG, t LONG")
        rows = rows.select(fields.alias("e"), "partition").select("e.*", "partition")
        rows = rows.withColumn("t", f.timestamp_seconds("t"))
        if not watermark:
            return rows
        return rows.drop("partition").withWatermark("t", "10 seconds")

    return read


def window(read):
    grouped = read().groupBy(f.window("t", "10 seconds"), "k")
    return grouped.agg(f.count("*").alias("c"), f.sum("n").alias("s"))


def session(read):
    return (
        read().groupBy(f.session_window("t", "1500 milliseconds"), "k").agg(f.sum("n").alias("s"))
    )


def deduplication(read):
    return read().dropDuplicates(["n", "t"])


def join(read):
    left = read().where("n % 2 = 0").select(f.col("t").alias("lt"), f.col("n").alias("l"))
    right = read().where("n % 2 = 1").select(f.col("t").alias("rt"), f.col("n").alias("r"))
    near = "r = l + 1 AND rt >= lt AND rt <= lt + INTERVAL 20 SECONDS"
    return left.join(right, f.expr(near), "leftOuter")


def running_sum_of_rows(read):
    return _with_rows(read().select("k", "n").groupBy("k"), "None")


def running_sum_with_timers(read):
    from pyspark.sql import Row

    return _with_rows(read().groupBy("k"), "EventTime", _expiring(Row))


def _with_rows(grouped, time_mode, extended=lambda processor: processor):
    from pyspark.sql import Row

    processor = _processor(lambda key, rows, total: _rows(Row, key, rows, total), extended)
    return grouped.transformWithState(
        statefulProcessor=processor,
        outputStructType=_RUNNING,
        outputMode="Append",
        timeMode=time_mode,
    )


def running_sum_in_pandas(read):
    processor = _processor(_frames)
    grouped = read().select("k", "n").groupBy("k")
    return grouped.transformWithStateInPandas(
        statefulProcessor=processor, outputStructType=_RUNNING, outputMode="Append", timeMode="None"
    )


def sums_by_the_clock(read):
    """The sum of a key's rows, when it got its first one more than 30 seconds before."""
    import pandas as pd

    def processor(key, frames, state):
        now = state.getCurrentProcessingTimeMs()
        total, since = state.get if state.exists else (0, now)
        total += sum(int(n) for frame in frames for n in frame["n"])
        if now - since > 30_000:
            state.remove()
            yield pd.DataFrame({"k": [key[0]], "n": [-1], "total": [total]})
        else:
            state.update((total, since))

    grouped = read().select("k", "n").groupBy("k")
    return grouped.applyInPandasWithState(
        processor, _RUNNING, "total LONG, since LONG", "append", "NoTimeout"
    )


_RUNNING = "k STRING, n LONG, total LONG"


def _processor(outputs, extended=lambda processor: processor):
    from pyspark.sql.streaming import StatefulProcessor

    class RunningSum(StatefulProcessor):
        def init(self, handle):
            self._handle = handle
            self._total = handle.getValueState("total", "total LONG")

        def handleInputRows(self, key, rows, timerValues):
            total = self._total.get()[0] if self._total.exists() else 0
            total, results = outputs(key[0], rows, total)
            self._total.update((total,))
            yield from results

        def close(self):
            pass

    return extended(RunningSum)()


def _expiring(row):
    """Keeps a list of the sums after each batch and a map of last digits, until a timer in event
    time writes both out and clears them."""

    def extended(processor):
        class Expiring(processor):
            def init(self, handle):
                super().init(handle)
                self._sums = handle.getListState("sums", "total LONG")
                self._digits = handle.getMapState("digits", "digit LONG", "times LONG")

            def handleInputRows(self, key, rows, timerValues):
                found = list(super().handleInputRows(key, rows, timerValues))
                for result in found:
                    digit = (result.n % 10,)
                    times = (
                        self._digits.getValue(digit)[0] if self._digits.containsKey(digit) else 0
                    )
                    self._digits.updateValue(digit, (times + 1,))
                self._sums.appendValue((found[-1].total,))
                if not list(self._handle.listTimers()):
                    now = timerValues.getCurrentWatermarkInMs() or 1_000_000_000
                    self._handle.registerTimer(now + 12_000)
                yield from found

            def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
                for (total,) in self._sums.get():
                    yield row(
                        k=f"{key[0]} sums", n=expiredTimerInfo.getExpiryTimeInMs(), total=total
                    )
                for (digit,), (times,) in sorted(self._digits.iterator()):
                    yield row(k=f"{key[0]} ends in {digit}", n=-1, total=times)
                self._sums.clear()
                self._digits.clear()

        return Expiring

    return extended


def _rows(row, key, rows, total):
    results = []
    # Within a batch the order is the shuffle's; the running sum must not depend on it.
    for n in sorted(found["n"] for found in rows):
        total += n
        results.append(row(k=key, n=n, total=total))
    return total, results


def _frames(key, frames, total):
    import pandas as pd

    numbers = sorted(int(n) for frame in frames for n in frame["n"])
    sums = pd.Series(numbers, dtype="int64").cumsum() + total
    frame = pd.DataFrame({"k": key, "n": numbers, "total": sums})
    return int(total + sum(numbers)), [frame]


def tumbling(read):
    return _late_elsewhere(read, eo_kafka.windows.tumbling, size="10 seconds")


def sliding(read):
    return _late_elsewhere(read, eo_kafka.windows.sliding, size="10 seconds", slide="4 seconds")


def sessions(read):
    return _late_elsewhere(read, eo_kafka.windows.session, gap="3 seconds")


def by_partition(read):
    policy = eo_kafka.windows.by_partition("1 second", partitions=2, idle="40 seconds")
    return _late_elsewhere(read, eo_kafka.windows.tumbling, policy, size="10 seconds")


def _late_elsewhere(read, windows, watermark="10 seconds", **shape):
    """The results into one topic and late rows into another, which are the last part of the keys'
    names: k@results@late."""
    rows = read(watermark=False)
    results, late = (f.split("k", "@")[n] for n in (1, 2))
    ids = eo_kafka.windows.fold(
        "ARRAY<BIGINT>", [], lambda kept, row: [*kept, row["n"]], lambda one, other: one + other
    )
    found = windows(
        rows,
        time="t",
        by=["k"],
        aggregates={"c": eo_kafka.windows.count(), "ids": ids},
        watermark=watermark,
        allowed_lateness="8 seconds",
        early=True,
        **shape,
    )
    return found.withColumn("topic", f.when(f.col("kind") == "late", late).otherwise(results))


OPERATORS = {
    "tumbling": tumbling,
    "sliding": sliding,
    "sessions": sessions,
    "by_partition": by_partition,
    "window": window,
    "session": session,
    "deduplication": deduplication,
    "join": join,
    "rows": running_sum_of_rows,
    "timers": running_sum_with_timers,
    "pandas": running_sum_in_pandas,
    "by_the_clock": sums_by_the_clock,
}

if __name__ == "__main__":
    main()
