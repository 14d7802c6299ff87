"""A Hazelcast transaction over maps, on serialized keys and values.

The client's own transactions hide what a writer must know when a commit fails: what an entry was
before (docs/map-two-phase.md). They also leave a copy with another member, which is carried out
when the client disconnects, and could put an old value back hours later. These transactions have no
such copy: the writer finishes what a commit has left undone.

One at a time on each thread; every request waits for its answer.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .internals import any_connection, invoked

if TYPE_CHECKING:
    from hazelcast import HazelcastClient

_TWO_PHASE = 1
_NO_COPIES = 0
# Locks belong to a client and a number, for which the client takes its thread's. One of our own for
# each transaction: what an earlier one has left locked is not taken over, but waited for.
_numbers = itertools.count(1)


class Transaction:
    """`with Transaction(client, seconds) as one`: committed at the end, rolled back after an error.
    Its methods raise what the client raises; an error of the commit leaves open what is applied:
    nothing, all, or, if the member died that commits or some changes were refused, a part.

    `seconds`: how long its locks outlive a client that stands still."""

    def __init__(self, client: HazelcastClient, seconds: int) -> None:
        from hazelcast.protocol.codec import transaction_create_codec as codec

        self._client = client
        self._number = next(_numbers)
        self._connection = any_connection(client)
        request = codec.encode_request(1000 * seconds, _NO_COPIES, _TWO_PHASE, self._number)
        self._id = self._answer(request, codec.decode_response)

    def lock(self, name: str, key: bytes) -> bytes | None:
        """Lock an entry of map `name` until the end; its value. Waits for whoever has locked it."""
        from hazelcast.protocol.codec import transactional_map_get_for_update_codec as codec

        return self._value(codec, name, key)

    def put(self, name: str, key: bytes, value: bytes | None) -> bytes | None:
        """Lock an entry and, at the commit, set it, or remove it for None; its value before."""
        from hazelcast.protocol.codec import transactional_map_put_codec as put
        from hazelcast.protocol.codec import transactional_map_remove_codec as remove
        from hazelcast.serialization.data import Data

        if value is None:
            return self._value(remove, name, key)
        return self._value(put, name, key, Data(value), -1)  # the map's own time to live

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        from hazelcast.errors import HazelcastError
        from hazelcast.protocol.codec import transaction_commit_codec, transaction_rollback_codec

        if kind is None:
            self._answer(transaction_commit_codec.encode_request(self._id, self._number))
            return
        # Its locks end by themselves if it fails, and the error that led here is the one to tell
        with suppress(HazelcastError, OSError):
            self._answer(transaction_rollback_codec.encode_request(self._id, self._number))

    def _value(self, codec: Any, name: str, key: bytes, *more: Any) -> bytes | None:
        from hazelcast.serialization.data import Data

        request = codec.encode_request(name, self._id, self._number, Data(key), *more)
        found = self._answer(request, codec.decode_response)
        return None if found is None else bytes(found.buffer)

    def _answer(self, request: Any, decode: Any = lambda message: None) -> Any:
        return invoked(self._client, request, decode, connection=self._connection).result()
