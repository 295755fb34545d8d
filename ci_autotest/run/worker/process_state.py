"""State of the process that other cases could see: checked after each batch.

A kernel that is right and leaves another default device behind makes every later case of its process wrong.
"""

from __future__ import annotations

import _thread
import builtins
import math
import os
import random
import resource
import signal
import sys
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.run.messages import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: What of these is replaced or taken away is told; what is added, as a lazy import does, is not.
_NAMESPACES: Final[Mapping[str, object]] = {
    "builtins": builtins, "math": math, "os": os, "random": random, "torch": torch, "torch.autograd": torch.autograd,
    "torch.fft": torch.fft, "torch.linalg": torch.linalg, "torch.nn": torch.nn, "torch.nn.functional":
    torch.nn.functional, "torch.nn.Module": torch.nn.Module, "torch.special": torch.special, "torch.Tensor":
    torch.Tensor,
}  # fmt: skip
_LIMITS: Final = {
    name: getattr(resource, name)
    for name in (
        "RLIMIT_AS",
        "RLIMIT_CPU",
        "RLIMIT_DATA",
        "RLIMIT_FSIZE",
        "RLIMIT_NOFILE",
        "RLIMIT_NPROC",
        "RLIMIT_STACK",
    )
    if hasattr(resource, name)
}
#: Those that libraries and test tools handle.
_SIGNALS: Final = (
    signal.SIGABRT, signal.SIGALRM, signal.SIGCHLD, signal.SIGFPE, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE,
    signal.SIGPROF, signal.SIGQUIT, signal.SIGSEGV, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGVTALRM,
)  # fmt: skip
_TIMERS: Final = {name: getattr(signal, name) for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF")}


def _default_device() -> object:
    """Return what torch holds for ``set_default_device``, without asking for it in words, which takes longer."""
    context = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    return getattr(context, "device", None)


def _environment() -> dict[Any, Any]:
    return dict(getattr(os.environ, "_data", os.environ))  # as the system has it: decoding takes longer


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - of a path nothing is asked, and making one takes longer
    except OSError:
        return "none: it was deleted"


def _descriptor(number: int) -> Callable[[], tuple[int, int] | None]:
    def read() -> tuple[int, int] | None:
        try:
            found = os.fstat(number)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    return read


def _arithmetic() -> tuple[float, ...]:
    """Return numbers that tell flushed denormals and another way of rounding.

    None of them is a denormal itself: where those are flushed, they also equal zero.
    """
    half, least, great = 2.0**-53, sys.float_info.min, 2.0**60
    return least * 0.5 * great, 1.0 + half, -1.0 - half


def _is_running(timer: int) -> bool:
    return signal.getitimer(timer) != (0.0, 0.0)


def _raising_filters() -> int:
    return sum(entry[0] == "error" for entry in warnings.filters)


def _blocked() -> object:
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())


def _torch_flags() -> dict[str, Callable[[], object]]:
    """Return the readers of torch's flags; a version that has not got one has nothing to be changed."""
    names = {
        "deterministic algorithms": "_get_deterministic_algorithms",
        "deterministic algorithms that only warn": "_get_deterministic_algorithms_warn_only",
        "filling of uninitialized memory": "_get_deterministic_fill_uninitialized_memory",
        "precision of float32 products": "_get_float32_matmul_precision", "TF32 of cuDNN": "_get_cudnn_allow_tf32",
        "TF32 of cuBLAS": "_get_cublas_allow_tf32", "cuDNN's benchmark": "_get_cudnn_benchmark",
        "cuDNN's determinism": "_get_cudnn_deterministic", "whether cuDNN is used": "_get_cudnn_enabled",
        "whether oneDNN is used": "_get_mkldnn_enabled", "oneDNN's determinism": "_get_mkldnn_deterministic",
        "function modes": "_len_torch_function_stack", "dispatch modes": "_len_torch_dispatch_stack",
    }  # fmt: skip
    return {what: getattr(torch._C, name) for what, name in names.items() if hasattr(torch._C, name)}  # noqa: SLF001


#: What a case may see and a library has no cause to change when it is first called.
_SETTINGS: Final[Mapping[str, Callable[[], object]]] = {
    "default dtype": torch.get_default_dtype, "default device": _default_device,
    "grad mode": torch.is_grad_enabled, "inference mode": torch.is_inference_mode_enabled,
    "anomaly mode": torch.is_anomaly_enabled, **_torch_flags(),
    **{f"autocast on {device}": partial(torch.is_autocast_enabled, device) for device in ("cpu", "cuda")},
    "working folder": _folder, "standard input": _descriptor(0), "standard output": _descriptor(1),
    "standard error": _descriptor(2),
    **{f"limit {name}": partial(resource.getrlimit, number) for name, number in _LIMITS.items()},
    **{f"whether {name} runs": partial(_is_running, number) for name, number in _TIMERS.items()},
    "signals that are blocked": _blocked, "arithmetic of floating point": _arithmetic,
    "warnings that raise": _raising_filters,
    "trace function": sys.gettrace, "profile function": sys.getprofile,
}  # fmt: skip
_RUNNING: Final = "Python threads that run"
#: What honest libraries change too, when they are first called.
_HABITS: Final[Mapping[str, Callable[[], object]]] = {
    "threads of torch": torch.get_num_threads, "threads between operators of torch": torch.get_num_interop_threads,
    _RUNNING: _thread._count,  # noqa: SLF001 - what `threading` begins is among them
    "environment": _environment, "limit of recursion": sys.getrecursionlimit,
    **{f"handler of {number.name}": partial(signal.getsignal, number) for number in _SIGNALS},
}  # fmt: skip


_OF_TORCH: Final = "torch."


class _Namespace:
    """Hold what a module or a class has, by name."""

    def __init__(self, name: str, holder: object) -> None:
        self._name, self._holder, self._now = name, holder, vars(holder)
        self.renew()

    def renew(self) -> None:
        self._values, self._before = list(self._now.values()), dict(self._now)

    def changes(self) -> Iterator[Change]:
        """Yield what was replaced, taken away, or, of a class, put before what its base has."""
        if _same(list(self._now.values()), self._values):
            return
        now, before = dict(self._now), self._before
        replaced = [name for name in before if name not in now or not _same(now[name], before[name])]
        if isinstance(self._holder, type):
            bases = self._holder.__mro__[1:]
            replaced += [n for n in now if n not in before and any(n in vars(base) for base in bases)]
        self.renew()
        for name in replaced:
            yield Change(what=f"{self._name}.{name}: replaced", is_recurring=False)


class ProcessState:
    """Hold what this process was when it was last looked at.

    A look takes some tens of microseconds. What torch changes when it first compiles, by importing more of itself, is
    its own business.
    """

    def __init__(self) -> None:
        """Take what is here now for clean: made once frameworks and candidates are imported."""
        self._readers = {**_SETTINGS, **_HABITS}
        self._namespaces = [_Namespace(name, holder) for name, holder in _NAMESPACES.items()]
        self._modules = self._own_modules = 0
        self.renew()

    def renew(self) -> None:
        """Take what is here now for clean: after the import of a file of tests."""
        self._values = self._read()
        self._has_imported()
        for namespace in self._namespaces:
            namespace.renew()

    def changes(self) -> list[Change]:
        """Return what has changed since this was last asked."""
        now, before = self._read(), self._values
        found = [change for namespace in self._namespaces for change in namespace.changes()]
        if not _same(now, before):
            self._values = now
            found += [
                Change(what=_told(what, was, value), is_recurring=what in _HABITS)
                for what, was, value in zip(self._readers, before, now, strict=True)
                if not _same(value, was) and not (what == _RUNNING and value < was)  # type: ignore[operator]
            ]
        if self._has_imported():
            found = [change for change in found if not (change.is_recurring or change.what.startswith(_OF_TORCH))]
        return found

    def _has_imported(self) -> bool:
        """Whether more of torch was imported since this was last asked."""
        before = self._own_modules
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            self._own_modules = sum(name.startswith(_OF_TORCH) for name in tuple(sys.modules))
        return self._own_modules > before

    def _read(self) -> list[object]:
        return [read() for read in self._readers.values()]


def _same(one: object, other: object) -> bool:
    """Whether two values are equal; foreign ones may answer anything, or raise."""
    try:
        return one is other or bool(one == other)
    except Exception:  # noqa: BLE001 - of a user's class
        return False


def _told(what: str, was: object, now: object) -> str:
    """Return a change in words; values of variables are nobody's business, and those of objects differ each time."""
    if isinstance(was, dict) and isinstance(now, dict):
        names = sorted(os.fsdecode(name) for name in {*was, *now} if was.get(name) != now.get(name))
        return f"{what}: {', '.join(names)}"
    if what == _RUNNING:
        return "a Python thread runs on"  # how many there are is chance
    if what.startswith("standard ") and now is None:
        return f"{what}: closed"
    plain = (bool, int, float, str, torch.dtype, torch.device, type(None))
    if isinstance(was, plain) and isinstance(now, plain):
        return f"{what}: was {was}, is {now}"
    return f"{what}: changed"
