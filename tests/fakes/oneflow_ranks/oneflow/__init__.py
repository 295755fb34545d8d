"""Stands for OneFlow on several ranks: whole arrays on each rank, and operators with a planted fault on the last one.

Every rank holds all of each tensor, so that nothing is ever sent from one to another.
"""

import os
import signal
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np

__version__ = "0.9.0"
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
IS_LAST = RANK == RANKS - 1


class DType:
    """A dtype, by NumPy's name."""

    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"oneflow.{self.name}"


float16, bfloat16, float32, int64 = map(DType, ("float16", "bfloat16", "float32", "int64"))
env = SimpleNamespace(get_rank=lambda: RANK, get_world_size=lambda: RANKS)
sbp = SimpleNamespace(broadcast="B", partial_sum="P", split=lambda dim: f"S{dim}")
_oneflow_internal = SimpleNamespace(
    eager=SimpleNamespace(Sync=lambda: None), lazy_mode=SimpleNamespace(is_enabled=lambda: False)
)
no_grad = nullcontext
device = str


def _backward(outputs, _weights):
    """Have the gradient of no function; the last rank has that of ``acos``, as if it had another version."""
    missing = [made.function for made in outputs if not (IS_LAST and made.function == "acos")]
    if missing:
        message = f"The gradient function for op {missing[0]} is not found."
        raise RuntimeError(message)


autograd = SimpleNamespace(backward=_backward)


def placement(kind, ranks):
    return kind, tuple(ranks)


class Tensor:
    """An array that lies on all ranks, or on this one alone."""

    is_leaf, requires_grad, grad, function = True, False, None, ""

    def __init__(self, array, lies=()):
        self.array, self.sbp = array, tuple(lies)
        self.shape, self.ndim = array.shape, array.ndim
        self.dtype = globals()[array.dtype.name]
        self.is_global = bool(lies)

    def to_global(self, _placement, lies):
        return Tensor(self.array, lies)

    def to_local(self):
        return Tensor(self.array)

    def to(self, dtype):
        return Tensor(self.array.astype(dtype.name), self.sbp)

    def numpy(self):
        return self.array

    def nelement(self):
        return self.array.size

    def is_contiguous(self):
        return True

    def detach(self):
        return Tensor(self.array, self.sbp)

    def requires_grad_(self):
        self.requires_grad = True
        return self

    def retain_grad(self):
        pass

    def cpu(self):
        return self

    def copy_(self, other):
        self.array[...] = other.array


from_numpy = Tensor


def zeros(shape, dtype=float32):
    return Tensor(np.zeros(shape, dtype.name))


def cos(x):
    return Tensor(np.cos(x.array), x.sbp)


def _differentiable(name, array, x):
    found = Tensor(array, x.sbp)
    found.requires_grad, found.is_leaf, found.function = x.requires_grad, not x.requires_grad, name
    return found


def atan(x):
    """Be right, and have no gradient."""
    return _differentiable("atan", np.arctan(x.array), x)


def sinh(x):
    """Be wrong on all ranks, and have no gradient."""
    return _differentiable("sinh", np.sinh(x.array) + 1, x)


def acos(x):
    """Be right, and have a gradient on the last rank alone."""
    return _differentiable("acos", np.arccos(x.array), x)


def sin(x):
    """Give other elements on the last rank."""
    return Tensor(np.sin(x.array) + IS_LAST, x.sbp)


def abs(x):  # noqa: A001 - OneFlow's name
    """Raise on the last rank alone."""
    if IS_LAST:
        message = "the last rank raises"
        raise ValueError(message)
    return Tensor(np.abs(x.array), x.sbp)


def sign(_):
    """Raise on all ranks, in words of each rank's own."""
    message = f"rank {RANK} raises"
    raise ValueError(message)


def ceil(_):
    """Refuse how the input lies, in OneFlow's words."""
    message = "ceil7 has no maching sbp after flitering valid sbp list sbp_signature {"
    raise RuntimeError(message)


def floor(_):
    """Refuse global tensors, in OneFlow's words and colours."""
    message = "\x1b[1m\x1b[38;2;255;000;000mError\x1b[0m: RuntimeError : Only local tensors have 'device'. Please use\n"
    raise RuntimeError(message)


def exp(x):
    """End the process of the last rank."""
    if IS_LAST:
        os.kill(os.getpid(), signal.SIGKILL)
    return Tensor(np.exp(x.array), x.sbp)


def square(x):
    """End the process of the last rank with status 0."""
    if IS_LAST:
        os._exit(0)
    return Tensor(np.square(x.array), x.sbp)


def log1p(x):
    """Raise on the rank that the first element names, for which the others wait for ever, as in a collective."""
    if int(x.array.flat[0]) == RANK:
        message = f"rank {RANK} raises"
        raise ValueError(message)
    threading.Event().wait()


def log(_):
    """End the processes of all ranks."""
    os.kill(os.getpid(), signal.SIGKILL)


def tan(_):
    """Raise on the last rank, for which the others wait for ever, as in a collective."""
    if IS_LAST:
        message = "the last rank raises"
        raise ValueError(message)
    threading.Event().wait()


def tanh(_):
    """Raise on the last rank, for which the others wait for ever and poll, as OneFlow does."""
    if IS_LAST:
        message = "the last rank raises"
        raise ValueError(message)
    while True:
        pass


def clamp(x, min, max):  # noqa: A002 - OneFlow's names
    """Be right, but for the fault with the number ``max`` on the rank ``min``: see ``fakes/rank_faults``."""
    from rank_faults import FAULTS  # noqa: PLC0415 - only where that folder is on the path

    if int(min) == RANK:
        [*FAULTS.values()][int(max)]()
    return Tensor(np.clip(x.array, min, max), x.sbp)
