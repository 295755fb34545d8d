"""State of the process that other cases can see; it is checked after each batch.

For example, a correct kernel that leaves another default device behind makes every later case of its process wrong.
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

#: Names that are replaced in or removed from these count as changes; added names do not, because lazy imports add them.
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
#: Signals that libraries and test tools handle.
_SIGNALS: Final = (
    signal.SIGABRT, signal.SIGALRM, signal.SIGCHLD, signal.SIGFPE, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE,
    signal.SIGPROF, signal.SIGQUIT, signal.SIGSEGV, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGVTALRM,
)  # fmt: skip
_TIMERS: Final = {name: getattr(signal, name) for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF")}


def _default_device() -> object:
    """Return the device of ``set_default_device``; reading torch's variable is faster than its public function."""
    context = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    return getattr(context, "device", None)


def _environment() -> dict[Any, Any]:
    return dict(getattr(os.environ, "_data", os.environ))  # The undecoded bytes, because decoding takes longer.


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - making a Path takes longer
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
    """Return numbers that depend on whether denormals are flushed and on the rounding mode.

    None of them is a denormal itself, because a flushed denormal also equals zero.
    """
    half, least, great = 2.0**-53, sys.float_info.min, 2.0**60
    return least * 0.5 * great, 1.0 + half, -1.0 - half


def _is_running(timer: int) -> bool:
    return signal.getitimer(timer) != (0.0, 0.0)


def _raising_filters() -> int:
    # A filter of another kind changes no result: it only hides or shows a warning.
    return sum(entry[0] == "error" for entry in warnings.filters)


def _blocked() -> object:
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())


def _torch_flags() -> dict[str, Callable[[], object]]:
    """Return the readers of torch's flags; a flag that this version of torch lacks is left out."""
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


#: Settings that cases can see and that libraries have no reason to change on their first call.
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
#: Settings that honest libraries change too, on their first call.
_RECURRING: Final[Mapping[str, Callable[[], object]]] = {
    "threads of torch": torch.get_num_threads, "threads between operators of torch": torch.get_num_interop_threads,
    _RUNNING: _thread._count,  # noqa: SLF001 - it counts the threads of `threading` too
    "environment": _environment, "limit of recursion": sys.getrecursionlimit,
    **{f"handler of {number.name}": partial(signal.getsignal, number) for number in _SIGNALS},
}  # fmt: skip


_TORCH_PREFIX: Final = "torch."


class _Namespace:
    """The names of a module or a class, and their values when it was last checked."""

    def __init__(self, name: str, holder: object) -> None:
        self._name, self._holder, self._now = name, holder, vars(holder)
        self.renew()

    def renew(self) -> None:
        self._values, self._before = list(self._now.values()), dict(self._now)

    def changes(self) -> Iterator[Change]:
        """Yield each name that was replaced or removed, or that a class now defines before its base."""
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
    """The state of this process when it was last checked.

    A check takes some tens of microseconds. When torch imports more of itself, for example at its first compilation, it
    changes some of its own names and settings. These changes are ignored.
    """

    def __init__(self) -> None:
        """Read the clean state, once frameworks and candidates are imported."""
        self._readers = {**_SETTINGS, **_RECURRING}
        self._namespaces = [_Namespace(name, holder) for name, holder in _NAMESPACES.items()]
        self._module_count = self._torch_module_count = 0
        self.renew()

    def renew(self) -> None:
        """Read the clean state again, after importing a test file."""
        self._values = self._read()
        self._has_imported()
        for namespace in self._namespaces:
            namespace.renew()

    def changes(self) -> list[Change]:
        """Return what has changed since the last check."""
        now, before = self._read(), self._values
        found = [change for namespace in self._namespaces for change in namespace.changes()]
        if not _same(now, before):
            self._values = now
            found += [
                Change(what=_described(what, was, value), is_recurring=what in _RECURRING)
                for what, was, value in zip(self._readers, before, now, strict=True)
                if not _same(value, was) and not (what == _RUNNING and value < was)  # type: ignore[operator]
            ]
        if self._has_imported():
            found = [change for change in found if not (change.is_recurring or change.what.startswith(_TORCH_PREFIX))]
        return found

    def _has_imported(self) -> bool:
        """Whether more of torch was imported since the last check."""
        before = self._torch_module_count
        if len(sys.modules) != self._module_count:
            self._module_count = len(sys.modules)
            self._torch_module_count = sum(name.startswith(_TORCH_PREFIX) for name in tuple(sys.modules))
        return self._torch_module_count > before

    def _read(self) -> list[object]:
        return [read() for read in self._readers.values()]


def _same(one: object, other: object) -> bool:
    """Whether two values are equal; the comparison of a foreign object may return anything, or raise."""
    try:
        return one is other or bool(one == other)
    except Exception:  # noqa: BLE001 - a user's class compares
        return False


def _described(what: str, was: object, now: object) -> str:
    """Return a change as text, without values of environment variables (secrets) and of objects (addresses)."""
    if isinstance(was, dict) and isinstance(now, dict):
        names = sorted(os.fsdecode(name) for name in {*was, *now} if was.get(name) != now.get(name))
        return f"{what}: {', '.join(names)}"
    if what == _RUNNING:
        return "a Python thread keeps running"  # Their number is chance.
    if what.startswith("standard ") and now is None:
        return f"{what}: closed"
    plain = (bool, int, float, str, torch.dtype, torch.device, type(None))
    if isinstance(was, plain) and isinstance(now, plain):
        return f"{what}: was {was}, is {now}"
    return f"{what}: changed"
