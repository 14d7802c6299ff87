"""All use of the Hazelcast client's private parts (but for repairs.py) and of its wire protocol.

The Python client knows no event journal and no iteration over a partition's entries; both are
requests of the protocol that every client speaks, made here of the client's own building blocks.
`integration_tests/maps/test_hazelcast_internals.py` fails when an upgrade changes any of
this. Layouts are those of hazelcast-client-protocol 2.9: little-endian frames, a message type of
service << 16 | method << 8.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from hazelcast import HazelcastClient
    from hazelcast.future import Future
    from hazelcast.predicate import Predicate

_FETCH_KEYS, _FETCH_ENTRIES = 0x013700, 0x013800
_SUBSCRIBE = 0x014100
_READ = 0x014200
_END = 1 << 11  # the flag of a frame that ends a list
_FINAL = 1 << 13

# Where a partition's iteration begins; it has ended when the last pointer's index is negative.
FIRST_POINTERS = ((2**31 - 1, -1),)

Pointers = tuple[tuple[int, int], ...]


class Bounds(NamedTuple):
    """The sequences that a partition's journal holds; newest < oldest when it is empty."""

    oldest: int
    newest: int


class JournalItems(NamedTuple):
    """What a read of a partition's journal gave. `items` are events as the member serialized them,
    `sequences` their numbers as little-endian longs."""

    items: list[bytes]
    sequences: bytes

    def first(self) -> int:
        """The sequence of the first item."""
        return int(struct.unpack_from("<q", self.sequences)[0])

    def last(self) -> int:
        """The sequence of the last item."""
        return int(struct.unpack_from("<q", self.sequences, len(self.sequences) - 8)[0])


# Hazelcast's types, as a serialized value names its own
TEXT, BYTES, CLASS, JSON = -11, -12, -24, -130


class CompactSchema(NamedTuple):
    """What a Compact value is laid out by: names of fields, and numbers of their kinds."""

    type_name: str
    fields: tuple[tuple[str, int], ...]


class FetchedEntries(NamedTuple):
    """Keys and values in turn, as the member serialized them, and where to go on."""

    items: list[bytes]
    pointers: Pointers

    @property
    def ended(self) -> bool:
        """Whether the partition has no more."""
        return self.pointers[-1][0] < 0


def cluster_id(client: HazelcastClient) -> str:
    """The id of the cluster that the client is connected to. A cluster that was started anew has
    another one; the client reconnects by itself and says nothing."""
    return str(client._connection_manager._cluster_id)


def route(client: HazelcastClient, partition: int) -> tuple[object, object]:
    """The member that the client takes for the partition's owner, and its connection to it. A
    member that dies loses the connection before any request is sent to another one."""
    owner = client.partition_service.get_partition_owner(partition)
    return owner, client._connection_manager.get_connection(owner)


def journal_bounds(client: HazelcastClient, name: str, partition: int) -> Future[Bounds]:
    """Ask for the sequences that the journal holds."""
    from hazelcast.protocol.builtin import StringCodec
    from hazelcast.protocol.client_message import RESPONSE_HEADER_SIZE, OutboundMessage

    def decoded(message: Any) -> Bounds:
        return Bounds(*struct.unpack_from("<qq", message.next_frame().buf, RESPONSE_HEADER_SIZE))

    request = _request(_SUBSCRIBE)
    StringCodec.encode(request, name, True)
    return invoked(client, OutboundMessage(request, True), decoded, partition)


def read_journal(
    client: HazelcastClient, name: str, partition: int, start: int, most: int
) -> Future[JournalItems]:
    """Ask for up to `most` events from sequence `start` on.

    The member answers at once, with what it has. It never says that `start` is gone: it begins
    with the oldest event instead, and beyond the newest it gives nothing. Callers must compare.
    """
    from hazelcast.protocol.builtin import CodecUtil, DataCodec, StringCodec
    from hazelcast.protocol.client_message import OutboundMessage

    # The member would run into an exception with neither an answer nor an end
    if most < 1 or not 0 <= partition < client.partition_service.get_partition_count():
        raise ValueError(f"no such read: {most} events of partition {partition}")
    request = _request(_READ, struct.pack("<qii", start, 0, most))
    StringCodec.encode(request, name)
    CodecUtil.encode_nullable(request, None, DataCodec.encode)  # predicate: Java classes only
    CodecUtil.encode_nullable(request, None, DataCodec.encode, True)  # projection: the same
    return invoked(client, OutboundMessage(request, True, True), _journal_items, partition)


def fetch_entries(
    client: HazelcastClient, name: str, partition: int, pointers: Pointers, about: int
) -> Future[FetchedEntries]:
    """Ask for about so many entries of a partition, from where `pointers` say."""
    return _fetched(client, _FETCH_ENTRIES, name, partition, pointers, about)


def first_keys(
    client: HazelcastClient, name: str, partition: int, about: int
) -> Future[FetchedEntries]:
    """Ask for the keys, and no values, of about so many entries of a partition."""
    return _fetched(client, _FETCH_KEYS, name, partition, FIRST_POINTERS, about)


def _fetched(
    client: HazelcastClient, kind: int, name: str, partition: int, pointers: Pointers, about: int
) -> Future[FetchedEntries]:
    from hazelcast.protocol.builtin import StringCodec
    from hazelcast.protocol.client_message import OutboundMessage

    def decoded(message: Any) -> FetchedEntries:
        message.next_frame()
        pairs = tuple(struct.iter_unpack("<ii", message.next_frame().buf))
        return FetchedEntries(_list(message.next_frame())[0], pairs)

    request = _request(kind, struct.pack("<i", about))
    StringCodec.encode(request, name)
    request += struct.pack("<iH", 6 + 8 * len(pointers), _FINAL)
    for index, size in pointers:
        request += struct.pack("<ii", index, size)
    return invoked(client, OutboundMessage(request, True), decoded, partition)


def map_size(client: HazelcastClient, name: str) -> Future[int]:
    """Ask for the number of a map's entries. Unlike `fetch_entries` and `entry_of`, it is answered
    once no partition loads entries from a MapLoader any more, and begins that if nobody did."""
    from hazelcast.protocol.codec import map_size_codec as codec

    return invoked(client, codec.encode_request(name), codec.decode_response)


def matching_entries(
    client: HazelcastClient, name: str, key: object, predicate: Predicate
) -> Future[list[bytes]]:
    """Ask for the entries, of the partition that `key` belongs to, for which the member finds
    `predicate` true: keys and values in turn. The whole partition comes in one answer."""
    from hazelcast.protocol.codec import map_entries_with_predicate_codec as codec
    from hazelcast.serialization.api import IdentifiedDataSerializable

    class PartitionPredicate(IdentifiedDataSerializable):  # type: ignore[misc]
        """Java's com.hazelcast.query.PartitionPredicate, which the Python client does not have."""

        def get_factory_id(self) -> int:
            return -20

        def get_class_id(self) -> int:
            return 16

        def write_data(self, output: Any) -> None:
            output.write_object(key)
            output.write_object(predicate)

        def read_data(self, _input: Any) -> None:
            raise NotImplementedError("members do not send it")

    def decoded(message: Any) -> list[bytes]:
        message.next_frame()
        return _list(message.next_frame())[0]

    data = client._serialization_service.to_data(PartitionPredicate())
    return invoked(client, codec.encode_request(name, data), decoded)


def entry_of(client: HazelcastClient, name: str, key: bytes) -> Future[list[bytes]]:
    """Ask for the key and the value of one entry; nothing if there is none. It counts as no access
    to the entry, and loads none from a map store."""
    from hazelcast.protocol.codec import map_get_entry_view_codec as codec
    from hazelcast.serialization.data import Data

    def decoded(message: Any) -> list[bytes]:
        found = codec.decode_response(message)["response"]
        return [] if found is None else [bytes(found.key.buffer), bytes(found.value.buffer)]

    data = Data(key)
    partition = client.partition_service.get_partition_id(data)
    return invoked(client, codec.encode_request(name, data, 0), decoded, partition)


def keys_of_text(client: HazelcastClient, text: str) -> list[tuple[int, bytes]]:
    """What keys that are this text are serialized as, each with its partition: text, JSON, and the
    name of a Java class."""
    from hazelcast.serialization.data import Data

    service = client.partition_service
    whole = to_bytes(client, text)
    found = [whole[:4] + struct.pack(">i", kind) + whole[8:] for kind in (TEXT, JSON, CLASS)]
    return [(service.get_partition_id(Data(one)), one) for one in found]


def compact_schema(client: HazelcastClient, schema_id: int) -> Future[CompactSchema | None]:
    """Ask for the schema of this id; None if the cluster does not know it."""
    from hazelcast.protocol.codec import client_fetch_schema_codec as codec

    def decoded(message: Any) -> CompactSchema | None:
        found = codec.decode_response(message)
        if found is None:
            return None
        return CompactSchema(
            found.type_name, tuple((one.name, int(one.kind)) for one in found.fields)
        )

    return invoked(client, codec.encode_request(schema_id), decoded)


def to_object(client: HazelcastClient, data: bytes) -> Any:
    """The object that a member serialized so. A Compact schema that this client has not met is
    asked for. Raises what the client raises where it has no serializer for the type."""
    from hazelcast.serialization.compact import SchemaNotFoundError
    from hazelcast.serialization.data import Data

    convert = client._serialization_service.to_object
    try:
        return convert(Data(data))
    except SchemaNotFoundError as error:
        schemas = client._compact_schema_service
        found = schemas.fetch_schema(error.schema_id).result()
        schemas.register_fetched_schema(error.schema_id, found)
        return convert(Data(data))


def refuse_pickle(client: HazelcastClient) -> None:
    """Let the client never unpickle, whatever asks for an object, also inside a list: it would run
    here what whoever may write into a map has put there."""
    from hazelcast.errors import HazelcastSerializationError

    def read(_input: Any) -> Any:
        raise HazelcastSerializationError(
            "it was pickled by Python, and to unpickle it would run code that comes from the map"
        )

    client._serialization_service._python_serializer.read = read


def to_data(client: HazelcastClient, value: Any) -> Any:
    """The value as the client serializes it: what can be a key of a dictionary, other than a
    bytearray."""
    return client._serialization_service.to_data(value)


def to_bytes(client: HazelcastClient, value: Any) -> bytes:
    """The value as the members store it."""
    return bytes(to_data(client, value).buffer)


def any_connection(client: HazelcastClient) -> object:
    """The client's connection to one of the members. Raises the client's error for one that is
    lost."""
    from hazelcast.errors import TargetDisconnectedError

    connection = client._connection_manager.get_random_connection()
    if connection is None:
        raise TargetDisconnectedError("no member is connected")
    return connection


def invoked(
    client: HazelcastClient,
    request: Any,
    decode: Callable[[Any], Any],
    partition: int = -1,
    connection: object = None,
) -> Any:
    """The future of a request's answer. Without partition or connection any member is asked."""
    from hazelcast.invocation import Invocation

    invocation = Invocation(request, partition, connection=connection, response_handler=decode)
    client._invocation_service.invoke(invocation)
    return invocation.future


def _request(kind: int, fields: bytes = b"") -> bytearray:
    """The head of a request, and its fields of a fixed size."""
    from hazelcast.protocol.client_message import REQUEST_HEADER_SIZE, create_initial_buffer

    request: bytearray = create_initial_buffer(REQUEST_HEADER_SIZE + len(fields), kind)
    request[REQUEST_HEADER_SIZE:] = fields
    return request


def _journal_items(message: Any) -> JournalItems:
    # The head's count and next sequence say nothing more, and are zeros when there is no item
    message.next_frame()
    items, frame = _list(message.next_frame())
    return JournalItems(items, bytes(frame.buf))


def _list(frame: Any) -> tuple[list[bytes], Any]:
    """The contents of the frames of a list that begins with this one; and the frame after it."""
    items: list[bytes] = []
    add = items.append
    frame = frame.next
    while not frame.flags & _END:
        add(frame.buf)
        frame = frame.next
    return items, frame.next
