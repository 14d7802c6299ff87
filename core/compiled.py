# mypy: ignore-errors
"""Compiles loops with numba: the compiler's settings, its cache, access to memory.

numba compiles a loop on first use and caches it in the user's cache folder; loops hold no GIL.
Importing this file takes numba, so callers ask `librdkafka.available()` first. Addresses and sizes
travel as int64. The rule for all loops (core/digest_kernel.py, sources/read_kernels.py,
sinks/rows/write_kernels.py, formats/): what one reads is inside a message of librdkafka or
inside a range the caller has checked; what it writes was sized by a counting loop before, or has a
limit that it looks at.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import librdkafka

# A function that is missing when a loop is loaded makes LLVM abort the process.
librdkafka.bind()

I64, I32, U64, U8 = types.int64, types.int32, types.uint64, types.uint8
NOTHING = types.void
_SHARED_CACHE = config.CACHE_DIR
_here = threading.local()
_PATIENCE_S = 60.0


def cache_folder() -> str:
    """Where compiled loops are kept: the user's own folder, never a shared one like /tmp."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return str(Path(base, "eo-kafka", "numba"))


def compiled(function: Any) -> Any:
    """Cached where a cache can be written (numba replaces its files atomically), else not."""
    try:
        folder = Path(_SHARED_CACHE or cache_folder())
        if not _unzip_source(function):
            folder = folder / _digest(_package(function))
        config.CACHE_DIR = str(folder)
        return _one_process_compiles(njit(cache=True, nogil=True)(function), folder)
    except (OSError, RuntimeError):
        return njit(nogil=True)(function)
    finally:
        config.CACHE_DIR = _SHARED_CACHE


def _one_process_compiles(loop: Any, folder: Path) -> Any:
    """The first queries on a machine start several workers at once: one of them compiles a loop,
    and the others wait and take it from the cache, which costs them a tenth."""
    compile_or_load = loop.compile

    def alone(signature: Any) -> Any:
        with _compiling(folder):
            return compile_or_load(signature)

    loop.compile = alone
    return loop


@contextmanager
def _compiling(folder: Path) -> Iterator[None]:
    """Alone of all processes that share the cache, where its file system has locks."""
    with ExitStack() as held:
        if not getattr(_here, "compiles", False):  # a loop that calls another one compiles it, too
            _here.compiles = True
            held.callback(setattr, _here, "compiles", False)
            with suppress(OSError, ImportError):
                import fcntl  # not on Windows

                folder.mkdir(parents=True, exist_ok=True)
                lock = held.enter_context((folder / "lock").open("w"))
                deadline = time.monotonic() + _PATIENCE_S
                while time.monotonic() < deadline:  # one that is stopped must not stop all
                    with suppress(BlockingIOError):
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    time.sleep(0.05)
        yield


def part(function: Any) -> Any:
    """A part of compiled loops, which Python itself cannot call: what that would need takes a
    quarter of the time to compile. None divides by what may be zero."""
    return njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")(function)


def _package(function: Any) -> Path:
    """The folder of the package that a loop is in: ours, but for those of tests."""
    depth = function.__module__.count(".")
    return Path(function.__code__.co_filename).parents[max(0, depth - 1)]


@functools.cache
def _digest(package: Path) -> str:
    """Of a whole package: a loop may have parts from any file of it, and numba itself only looks
    whether the loop's own file is another one. Raises OSError."""
    found = hashlib.sha256()
    for folder, inner, names in os.walk(package):  # half the time of rglob
        inner.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as source:
                    found.update(source.read())
    return found.hexdigest()[:16]


def _unzip_source(function: Any) -> bool:
    """numba keeps a cache for each path of a source file. In a zip (`--py-files`) that is another
    path for each application, in a folder that numba fails to do without where it is not writable.
    So the source goes beside our cache, under the digest of the zip. Answers whether it did. Raises
    OSError."""
    loader = sys.modules[function.__module__].__loader__
    archive = getattr(loader, "archive", None)
    if archive is None:
        return False
    digest = hashlib.sha256(Path(archive).read_bytes()).hexdigest()[:16]
    path = Path(cache_folder(), digest, *function.__module__.split(".")).with_suffix(".py")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_suffix(f".{os.getpid()}")
        staged.write_text(loader.get_source(function.__module__))
        staged.replace(path)
    function.__code__ = function.__code__.replace(co_filename=str(path))
    return True


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
