"""Descriptor sets as `protoc --include_imports --descriptor_set_out` makes them, without protoc."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2

F = descriptor_pb2.FieldDescriptorProto
KINDS = {F.Type.Name(kind).removeprefix("TYPE_").lower(): kind for kind in F.Type.values()}
PROTO3 = "proto3"


def add(message: Any, name: str, number: int, kind: str, *, repeated=False, optional=False) -> Any:
    """A field. `kind` is a scalar's word, or the full name of a message (`.shop.Line`) or of an
    enum (`enum .shop.Kind`)."""
    word, _, full = kind.rpartition(" ")
    field = message.field.add(name=name, number=number)
    field.label = F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL
    if full.startswith("."):
        field.type = F.TYPE_ENUM if word == "enum" else F.TYPE_MESSAGE
        field.type_name = full
    else:
        field.type = KINDS[full]
    if optional:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    return field


def add_map(message: Any, name: str, number: int, key: str, value: str, package: str) -> None:
    """A map, as protoc writes it: a message inside."""
    entry = message.nested_type.add(name=f"{name.title()}Entry")
    entry.options.map_entry = True
    add(entry, "key", 1, key)
    add(entry, "value", 2, value)
    add(message, name, number, f".{package}.{message.name}.{entry.name}", repeated=True)


def file(name: str, package: str, *imports: str, syntax: str = PROTO3) -> Any:
    """An empty file."""
    return descriptor_pb2.FileDescriptorProto(
        name=name, package=package, dependency=imports, syntax=syntax
    )


def base64_of(*files: Any) -> str:
    """A descriptor set."""
    return base64.b64encode(set_of(*files)).decode()


def set_of(*files: Any) -> bytes:
    """The bytes of a descriptor set, with the times that come with Protobuf."""
    made = descriptor_pb2.FileDescriptorSet()
    for times in (timestamp_pb2, duration_pb2):
        times.DESCRIPTOR.CopyToProto(made.file.add())
    made.file.extend(files)
    return bytes(made.SerializeToString())


ORDER_PROTO = """
syntax = "proto3";
package shop;  // message Hidden {}
/* message Hidden {} */
message Line { string sku = 1; uint32 count = 2; map<string, int64> sizes = 3; message Note {} }
enum Hidden { NONE = 0; }
message Order { int64 id = 1; oneof how { string card = 5; int32 cash = 6; } option x = "{"; }
"""


def orders(syntax: str = PROTO3) -> Any:
    """`shop.Order` and `shop.Line` in a file of their own."""
    made = file("shop/order.proto", "shop", "google/protobuf/timestamp.proto", syntax=syntax)
    line = made.message_type.add(name="Line")
    add(line, "sku", 1, "string")
    add(line, "count", 2, "uint32")
    order = made.message_type.add(name="Order")
    add(order, "id", 1, "int64")
    add(order, "name", 2, "string", optional=syntax == PROTO3)
    add(order, "at", 3, ".google.protobuf.Timestamp")
    add(order, "lines", 4, ".shop.Line", repeated=True)
    add_map(order, "tags", 5, "string", "double", "shop")
    kind = made.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="PAID", number=1)
    add(order, "kind", 6, "enum .shop.Kind")
    return made
