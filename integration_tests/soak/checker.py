"""What went wrong, if anything: pure functions from what happened to named anomalies.

lost                an input record's output is not there
lost input          a record that Kafka acknowledged is not in the input topic
duplicate           an output record is there more often than it should
foreign             an output record that no input record explains
aborted read        a record of an aborted transaction was seen
reordered           rows of one input partition changed places where their order is promised
torn batch          a batch was DONE and part of its rows were not there, or not committed
sum not constant    the entries of the batches that are DONE do not add up to 0
not a prefix        a reader that watched saw what is not the beginning of the final log
hung transaction    something is still open after everything was settled
ledger              the batches are not DONE once each, without a gap
refused             the job stopped and asked for a person, where nothing called for that
left open           a query was stopped, and what it had prepared stayed open
stuck               the job did not come to the end of its input after all faults had ended
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from eo_kafka.testing.driver import REFUSALS
from eo_kafka.testing.history import Event, Row
from eo_kafka.testing.order import out_of_order
from soak.history import Done
from soak.workload import ABORTED, Entry, amount

SHOWN = 5


@dataclass(frozen=True)
class Anomaly:
    """`job` has an anomaly of a kind; `batches` are those whose history tells more."""

    kind: str
    job: str
    text: str
    batches: tuple[int, ...] = ()


@dataclass(frozen=True)
class Observed:
    """All that is known of one job in the end."""

    job: str
    acknowledged: Sequence[Entry]  # what Kafka acknowledged to the producer
    source: Sequence[Row]  # the input, each partition in order, read_committed
    output: Sequence[Row]  # the output, so too
    watched: Sequence[Row]  # what the reader saw that watched all the while
    done: Sequence[Done]
    expected: Counter[Entry]
    outputs: Callable[[Row], list[Entry]] | None  # see Workload
    ordered: bool = False
    balanced: bool = False


def check(seen: Observed, events: Sequence[Event]) -> list[Anomaly]:
    """All anomalies of one job."""
    mine = [event for event in events if event.who == seen.job]
    return [
        *lost_input(seen),
        *differences(seen),
        *aborted_reads(seen),
        *(reordered(seen) if seen.ordered else ()),
        *(torn_batches(seen) if seen.outputs else ()),
        *done_too_soon(seen),
        *not_a_prefix(seen),
        *wrong_ledger(seen.job, mine),
        *refused(seen.job, mine),
        *left_open(seen.job, events),
    ]


def lost_input(seen: Observed) -> list[Anomaly]:
    """Acknowledged records that the input does not have. Not ours: but what follows would be."""
    missing = Counter(seen.acknowledged) - Counter(map(_entry, seen.source))
    return _of_entries("lost input", seen.job, missing)


def differences(seen: Observed) -> list[Anomaly]:
    """Compare multisets of keys and values: lost, duplicate, foreign."""
    found = Counter(_entry(row) for row in seen.output if not _is_aborted(row))
    extra = found - seen.expected
    foreign = Counter({entry: n for entry, n in extra.items() if entry not in seen.expected})
    batches = _batches_of_outputs(seen)
    return [
        *_of_entries("lost", seen.job, seen.expected - found, batches),
        *_of_entries("duplicate", seen.job, extra - foreign, batches),
        *_of_entries("foreign", seen.job, foreign),
    ]


def aborted_reads(seen: Observed) -> list[Anomaly]:
    """Records of transactions that were aborted, in any view."""
    everywhere = itertools.chain(seen.source, seen.output, seen.watched)
    found = Counter(_entry(row) for row in everywhere if _is_aborted(row))
    return _of_entries("aborted read", seen.job, found)


def reordered(seen: Observed) -> list[Anomaly]:
    """Each output partition must have the rows of each input partition in their order."""
    place = {_entry(row): (row.partition, row.offset) for row in seen.source}
    found = out_of_order(place, ((row.partition, row.offset, _entry(row)) for row in seen.output))
    return _summed("reordered", seen.job, found)


def torn_batches(seen: Observed) -> list[Anomaly]:
    """Of each batch that was DONE, all rows must stand in the output below the high watermarks
    seen after it; and where the rows are a bank's entries, the DONE ones add up to 0."""
    assert seen.outputs is not None
    at: dict[Entry, Row] = {}
    for row in seen.output:
        at.setdefault(_entry(row), row)
    anomalies: list[Anomaly] = []
    total = 0
    for done, entries in _new_outputs(seen):
        there = [entry for entry in entries if _is_below(at.get(entry), done.output_ends)]
        if len(there) < len(entries):
            missing = sorted(map(_shown, set(entries) - set(there)))
            of = f"{len(there)} of {len(entries)} rows"
            text = f"batch {done.batch} was DONE with {of}; missing: {_some(missing)}"
            anomalies.append(_torn(seen.job, text, done))
        if seen.balanced:
            change = sum(map(amount, there))
            total += change
            if change:
                text = f"the entries up to batch {done.batch}, when it was DONE, add up to {total}"
                anomalies.append(Anomaly("sum not constant", seen.job, text, (done.batch,)))
    return anomalies


def done_too_soon(seen: Observed) -> list[Anomaly]:
    """Each batch is DONE when all its transactions are ended, and not before."""
    return [
        _torn(seen.job, f"batch {done.batch} was DONE with {_some(done.still_open)} open", done)
        for done in seen.done
        if done.still_open
    ]


def not_a_prefix(seen: Observed) -> list[Anomaly]:
    """What was watched, partition by partition, is the beginning of what is there in the end."""
    final, watched = _by_partition(seen.output), _by_partition(seen.watched)
    found = []
    for partition, rows in watched.items():
        pairs = itertools.zip_longest(rows, final.get(partition, [])[: len(rows)])
        for index, (saw, there) in enumerate(pairs):
            if saw != there:
                found.append(
                    f"record {index} of partition {partition} was {_told(saw)} to the reader that "
                    f"watched, and is {_told(there)} in the end"
                )
                break
    return _summed("not a prefix", seen.job, found)


def wrong_ledger(job: str, events: Sequence[Event]) -> list[Anomaly]:
    """Batches are DONE in order, each once, none is left undone, and all of it can be read."""
    done = [event.details["batch"] for event in events if event.what == "done"]
    states: dict[int, str] = {}
    for event in events:
        if event.what in ("decided", "done", "void"):
            states[event.details["batch"]] = event.what
    undone = tuple(sorted(batch for batch, state in states.items() if state != "done"))
    unreadable = [event.details["why"] for event in events if event.what == "unreadable"]
    found = _summed("ledger", job, unreadable)
    for before, batch in zip([-1, *done], done, strict=False):
        if batch != before + 1:
            text = f"batch {batch} was DONE after batch {before}"
            found.append(Anomaly("ledger", job, text, (before, batch)))
    if undone:
        found.append(Anomaly("ledger", job, f"batches {list(undone)} were never DONE", undone))
    return found


def refused(job: str, events: Sequence[Event]) -> list[Anomaly]:
    """Ends that ask for a person."""
    return [
        Anomaly("refused", job, f"{event.details['why']}: {event.details['told']}")
        for event in events
        if event.what == "end" and event.details["why"] in REFUSALS
    ]


def left_open(job: str, events: Sequence[Event]) -> list[Anomaly]:
    """Transactions of stopped queries, unless a broker was in trouble at that time."""
    struck = [
        (event.details["begun"], event.t)
        for event in events
        if (event.who, event.what) == ("brokers", "fault")
    ]
    found = []
    for event in events:
        left = event.details.get("left_open") if (event.who, event.what) == (job, "fault") else None
        begun = event.details.get("begun", event.t)
        if left and not any(start <= event.t and end >= begun - 10 for start, end in struck):
            found.append(f"{len(left)} after the stop at {event.t:.0f} s: {', '.join(left)}")
    return _summed("left open", job, found)


def hung(
    job: str, unstable: Mapping[tuple[str, int], tuple[int, int]], still_open: Iterable[str]
) -> list[Anomaly]:
    """`unstable` are (last stable offset, high watermark) by topic and partition where they
    differ, and `still_open` transactional ids, after everything was settled."""
    found = [
        f"{topic}-{number} is stable to {stable} of {high}"
        for (topic, number), (stable, high) in unstable.items()
    ]
    found += [f"{name} is ongoing" for name in still_open]
    return _summed("hung transaction", job, found)


def stuck(job: str, seconds: float) -> Anomaly:
    """The job got no further."""
    text = f"not at the end of its input {seconds:.0f} s after all faults had ended"
    return Anomaly("stuck", job, text)


def story(anomaly: Anomaly, events: Sequence[Event], before_s: float = 30.0) -> list[Event]:
    """The events that matter for an anomaly: the job's and the faults', around its batches."""
    mine = [event for event in events if event.who == anomaly.job]
    about = [event.t for event in mine if event.details.get("batch") in anomaly.batches]
    if not about:
        about = [event.t for event in mine if event.details.get("told", "\0") in anomaly.text]
    begin = min(about, default=0.0) - before_s
    end = max(about, default=float("inf")) + 5
    concerned = (anomaly.job, "brokers")
    return [event for event in events if begin <= event.t <= end and event.who in concerned]


def _new_outputs(seen: Observed) -> Iterable[tuple[Done, list[Entry]]]:
    """For each observation of DONE, the outputs that its input has beyond the one before."""
    assert seen.outputs is not None
    source = _by_partition(seen.source)
    taken: defaultdict[int, int] = defaultdict(int)
    for done in seen.done:
        entries = []
        for partition, end in done.input_ends.items():
            rows = source.get(partition, [])
            while taken[partition] < len(rows) and rows[taken[partition]].offset < end:
                entries += seen.outputs(rows[taken[partition]])
                taken[partition] += 1
        yield done, entries


def _batches_of_outputs(seen: Observed) -> dict[Entry, int]:
    if seen.outputs is None:
        return {}
    return {entry: done.batch for done, entries in _new_outputs(seen) for entry in entries}


def _entry(row: Row) -> Entry:
    return row.key, row.value


def _is_aborted(row: Row) -> bool:
    return row.value is not None and row.value.startswith(ABORTED)


def _shown(entry: Entry) -> str:
    key, value = ("null" if one is None else one for one in entry)
    return f"{key}: {value}"


def _torn(job: str, text: str, done: Done) -> Anomaly:
    return Anomaly("torn batch", job, text, (done.batch,))


def _is_below(row: Row | None, ends: Mapping[int, int]) -> bool:
    return row is not None and row.offset < ends.get(row.partition, 0)


def _by_partition(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.partition].append(row)
    return found


def _of_entries(
    kind: str, job: str, entries: Counter[Entry], batches: Mapping[Entry, int] | None = None
) -> list[Anomaly]:
    if not entries:
        return []
    text = f"{entries.total()} records: {_some(map(_shown, entries))}"
    known = {batches[entry] for entry in entries if entry in batches} if batches else set()
    return [Anomaly(kind, job, text, tuple(sorted(known)[:SHOWN]))]


def _summed(kind: str, job: str, found: Sequence[str]) -> list[Anomaly]:
    return [Anomaly(kind, job, f"{len(found)} times: {_some(found)}")] if found else []


def _some(values: Iterable[str]) -> str:
    shown = list(itertools.islice(values, SHOWN + 1))
    return ", ".join(shown[:SHOWN]) + (", ..." if len(shown) > SHOWN else "")


def _told(row: Row | None) -> str:
    return "nothing" if row is None else f"'{_shown(_entry(row))}' at offset {row.offset}"
