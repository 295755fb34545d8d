"""OneFlow: torch's names, gradients of its own engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.errors import UnsupportedReason
from ci_autotest.host.frameworks.limitations import Limitation, told_by
from ci_autotest.host.frameworks.protocol import STEP_BY_STEP, LackingError
from ci_autotest.host.frameworks.torch_like import TorchLike, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import TensorSpec

#: How OneFlow 0.9 says that it has no kernel, gradient or argument, or none in a graph; colours are taken out first.
_LIMITATIONS: Final = (
    Limitation(Exception, r"Cannot find the kernel matching Current OperatorConf\."),
    Limitation(Exception, r"The gradient function for op \w+ is not found\."),
    Limitation(TypeError, r"(?:Error: )?[\w.]+\(\): received an invalid combination of arguments\."),
    Limitation(TypeError, r"[\w.<>]+\(\) got an unexpected keyword argument '\w+'"),
    Limitation(ValueError, r"A lazy tensor can not be applied to \w+\."),
    Limitation(Exception, r"(?:Error: )?Advanced indexing by boolean\(mask\) tensor only valid in eager mode\."),
    Limitation(Exception, r"(?:Error: )?Only eager scalar tensor support GetItem\."),
    Limitation(Exception, r"(?:Error: )?for now oneflow\.quantile only support `"),
    Limitation(Exception, r"(?:Error: )?(?:RuntimeError: )?Can only calculate the mean of floating types\."),
    Limitation(AssertionError, r"tensor\.numpy\(\) is not allowed to be called in nn\.Graph\.build"),
    Limitation(ValueError, r"padding='same' is not supported for strided convolutions"),
)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_DTYPE: Final = re.compile(r"DataType_Name of \w+: k(\w+)")
_SHOWN_CHARS: Final = 160


def _bits(wide: np.ndarray) -> np.ndarray:
    """Return the upper half of each float32, which is the bfloat16 that it holds."""
    return np.asarray(wide.view(np.uint32) >> np.uint32(16), np.uint16).reshape(wide.shape)


class OneFlow(TorchLike):
    """Execute with OneFlow.

    Args:
        module: ``oneflow``.
        device: ``cpu`` or ``cuda``.
    """

    def __init__(self, module: str, device: str) -> None:
        super().__init__(module, device)
        self._folder = Path(self._module.__file__).resolve().parent
        self._shared: dict[str, bool] = {}
        # The scheduler goes on looking for instructions for a millisecond after each: 330 us of processor time a case.
        self.polls = self._device == self._cpu

    def shares(self, spec: TensorSpec) -> bool:
        """Whether what ``tensor`` makes of an array is that memory: seen once for each dtype, by writing to it."""
        if self._device != self._cpu or spec.dtype == "bfloat16":
            return False
        found = self._shared.get(spec.dtype)
        if found is None:
            flow, memory = self._module, np.zeros(2, spec.dtype)
            flow.from_numpy(memory).copy_(flow.from_numpy(np.ones(2, spec.dtype)))
            self.synchronize()
            found = self._shared[spec.dtype] = bool(memory.all())
        return found

    def array(self, tensor: Any) -> np.ndarray:
        """Return a tensor's elements in C order."""
        memory = self.ask(tensor)
        self.synchronize()
        return self.told(tensor, memory)

    def ask(self, tensor: Any) -> np.ndarray:
        """Return memory of NumPy's that a tensor is copied into, a bfloat16 as float32.

        OneFlow computes in threads of its own, and ``numpy()`` waits for them each time.
        """
        flow, value = self._module, tensor.detach()
        if value.dtype == flow.bfloat16:
            value = value.to(flow.float32)
        memory = np.empty(tuple(value.shape), name_of(value.dtype))
        if memory.size:
            value = value.cpu()
            flow.from_numpy(memory).copy_(value if value.is_contiguous() else value.contiguous())
        return memory

    def told(self, tensor: Any, memory: np.ndarray) -> np.ndarray:
        """Return a tensor's elements in C order, out of the memory that it was copied into."""
        return _bits(memory) if tensor.dtype == self._module.bfloat16 else memory

    #: OneFlow's graphs have gradients for an optimizer of their own alone.
    graph_has_backward = False

    def graph(
        self, body: Callable[[Sequence[Any], Sequence[Any]], list[Any]], inputs: Sequence[Any], modules: Sequence[Any]
    ) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Compile a body into an ``nn.Graph``.

        Raises:
            LackingError: It is not carried out lazily.
        """
        flow = self._module
        is_lazy = flow._oneflow_internal.lazy_mode.is_enabled  # noqa: SLF001 - nothing public says it

        class Body(flow.nn.Graph):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                for number, module in enumerate(modules):
                    setattr(self, f"part_{number}", module)

            def build(self, *tensors: Any) -> list[Any]:
                if not is_lazy():
                    raise LackingError(STEP_BY_STEP, UnsupportedReason.STEP_BY_STEP)
                return body(tensors, [getattr(self, f"part_{number}") for number in range(len(modules))])

        graph = Body()
        graph._compile(*inputs)  # noqa: SLF001 - what the first call would do
        return lambda tensors: graph(*tensors)

    def gradients(self, outputs: Sequence[Any], weights: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the gradients that a backward pass leaves: ``autograd.grad`` refuses an input that is not reached."""
        for tensor in inputs:
            if not tensor.is_leaf:
                tensor.retain_grad()
        self._module.autograd.backward(list(outputs), list(weights))
        return [tensor.grad for tensor in inputs]

    def synchronize(self) -> None:
        """Wait for the threads that compute, on the CPU as well."""
        self._module._oneflow_internal.eager.Sync()  # noqa: SLF001 - nothing public waits for a CPU

    def lacking(self, error: BaseException) -> str:
        """Return what OneFlow says that it has not."""
        text = _COLOUR.sub("", str(error))
        if not isinstance(error, NotImplementedError) and not told_by(error, text, _LIMITATIONS, self._folder):
            return ""
        first = text.strip().splitlines()[0].strip()[:_SHOWN_CHARS].rstrip(" .")
        dtypes = ", ".join(dict.fromkeys(name.lower() for name in _DTYPE.findall(text)))
        return f"{first} ({dtypes})" if dtypes else first
