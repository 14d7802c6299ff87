"""The checkers: each reads topics with `read_committed` to their ends, and raises Anomaly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal, Inexact, localcontext
from typing import TYPE_CHECKING, Any

from . import trial
from .comparison import Compared, places
from .errors import Anomaly, CheckRefused
from .ids import Id, at, expected_ids, found_ids, ids_of, shown, some
from .order import out_of_order
from .records import Record, Value, await_settled, encoded
from .topics import Topic

if TYPE_CHECKING:
    from .job import Job

DIGITS = 10_000  # of a sum
Output = tuple[int | None, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def assert_exactly_once(
    source: str | Topic,
    sink: str | Topic,
    *,
    key: str | None = None,
    expected: Callable[[list[Record]], Iterable[Any]] | None = None,
    unique: bool = True,
) -> None:
    """Each record of the source has its output in the sink, once, and nothing else is there; no
    transaction is open in either. In the test, once for each comparison.

    Args:
        source: A topic of this test, by its name in the test.
        sink: Another one.
        key: What makes an output record the one of an input record: `key`, `value`, `record` (key
            and value), `header:NAME`, or `json:FIELD` of the value (dots lead into objects).
        expected: In place of a key: a function of the source's records that gives what must be in
            the sink, in any order. Values (bytes, text; dicts and lists are compared as JSON, with
            exact numbers: Decimals, floats by their digits), or pairs of key and value.
        unique: Whether the key must tell all records of the source apart. Without it, one record
            that is lost and one of the same key that is repeated cancel out.

    Raises:
        Anomaly: Something is lost, repeated, or foreign, or a transaction is open.
        CheckRefused: Nothing could be compared: an empty source, an unknown topic, records without
            that key, a job that has not come to the end of the source.

    Examples:
        >>> assert_exactly_once("orders", "billed", key="json:id")
        >>> assert_exactly_once("orders", "billed", expected=lambda all: [one.value for one in all])
    """
    __tracebackhide__ = True
    if (key is None) == (expected is None):
        raise CheckRefused("Give either key=... or expected=...: what should be in the sink?")
    of, read, to = _input(source, sink, every=True)
    output = to.read()
    if key is not None:
        wanted_ids = [*ids_of(of, read, key, unique)]
        wanted_at: Mapping[Id, list[Record]] = places(wanted_ids, read)
        wanted: Counter[Id] = Counter(wanted_ids)
        found: list[Id] = [*ids_of(to, output, key)]
    else:
        assert expected is not None
        wanted, is_json, has_keys = expected_ids(expected(read))
        if not wanted:
            raise CheckRefused(
                f"The function expects nothing in '{to.name}' of {len(read)} records of "
                f"'{of.name}': nothing would be compared."
            )
        wanted_at, found = {}, found_ids(output, is_json, has_keys)
    by = key or "a function"
    Compared(trial.current(), of, to, by, wanted, wanted_at, places(found, output)).check()


def assert_nothing_open(*topics: str | Topic) -> None:
    """No transaction is open in these topics: readers with `read_committed` come to their ends.
    Waits for 20 seconds at most.

    Args:
        topics: Topics of this test; none: all of them.

    Raises:
        Anomaly: One is open; its transactional id is in the message.
        CheckRefused: An unknown topic, or this test has none.
    """
    __tracebackhide__ = True
    now = trial.current()
    named = [now.find(one) for one in topics] or list(now.topics.values())
    if not named:
        raise CheckRefused("This test has no topic in which something could be open.")
    for topic in named:
        await_settled(topic.servers, topic.real_name)


def assert_order(source: str | Topic, sink: str | Topic, *, key: str) -> None:
    """In each partition of the sink, the records of each partition of the source stand in their
    order. What is lost or repeated is not looked for.

    Args:
        source: A topic of this test.
        sink: Another one.
        key: As for `assert_exactly_once`; it must tell all records of the source apart.

    Raises:
        Anomaly: Some changed places.
        CheckRefused: No two records were there whose order could be compared, and as
            `assert_exactly_once`.
    """
    __tracebackhide__ = True
    of, read, to = _input(source, sink, every=True)
    output = to.read()
    place = {
        one: (record.partition, record.offset)
        for one, record in zip(ids_of(of, read, key, unique=True), read, strict=True)
    }
    names = ids_of(to, output, key)
    pairs = Counter(
        (record.partition, place[one][0])
        for one, record in zip(names, output, strict=True)
        if one in place
    )
    if max(pairs.values(), default=0) < 2:
        raise CheckRefused(
            f"No two records of one partition of '{of.name}' are in one partition of '{to.name}': "
            "there is no order to compare."
        )
    rows = [(one.partition, one.offset, name) for name, one in zip(names, output, strict=True)]
    found = out_of_order(place, rows)
    if found:
        raise Anomaly(f"reordered: {len(found)} times: {some(found)}.\n{trial.current().report()}")


def assert_windows(
    source: str | Topic,
    sink: str | Topic,
    *,
    model: Callable[[list[Record]], Mapping[str, Value]],
    once: bool = False,
) -> None:
    """The newest record of each key in the sink is what a model says: the counts of windows, the
    totals of accounts.

    Args:
        source: A topic of this test.
        sink: Another one, written with keys.
        model: A function of the source's records that gives key -> value.
        once: Whether each key must be there once, as in append mode. Else later records of a key
            replace earlier ones, as in update mode.

    Raises:
        Anomaly: A key is missing, has another value, or should not be there.
        CheckRefused: The model gives nothing, a key is in two partitions (then none of its records
            is the newest), and as `assert_exactly_once`.
    """
    __tracebackhide__ = True
    of, read, to = _input(source, sink)
    wanted = {(encoded(name), encoded(value)) for name, value in model(read).items()}
    if not wanted:
        raise CheckRefused(f"The model gives no window of {len(read)} records of '{of.name}'.")
    output = to.read()
    homes: dict[bytes | None, Record] = {}
    for record in output:
        if homes.setdefault(record.key, record).partition != record.partition:
            raise CheckRefused(
                f"Key {shown(record.key)} is in two partitions of '{to.name}': its newest record "
                "cannot be told."
            )
        homes[record.key] = record
    counted = output if once else list(homes.values())
    found = places([(one.key, one.value) for one in counted], counted)
    Compared(trial.current(), of, to, "a model", Counter(wanted), {}, found).check()


def assert_sum(
    sink: str | Topic, *, amount: str | Callable[[Record], Any], equals: int | Decimal
) -> None:
    """The amounts in a topic add up: to nothing, in a bank of transfers. It says nothing of what
    cancels out: use it beside `assert_exactly_once`.

    Args:
        sink: A topic of this test.
        amount: `json:FIELD` of the value, or a function of a record that gives its amount.
        equals: What the sum must be.

    Raises:
        Anomaly: It is another.
        CheckRefused: The topic is empty, or a record has no amount.
    """
    __tracebackhide__ = True
    topic = trial.current().find(sink)
    records = topic.read()
    if not records:
        raise CheckRefused(f"Topic '{topic.name}' is empty: there is nothing to add up.")
    if callable(amount):
        amounts = [amount(record) for record in records]
    else:
        # A fraction of a JSON field is ["1.5"] there: see How.
        ids = [one.decode() for one in ids_of(topic, records, amount)]
        amounts = [json.loads(one)[0] if one[:2] == '["' else one.strip('"') for one in ids]
    numbers = [_number(one) for one in amounts]
    odd = [at(r) for r, one in zip(records, numbers, strict=True) if one is None]
    if odd:
        raise CheckRefused(f"{len(odd)} records of '{topic.name}' have no amount: {some(odd)}.")
    try:
        with localcontext(Context(prec=DIGITS, traps=[Inexact])):
            total = sum((one for one in numbers if one is not None), Decimal(0))
    except Inexact:
        raise CheckRefused(
            f"The sum of the amounts in '{topic.name}' has more than {DIGITS} digits."
        ) from None
    if total != equals:
        raise Anomaly(
            f"sum not constant: the {len(records)} amounts in '{topic.name}' add up to "
            f"{total}, and should to {equals}.\n{trial.current().report()}"
        )


def assert_deterministic(job: Job, *, newest: bool = False) -> None:
    """The job gives the same output for the same input once more: with a fresh checkpoint, into a
    topic of its own, without faults. Compares keys, values, headers, and the partitions of what has
    a key. What `rand()`, the clock, or the order of rows decides differs after a crash, too; then a
    batch that was partly committed cannot be mended. Takes one run.

    Args:
        job: One that has come to the end of its source.
        newest: Compare the newest record of each key only, for update mode: how batches were cut
            decides what stands before it.

    Raises:
        Anomaly: The outputs differ.
        CheckRefused: The job has not come to the end of its source, or there is no output.
        JobFailed: The second run fails.
    """
    __tracebackhide__ = True
    first = _newest(job.sink.read()) if newest else job.sink.read()
    if not job.drained or not first:
        raise CheckRefused("Let the job come to the end of its source first: job.run().")
    again = job.again()
    again.run()
    second = _newest(again.sink.read()) if newest else again.sink.read()
    counts = [Counter(map(_output, records)) for records in (first, second)]
    only = [counts[0] - counts[1], counts[1] - counts[0]]
    if any(only):
        raise Anomaly(
            f"not deterministic: the same input gave other output in a second run. "
            f"Only in the first: {only[0].total()} records: {some(map(_told, only[0]))}. "
            f"Only in the second: {only[1].total()}: {some(map(_told, only[1]))}. Look for rand(), "
            f"the clock, and what hangs on the order of rows in '{job.build}'.\n"
            f"{trial.current().report()}"
        )


def _input(
    source: str | Topic, sink: str | Topic, every: bool = False
) -> tuple[Topic, list[Record], Topic]:
    """What is compared, and all of the source; whether `every` record counts. Raises CheckRefused
    where that shows nothing."""
    now = trial.current()
    of, to = now.find(source), now.find(sink)
    if of.real_name == to.real_name:
        raise CheckRefused(f"'{of.name}' was to be compared with itself.")
    compacted = [topic.name for topic in (of, to) if every and topic.is_compacted()]
    if compacted:
        raise CheckRefused(
            f"Kafka compacts {compacted}: of a record that it has replaced nobody can say whether "
            "it was lost or repeated. Compare the newest of each key: assert_windows."
        )
    for job in now.jobs:
        if job.sink.real_name == to.real_name and not job.drained:
            raise CheckRefused(
                f"Job '{job.name}' has not come to the end of its source: call job.run() before "
                f"'{to.name}' is compared."
            )
    records = of.read()
    if not records:
        raise CheckRefused(f"Topic '{of.name}' is empty: there is nothing to compare.")
    return of, records, to


def _newest(records: Iterable[Record]) -> list[Record]:
    return list({one.key: one for one in records}.values())


def _number(amount: Any) -> Decimal | None:
    """An amount, exactly; None if it is none."""
    try:
        number = Decimal(str(amount))
    except ArithmeticError:
        return None
    return number if number.is_finite() else None


def _output(record: Record) -> Output:
    """What must be the same in a second run. What has no key goes to any partition."""
    at_ = None if record.key is None else record.partition
    return at_, record.key, record.value, record.headers


def _told(one: Output) -> str:
    partition, key, value, headers = one
    at_ = "" if partition is None else f" in partition {partition}"
    named = [f"{name}={shown(of)}" for name, of in headers]
    return f"{shown((key, value))}{at_}" + (f" with headers {', '.join(named)}" if named else "")
