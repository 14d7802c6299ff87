"""Calls loops that were compiled once, from object code in the user's cache folder.

numba compiles a loop on its first use on a machine (core/compiled.py). Its object code is kept, and
llvmlite alone loads it: numba takes three times as long to import as all that a task imports
besides, in each worker. Loops hold no GIL while they run.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from .build import digest
from .process.user_cache import user_cache

log = logging.getLogger(__name__)

# What a loop is called with: "int", "bool", an array's type and number of dimensions ("B1", numpy's
# letter), or a tuple of these. Numbers, addresses and lengths travel as one row of int64.
Kind = Any
_PATIENCE_S = 60.0
_lock = threading.RLock()
_loaded: list[Any] = []  # what the object code lives in
why_not_kept: list[str] = []  # what this process has compiled, each reason once


class ObjectCode(NamedTuple):
    """A loop for the machine: the name of its function, those that it calls, and its code."""

    symbol: str
    needs: list[str]
    code: bytes


class Loop:
    """A loop by its name, in a module that needs numba and is imported only to compile it."""

    def __init__(self, module: str, name: str, results: int = 0) -> None:
        """`results`: how many numbers it returns."""
        self._module, self._name, self._results = module, name, results
        self._native: dict[Kind, Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Arguments are ints, bools, contiguous arrays and tuples of these. Whoever calls answers
        for what the loop will touch: nothing is checked inside. Returns None, an int, or a tuple of
        ints. The first call of a process may have to compile it, which takes seconds."""
        words: list[int] = []
        kinds = _kinds(arguments, words)
        native = self._native.get(kinds)
        if native is None:
            native = self._native[kinds] = self._function(kinds)
        words += [0] * self._results
        block = (ctypes.c_int64 * len(words))(*words)
        if native(ctypes.addressof(block)):
            raise RuntimeError(f"The compiled loop {self._module}.{self._name} failed.")
        if self._results < 2:
            return block[-1] if self._results else None
        return tuple(block[-self._results :])

    def _function(self, kinds: Kind) -> Any:
        def compile_it() -> ObjectCode:
            found: ObjectCode = _compiler().loop(self._module, self._name, kinds)
            return found

        address = _address(self._module, self._name, kinds, compile_it)
        return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(address)


@functools.cache
def callback(module: str, name: str, arguments: int) -> int:
    """The address of a C function that takes as many words; it stays for the process's life."""

    def compile_it() -> ObjectCode:
        found: ObjectCode = _compiler().callback(module, name, arguments)
        return found

    return _address(module, name, arguments, compile_it)


def _kinds(arguments: Any, words: list[int]) -> Kind:
    import numpy as np

    found: list[Kind] = []
    for one in arguments:
        if isinstance(one, np.ndarray):
            if not one.flags.c_contiguous:
                raise ValueError("A compiled loop takes contiguous arrays only.")
            words.append(one.__array_interface__["data"][0])
            words.extend(one.shape)
            found.append(f"{one.dtype.char}{one.ndim}")
        elif isinstance(one, tuple):
            found.append(_kinds(one, words))
        else:
            words.append(int(one))
            found.append("bool" if isinstance(one, (bool, np.bool_)) else "int")
    return tuple(found)


def _compiler() -> Any:
    return import_module(".compiled", __package__)


def cache_folder() -> str:
    """Where compiled loops are kept: the user's own folder, never a shared one like /tmp. Raises
    OSError if this user has none."""
    return str(user_cache() / "loops")


def are_kept(module: str = __name__) -> bool:
    """Whether loops of `module`'s package were compiled here before, by these versions."""
    try:
        return any(_folder(module).glob("*.loop"))
    except OSError:
        return False


def _address(module: str, name: str, kinds: Kind, compile_it: Any) -> int:
    """Of the loop's function in this process."""
    key = hashlib.sha256(repr(kinds).encode()).hexdigest()[:16]
    with _lock:
        path: Path | None = None
        try:
            folder = _folder(module)
            _own(folder.parent)
            _own(folder)
            path = folder / f"{module.rpartition('.')[2]}.{name}.{key}.loop"
        except OSError as error:
            _tell_not_kept(error.strerror or str(error))
        found = _kept(path)
        if found is None:
            with _one_process_compiles(path):
                found = _kept(path)  # another one may have been quicker
                if found is None:
                    found = compile_it()
                    _keep(path, found)
                    log.info("Compiled %s.%s for this machine.", module, name)
        return _load(found)


def _own(folder: Path) -> None:
    """Made if it is not there. Raises OSError, also if a stranger may write there: what is kept
    will be run."""
    folder.mkdir(0o755, parents=True, exist_ok=True)
    if sys.platform == "win32":
        return  # it keeps each user's folders apart
    about = folder.stat()
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & stat.S_IWOTH:
        raise PermissionError(f"{folder} is another user's, or open to all")


def _kept(path: Path | None) -> ObjectCode | None:
    """What is in the cache, if it is whole."""
    if path is None:
        return None
    try:
        head, _, code = path.read_bytes().partition(b"\n")
        told = json.loads(head)
        found = ObjectCode(told["symbol"], told["needs"], code)
        whole = told["digest"] == hashlib.sha256(code).hexdigest()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if whole else None


def _keep(path: Path | None, found: ObjectCode) -> None:
    if path is None:
        return
    told = {
        "symbol": found.symbol,
        "needs": found.needs,
        "digest": hashlib.sha256(found.code).hexdigest(),
    }
    staged = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    try:
        staged.touch(0o644)  # for nobody else to write, whatever the umask is
        staged.write_bytes(json.dumps(told).encode() + b"\n" + found.code)
        staged.replace(path)
    except OSError as error:
        _tell_not_kept(error.strerror or str(error))
        with suppress(OSError):  # a part of it, on a full disk
            staged.unlink(missing_ok=True)


def _tell_not_kept(reason: str) -> None:
    if reason in why_not_kept:
        return
    why_not_kept.append(reason)
    log.warning(
        "Compiled loops cannot be kept in this user's cache folder (%s): each process compiles "
        "them anew, for seconds. Set XDG_CACHE_HOME to a folder of its own that it can write.",
        reason,
    )


def _load(found: ObjectCode) -> int:
    import llvmlite.binding as llvm

    if missing := [one for one in found.needs if not llvm.address_of_symbol(one)]:
        # LLVM would abort the process.
        raise RuntimeError(f"This process has no {', '.join(missing)}: see librdkafka.bind.")
    machine = target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(found.code))
    engine.finalize_object()
    _loaded.append(engine)
    return int(engine.get_function_address(found.symbol))


@functools.cache
def _processor() -> tuple[str, str, str]:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    return llvm.get_default_triple(), llvm.get_host_cpu_name(), features


def target_machine() -> Any:
    """LLVM's, for this processor."""
    import llvmlite.binding as llvm

    _initialize()
    triple, name, features = _processor()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=name, features=features, opt=3, jit=True, reloc="default", codemodel="jitdefault"
    )


@functools.cache
def _initialize() -> None:
    import llvmlite.binding as llvm

    with suppress(RuntimeError):  # newer ones do it by themselves, and say so
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _folder(module: str) -> Path:
    """Of the loops of a package, as it is, for this processor. Raises OSError."""
    return Path(cache_folder(), _made_for(module.partition(".")[0]))


@functools.cache
def _made_for(package: str) -> str:
    """What kept loops depend on: a loop may have parts from any file of its package. Asked once a
    process. Raises OSError."""
    versions = [_version(name) for name in ("numba", "llvmlite")]
    found = "\n".join([digest(package), *_processor(), *versions])
    return hashlib.sha256(found.encode()).hexdigest()[:16]


def _version(package: str) -> str:
    """Of an installed package. `metadata.version` lists every archive on sys.path before it looks
    further, and a worker's begins with Spark's own, a jar among them: 0.2 s in each worker."""
    spec = find_spec(package)
    beside = [str(Path(spec.origin).parents[1])] if spec and spec.origin else []
    found = metadata.distributions(name=package, path=beside)
    return next((one.version for one in found), None) or metadata.version(package)


@contextmanager
def _one_process_compiles(path: Path | None) -> Iterator[None]:
    """The first queries on a machine start several workers at once: one of them compiles a loop,
    and the others wait and take it from the cache, where its file system has locks."""
    with ExitStack() as held:
        with suppress(OSError, ImportError):
            if path is not None and sys.platform != "win32":
                import fcntl

                lock = held.enter_context((path.parent / "lock").open("w"))
                deadline = time.monotonic() + _PATIENCE_S
                while time.monotonic() < deadline:  # one that is stopped must not stop all
                    with suppress(BlockingIOError):
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    time.sleep(0.05)
        yield
