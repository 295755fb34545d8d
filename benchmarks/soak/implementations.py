"""Implementations of torch's operators that differ from eager torch on one thread and are correct."""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch._decomp import core_aten_decompositions
from torch._prims.context import TorchRefsMode
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.protocol import Backend


class Decomposed(TorchDispatchMode):
    """A mode that replaces ATen's operators by their decompositions, forward and backward."""

    def __init__(self):
        super().__init__()
        self.table = core_aten_decompositions()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        decomposed = self.table.get(func)
        if decomposed is not None:
            with self:
                found = decomposed(*args, **kwargs)
            if found is not NotImplemented:
                return found
        return func(*args, **kwargs)


class ChannelsLast(TorchFunctionMode):
    """A mode that passes images to the functions of torch.nn.functional in channels last format."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = resolve_name(func) or ""
        if name.startswith("torch.nn.functional.") and not (kwargs or {}).get("inplace"):
            args = tuple(last(arg) for arg in args)
        return func(*args, **(kwargs or {}))


def last(value):
    is_image = isinstance(value, torch.Tensor) and value.dim() == 4
    return value.contiguous(memory_format=torch.channels_last) if is_image else value


@contextmanager
def two_threads():
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(1)


class Anew:
    """A context manager that makes and enters a new mode each time, because a mode can be entered only once."""

    def __init__(self, make):
        self._make = make

    def __enter__(self):
        """Make a mode and enter it."""
        self._now = self._make()
        return self._now.__enter__()

    def __exit__(self, *raised):
        """Leave the mode."""
        return self._now.__exit__(*raised)


class Under(Backend):
    """Torch under a mode.

    Args:
        around: Makes the mode, for each call anew.
        backward: Whether the mode also applies to the backward pass.
    """

    def __init__(self, around, *, backward=True):
        self.plain = TorchBackend()
        self.around, self.in_backward = around, backward
        self.on_step = None

    def run(self, program, sources, *, snapshots=False, copied=()):
        """Run forward."""
        return self.plain.run(program, sources, snapshots=snapshots, copied=copied, around=Anew(self.around))

    def backward(self, program, trace, cotangents):
        """Run backward."""
        if not self.in_backward:
            return self.plain.backward(program, trace, cotangents)
        with self.around():
            return self.plain.backward(program, trace, cotangents)


IMPLEMENTATIONS = {
    "references": lambda: Under(lambda: TorchRefsMode(strict=False), backward=False),
    "decompositions": lambda: Under(Decomposed),
    "onednn off": lambda: Under(lambda: torch.backends.mkldnn.flags(enabled=False)),
    "two threads": lambda: Under(two_threads),
    "channels last": lambda: Under(ChannelsLast, backward=False),
    "aot_eager": lambda: CompileBackend({"backend": "aot_eager"}),
}
#: PyTorch's references are written in primitives that have no gradients.
FORWARD = frozenset({"references"})
#: A compiler needs a hundred milliseconds per case, so it gets only one of this many.
EVERY = {"aot_eager": 20}
