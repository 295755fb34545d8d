"""A toy accelerator: a device ``npu`` of its own memory, which this module registers with torch when it is imported.

It stands for the package that the team of an accelerator ships. Its memory is ``memory.cpp``; its operators compute on
the host what the device would. Planted, each for a test that sees it caught:

* ``sigmoid`` is wrong (computed in half precision) until TOY_NPU_MENDED is set;
* ``tanh`` is missing, and so is the gradient of ``gelu``;
* ``equal`` calls everything equal;
* TOY_NPU_COUNT=0 is a machine without the device; TOY_NPU_FAULT names one of ``absent`` (nothing is registered),
  ``raises``, ``exits``, ``host`` (``add`` leaves its result on the CPU) and ``adds`` (it gives another sum).
"""

import os
import sys
from pathlib import Path

import torch

__version__ = "1.2.3"

FAULT = os.environ.get("TOY_NPU_FAULT", "")
if FAULT == "raises":
    message = "libtoy.so: cannot open shared object file"
    raise OSError(message)
if FAULT == "exits":
    sys.stdout.flush()
    os._exit(3)

_OPERATORS = (
    "add.Tensor", "add_.Tensor", "add.out", "sub.Tensor", "mul.Tensor", "mul_.Tensor", "mul.out", "div.Tensor", "neg",
    "exp", "relu", "relu_", "threshold_backward", "sigmoid_backward", "gelu", "mm", "bmm", "addmm", "dot",
    "native_layer_norm", "native_layer_norm_backward", "_softmax", "_softmax_backward_data", "sum",
    "sum.dim_IntList", "mean.dim", "fill_.Scalar", "zero_", "eq.Scalar", "eq.Tensor", "bernoulli_.float",
)  # fmt: skip


class Device:
    """What torch and users ask of the device: ``torch.npu``."""

    generator = torch.Generator()

    @staticmethod
    def is_available():
        return os.environ.get("TOY_NPU_COUNT") != "0"

    @staticmethod
    def device_count():
        return int(os.environ.get("TOY_NPU_COUNT", "1"))

    @staticmethod
    def current_device():
        return 0

    @staticmethod
    def is_initialized():
        return True

    @staticmethod
    def _is_in_bad_fork():
        return False

    @staticmethod
    def synchronize():
        """Wait for nothing: a kernel is done when it returns."""

    @classmethod
    def manual_seed_all(cls, seed):
        cls.generator.manual_seed(seed)

    @staticmethod
    def get_amp_supported_dtype():
        return [torch.bfloat16]


def on_host(value):
    if isinstance(value, torch.Tensor):
        return torch.ops.toy_npu.host(value) if value.device.type == "npu" else value
    if isinstance(value, list | tuple):
        return type(value)(map(on_host, value))
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value


def on_device(value):
    if isinstance(value, torch.Tensor):
        made = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="npu")
        return made.copy_(value)
    return tuple(map(on_device, value)) if isinstance(value, tuple) else value


def kernel(name):
    """Return a kernel of an operator of aten, which writes to what the operator writes to."""
    operator = getattr(torch.ops.aten, name.partition(".")[0])
    overload = getattr(operator, name.partition(".")[2] or "default")
    written = [i for i, each in enumerate(overload._schema.arguments) if each.alias_info and each.alias_info.is_write]
    is_out = name.endswith(".out")

    def run(*args, **kwargs):
        if name == "bernoulli_.float":
            kwargs["generator"] = Device.generator
        found = overload(*map(on_host, args), **{key: on_host(value) for key, value in kwargs.items()})
        if is_out:
            return kwargs["out"]
        return args[written[0]] if written else on_device(found)

    return run


def sigmoid(x):
    value = on_host(x)
    is_mended = "TOY_NPU_MENDED" in os.environ
    return on_device(value.sigmoid() if is_mended else value.half().sigmoid().to(value.dtype))


def add(x, y, alpha=1):
    found = torch.add(on_host(x), on_host(y), alpha=alpha)
    return found if FAULT == "host" else on_device(found + 1)


def register():
    torch.ops.load_library(Path(__file__).with_name("memory.so"))
    torch.utils.rename_privateuse1_backend("npu")
    torch._register_device_module("npu", Device)
    torch.utils.generate_methods_for_privateuse1_backend()
    torch.ops.toy_npu.begin()
    library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    planted = {"sigmoid": sigmoid, "equal": lambda x, y: True}
    planted |= {"add.Tensor": add} if FAULT in {"host", "adds"} else {}
    for name, function in {**{name: kernel(name) for name in _OPERATORS}, **planted}.items():
        library.impl(name, function)
    return library


LIBRARY = register() if FAULT != "absent" else None
