# mypy: ignore-errors
"""Compiles loops with numba: what they are made of, and object code for core/loops.py to keep.

Importing this file takes numba, so only what must be compiled is imported with it. Addresses and
sizes travel as int64. The rule for all loops (core/digest_kernel.py, sources/fetch/read_kernels.py,
sinks/rows/write_kernels.py, sinks/maps/request_kernels.py, formats/avro/): what one reads is inside
a message of librdkafka or inside a range the caller has checked; what it writes was sized by a
counting loop before, or has a limit that it looks at. None makes an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import from_dtype, njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from . import librdkafka
from .loops import Kind, ObjectCode, target_machine

# numba loads what it compiles, and a function that is missing then makes LLVM abort the process.
librdkafka.bind()

I64, I32, U64, U8 = types.int64, types.int32, types.uint64, types.uint8
NOTHING = types.void


def part(function: Any) -> Any:
    """A loop, or a part of one. Python itself cannot call it: what that would need takes a quarter
    of the time to compile. None divides by what may be zero."""
    return njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")(function)


def loop(module: str, name: str, kinds: Kind) -> ObjectCode:
    """For `loops.Loop`: a C function that takes the address of the words."""
    called, arguments = getattr(import_module(module), name), _arguments(kinds)

    def entry(at):
        words, given = arguments(at)
        _put_results(words, called(*given))

    return _object_code(entry, f"{module}.{name}", 1)


def callback(module: str, name: str, arguments: int) -> ObjectCode:
    """For `loops.callback`."""
    return _object_code(getattr(import_module(module), name), f"{module}.{name}", arguments)


def _arguments(kinds: Kind) -> Any:
    """What takes arguments out of the words from an address on: the address behind them, and the
    arguments."""

    @intrinsic
    def arguments(_typing, at):
        of_all = _type(kinds)

        def generate(context, builder, _signature, given):
            at, values = _taken(context, builder, given[0], kinds, of_all)
            return context.make_tuple(builder, types.Tuple([I64, of_all]), [at, values])

        return types.Tuple([I64, of_all])(I64), generate

    return arguments


def _type(kind: Kind) -> Any:
    if isinstance(kind, tuple):
        return types.Tuple([_type(one) for one in kind])
    if kind == "int":
        return I64
    if kind == "bool":
        return types.boolean
    return types.Array(from_dtype(np.dtype(kind[0])), int(kind[1:]), "C")


def _taken(context: Any, builder: Any, at: Any, kind: Kind, of_type: Any) -> tuple[Any, Any]:
    """The address behind an argument's words, and the argument."""
    word = ir.IntType(64)

    def next_word() -> Any:
        nonlocal at
        found = builder.load(builder.inttoptr(at, word.as_pointer()))
        at = builder.add(at, word(8))
        return found

    if isinstance(kind, tuple):
        values = []
        for one, of_one in zip(kind, of_type.types, strict=True):
            at, value = _taken(context, builder, at, one, of_one)
            values.append(value)
        return at, context.make_tuple(builder, of_type, values)
    if not isinstance(of_type, types.Array):
        value = next_word()
        return at, value if kind == "int" else context.cast(builder, value, I64, of_type)
    array = context.make_array(of_type)(context, builder)
    data, shape = next_word(), [next_word() for _ in range(of_type.ndim)]
    size = word(np.dtype(kind[0]).itemsize)
    strides = [size]
    for length in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], length))
    pointer = builder.inttoptr(data, array.data.type)
    populate_array(array, pointer, shape, strides, size, meminfo=None)
    return at, array._getvalue()


@intrinsic
def _put_results(_typing, at, results):
    """A loop returns nothing, a number or several."""
    several = list(results) if isinstance(results, types.BaseTuple) else [results]
    kinds = [one for one in several if one != types.none]

    def generate(context, builder, signature, given):
        address, value = given
        values = [value]
        if isinstance(signature.args[1], types.BaseTuple):
            values = [builder.extract_value(value, at) for at in range(len(kinds))]
        for number, kind in enumerate(kinds):
            place = builder.add(address, ir.IntType(64)(8 * number))
            place = builder.inttoptr(place, ir.IntType(64).as_pointer())
            builder.store(context.cast(builder, values[number], kind, I64), place)
        return context.get_dummy_value()

    return NOTHING(I64, results), generate


def _object_code(function: Any, name: str, arguments: int) -> ObjectCode:
    signature = NOTHING(*[I64] * arguments)
    dispatcher = part(getattr(function, "py_func", function))
    dispatcher.compile(signature)
    made = dispatcher.overloads[signature.args]
    symbol = "eo_kafka." + name
    module = made.library._final_module.clone()
    module.link_in(llvm.parse_assembly(str(_plain_function(symbol, made, arguments))))
    module.verify()
    needs = [one.name for one in module.functions if one.is_declaration]
    needs = [one for one in needs if not one.startswith("llvm.")]
    return ObjectCode(symbol, needs, target_machine().emit_object(module))


def _plain_function(symbol: str, made: Any, arguments: int) -> ir.Module:
    """A C function that calls one of numba's, which has room for a result and for an exception
    before its arguments, and answers with a status: 0 if nothing went wrong."""
    module, word = ir.Module(), ir.IntType(64)
    room = ir.IntType(8).as_pointer()
    inner_type = ir.FunctionType(
        ir.IntType(32), [room.as_pointer(), room.as_pointer(), *[word] * arguments]
    )
    inner = ir.Function(module, inner_type, made.fndesc.llvm_func_name)
    outer = ir.Function(module, ir.FunctionType(ir.IntType(32), [word] * arguments), symbol)
    builder = ir.IRBuilder(outer.append_basic_block())
    rooms = [builder.alloca(room), builder.alloca(room)]
    builder.ret(builder.call(inner, [*rooms, *outer.args]))
    # numba frees what an array was the last to hold; ours hold nothing.
    frees = ir.Function(module, ir.FunctionType(ir.VoidType(), [room]), "NRT_MemInfo_call_dtor")
    frees.linkage = "linkonce_odr"
    ir.IRBuilder(frees.append_basic_block()).ret_void()
    return module


def _load(bits, numba_type):
    @intrinsic
    def load(_typing, address):
        def generate(_context, builder, _signature, arguments):
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            return builder.load(pointer, align=1)

        return numba_type(I64), generate

    return load


i64 = _load(64, I64)
u64 = _load(64, U64)
i32 = _load(32, I32)
u8 = _load(8, U8)


def _store(bits, numba_type):
    @intrinsic
    def store(_typing, address, value):
        def generate(context, builder, _signature, arguments):
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            builder.store(arguments[1], pointer, align=1)
            return context.get_dummy_value()

        return NOTHING(I64, numba_type), generate

    return store


put64 = _store(64, I64)
put32 = _store(32, I32)


@intrinsic
def copy(_typing, target, source, size):
    def generate(context, builder, _signature, arguments):
        byte = ir.IntType(8).as_pointer()
        to, source = (builder.inttoptr(address, byte) for address in arguments[:2])
        cgutils.raw_memcpy(builder, to, source, arguments[2], 1)
        return context.get_dummy_value()

    return NOTHING(I64, I64, I64), generate


@intrinsic
def high(_typing, a, b):
    """The upper 64 bits of a product."""

    def generate(_context, builder, _signature, arguments):
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return U64(U64, U64), generate


def sum_of_products(factors: Sequence[int]) -> Any:
    """A part of a loop: the sum of `more` and of the 64-bit words from an address on, each times
    its factor, that of `more` first. In three words, the lowest first."""

    @intrinsic
    def sum_up(_typing, more, address):
        def generate(_context, builder, _signature, arguments):
            word, wide, widest = (ir.IntType(bits) for bits in (64, 128, 192))
            at = builder.inttoptr(arguments[1], word.as_pointer())
            words = [arguments[0]] + [
                builder.load(builder.gep(at, [ir.Constant(word, i)]), align=1)
                for i in range(len(factors) - 1)
            ]
            total = ir.Constant(widest, 0)
            for one, factor in zip(words, factors, strict=True):
                product = builder.mul(builder.zext(one, wide), ir.Constant(wide, factor))
                total = builder.add(total, builder.zext(product, widest))
            parts = [
                builder.trunc(builder.lshr(total, ir.Constant(widest, 64 * i)), word)
                for i in range(3)
            ]
            return cgutils.pack_array(builder, parts)

        return types.UniTuple(U64, 3)(U64, I64), generate

    return sum_up


@part
def same(one, other, size):
    """Whether two places hold the same bytes."""
    i = 0
    while size - i >= 8:
        if u64(one + i) != u64(other + i):
            return False
        i += 8
    while i < size:
        if u8(one + i) != u8(other + i):
            return False
        i += 1
    return True
