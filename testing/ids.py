"""What makes two records the same, for a comparison; refuses what would compare nothing."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..core.errors import EoKafkaError
from ..tools.verify.topic_diff import How
from .errors import CheckRefused
from .records import Record, encoded, is_double, parsed

if TYPE_CHECKING:
    from .topics import Topic

Id = bytes | tuple[bytes | None, bytes | None] | None
SHOWN = 5
LONG = 400  # digits that are written out


def ids_of(topic: Topic, records: Sequence[Record], key: str, unique: bool = False) -> list[bytes]:
    """The id of each record by `key`, `value`, `record`, `header:NAME` or `json:FIELD`. Raises
    CheckRefused where a record has none, or, if they must be `unique`, two have the same."""
    import pyarrow as pa

    batch = pa.table(
        {
            "topic": [topic.name] * len(records),
            "partition": [one.partition for one in records],
            "offset": [one.offset for one in records],
            "key": pa.array([one.key for one in records], pa.binary()),
            "value": pa.array([one.value for one in records], pa.binary()),
            "headers": [[{"key": k, "value": v} for k, v in one.headers] for one in records],
        }
    ).combine_chunks()
    try:
        how = How.parse(key)
        ids = [one for part in batch.to_batches() for one in how.ids(part)]
    except EoKafkaError as error:
        raise CheckRefused(str(error).replace("--by ", "key ")) from None
    missing = [at(one) for one, name in zip(records, ids, strict=True) if name is None]
    if missing:
        raise CheckRefused(
            f"{len(missing)} of {len(records)} records of '{topic.name}' have no '{key}': "
            f"{some(missing)}. By this key they cannot be told from each other."
        )
    found = [one for one in ids if one is not None]
    repeated = [name for name, number in Counter(found).items() if number > 1]
    if unique and repeated:
        raise CheckRefused(
            f"By '{key}' {len(repeated)} ids of '{topic.name}' stand in several records: "
            f"{some(map(shown, repeated))}. One of those that is lost and another that is repeated "
            "would look like nothing. Choose another key, or say unique=False."
        )
    return found


def expected_ids(values: Iterable[Any]) -> tuple[Counter[Id], bool, bool]:
    """The multiset that a function expects; whether it is of JSON, and of pairs."""
    listed = list(values)
    with_keys = [isinstance(one, tuple) for one in listed]
    if any(with_keys) and not all(with_keys):
        raise CheckRefused("The function expects values, and pairs of key and value: not both.")
    bare = [one[1] if isinstance(one, tuple) else one for one in listed]
    of_json = [isinstance(one, dict | list) for one in bare]
    if any(of_json) and not all(of_json):
        raise CheckRefused("The function expects JSON, and text or bytes: not both.")
    is_json, has_keys = any(of_json), any(with_keys)
    ids: list[Id] = [_canonical(one) if is_json else encoded(one) for one in bare]
    if has_keys:
        ids = [
            (encoded(pair[0]), value if not isinstance(value, tuple) else None)
            for pair, value in zip(listed, ids, strict=True)
        ]
    return Counter(ids), is_json, has_keys


def found_ids(records: Sequence[Record], is_json: bool, has_keys: bool) -> list[Id]:
    """The same of what is in the topic. Values that are not JSON stay what they are."""
    values = [_parsed(one.value) if is_json else one.value for one in records]
    if not has_keys:
        return list(values)
    return [(one.key, value) for one, value in zip(records, values, strict=True)]


def shown(one: Id) -> str:
    """For a message."""
    if isinstance(one, tuple):
        return f"{shown(one[0])}: {shown(one[1])}"
    text = "null" if one is None else one.decode("utf-8", "backslashreplace")
    return text if len(text) <= 80 else f"{text[:77]}..."


def at(record: Record) -> str:
    """Its place, `partition@offset`."""
    return f"{record.partition}@{record.offset}"


def some(words: Iterable[str]) -> str:
    """The first few, for a message."""
    listed = list(itertools.islice(words, SHOWN + 1))
    return ", ".join(listed[:SHOWN]) + (", ..." if len(listed) > SHOWN else "")


def _canonical(value: Any) -> bytes:
    """The same for what is the same in JSON, and for nothing else: 1.50 and 15e-1 are 1.5."""
    return _text(value).encode()


def _text(value: Any) -> str:
    if isinstance(value, dict):
        named = {name if isinstance(name, str) else json.dumps(name): value[name] for name in value}
        return f"{{{', '.join(f'{json.dumps(n)}: {_text(named[n])}' for n in sorted(named))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, float):
        return _fraction(Decimal(repr(value)))
    if isinstance(value, Decimal):
        is_whole = value.as_tuple().exponent == 0
        return str(value) if is_whole else _fraction(value)
    return json.dumps(value)


def _fraction(number: Decimal) -> str:
    """Exact, and with a point: an integer is another value."""
    if not number.is_finite():
        return str(number)
    if abs(number.adjusted()) > LONG:
        sign, digits, exponent = number.as_tuple()
        stripped = "".join(map(str, digits)).rstrip("0")
        zeros = len(digits) - len(stripped)
        return f"{'-' * sign}{stripped or 0}.e{int(exponent) + zeros if stripped else 0}"
    whole, _, rest = f"{number:f}".partition(".")
    return f"{whole}.{rest.rstrip('0') or 0}"


def _fraction_of(text: str) -> float | Decimal:
    """Of JSON's text, which is no integer."""
    number = Decimal(text)
    if is_double(text, number):
        return float(text)
    sign, digits, exponent = number.as_tuple()
    return Decimal((sign, (*digits, 0), -1)) if exponent == 0 else number


def _parsed(value: bytes | None) -> bytes | None:
    try:
        return None if value is None else _canonical(parsed(value, _fraction_of))
    except ValueError:
        return value
