"""The compiled loops that write, and what they note (sinks/rows/write_kernels.py)."""

from __future__ import annotations

from ...core.loops import Loop, callback

VU_BYTES = 72  # rd_kafka_vu_t
MESSAGE_BYTES = 72  # rd_kafka_message_t
# a slot: failures i64 @0, first error i32 @8, its partition i32 @12, acknowledged i64 @16, its
# topic @24
NAME_MAX, SLOT_BYTES = 250, 280
# bound before the callback below is compiled or loaded
DELIVERY_BEFORE = "eo_kafka_delivery_callback_before"

_MODULE = f"{__package__}.write_kernels"
produce_rows = Loop(_MODULE, "produce_rows", results=2)
choose_partitions = Loop(_MODULE, "choose_partitions")
lay_out = Loop(_MODULE, "lay_out")
digest_rows = Loop(f"{__package__.partition('.')[0]}.core.digest_kernel", "digest_rows")


def delivery_callback(before: int) -> int:
    """The address of the compiled delivery report callback, which goes on to `before` for records
    that are not ours."""
    import llvmlite.binding

    llvmlite.binding.add_symbol(DELIVERY_BEFORE, before)
    return callback(_MODULE, "delivered", 3)
