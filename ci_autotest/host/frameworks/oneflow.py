"""OneFlow: torch's names, and gradients of its own autograd engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.errors import UnsupportedReason
from ci_autotest.host.frameworks.limitations import Limitation, reported_limitation
from ci_autotest.host.frameworks.protocol import STEP_BY_STEP, LackingError
from ci_autotest.host.frameworks.torch_like import TorchLike, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import TensorSpec

#: How OneFlow 0.9 reports a missing kernel, gradient or argument, or what a graph lacks; without terminal colours.
_LIMITATIONS: Final = (
    Limitation(Exception, r"Cannot find the kernel matching Current OperatorConf\."),
    Limitation(Exception, r"The gradient function for op \w+ is not found\."),
    Limitation(TypeError, r"(?:Error: )?[\w.]+\(\): received an invalid combination of arguments\."),
    # Functions of Python say it without the colon, compiled ones with it.
    Limitation(TypeError, r"(?:Error: )?[\w.<>]+\(\):? got an unexpected keyword argument '\w+'"),
    Limitation(ValueError, r"A lazy tensor can not be applied to \w+\."),
    Limitation(Exception, r"(?:Error: )?Advanced indexing by boolean\(mask\) tensor only valid in eager mode\."),
    Limitation(Exception, r"(?:Error: )?Only eager scalar tensor support GetItem\."),
    Limitation(Exception, r"(?:Error: )?for now oneflow\.quantile only support `"),
    Limitation(Exception, r"(?:Error: )?(?:RuntimeError: )?Can only calculate the mean of floating types\."),
    Limitation(AssertionError, r"tensor\.numpy\(\) is not allowed to be called in nn\.Graph\.build"),
    Limitation(ValueError, r"padding='same' is not supported for strided convolutions"),
)
#: Colours of a terminal in OneFlow's messages.
COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_DTYPE: Final = re.compile(r"DataType_Name of \w+: k(\w+)")
_SHOWN_CHARS: Final = 160


def _bits(wide: np.ndarray) -> np.ndarray:
    """Return the upper 16 bits of each float32, which are its value as bfloat16."""
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
        # After each instruction the scheduler polls for more for a millisecond: 330 us of CPU time per case.
        self.polls = self._device == self._cpu

    def shares(self, spec: TensorSpec) -> bool:
        """Whether ``tensor`` shares an array's memory; found out once for each dtype, by writing to such a tensor."""
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
        memory = self.begin_read(tensor)
        self.synchronize()
        return self.end_read(tensor, memory)

    def begin_read(self, tensor: Any) -> np.ndarray:
        """Start to copy a tensor into NumPy's memory, and return that; bfloat16 as float32.

        OneFlow computes in its own threads, and ``numpy()`` would wait for them at each call.
        """
        flow, value = self._module, tensor.detach()
        if value.dtype == flow.bfloat16:
            value = value.to(flow.float32)
        memory = np.empty(tuple(value.shape), name_of(value.dtype))
        if memory.size:
            value = value.cpu()
            flow.from_numpy(memory).copy_(value if value.is_contiguous() else value.contiguous())
        return memory

    def end_read(self, tensor: Any, memory: np.ndarray) -> np.ndarray:
        """Return a tensor's elements in C order, from the memory that it was copied into."""
        # It was copied as float32, because numpy has no bfloat16.
        return _bits(memory) if tensor.dtype == self._module.bfloat16 else memory

    #: Inside a graph OneFlow computes gradients only for an optimizer that is part of the graph.
    graph_has_backward = False

    def graph(
        self, body: Callable[[Sequence[Any], Sequence[Any]], list[Any]], inputs: Sequence[Any], modules: Sequence[Any]
    ) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Compile a body into an ``nn.Graph``.

        Raises:
            LackingError: OneFlow runs the body eagerly.
        """
        flow = self._module
        is_lazy = flow._oneflow_internal.lazy_mode.is_enabled  # noqa: SLF001 - there is no public function for this

        class OneFlowBody(flow.nn.Graph):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                for number, module in enumerate(modules):
                    setattr(self, f"part_{number}", module)

            def build(self, *tensors: Any) -> list[Any]:
                if not is_lazy():
                    raise LackingError(STEP_BY_STEP, UnsupportedReason.STEP_BY_STEP)
                return body(tensors, [getattr(self, f"part_{number}") for number in range(len(modules))])

        graph = OneFlowBody()
        graph._compile(*inputs)  # noqa: SLF001 - what the first call does
        return lambda tensors: graph(*tensors)

    def gradients(self, outputs: Sequence[Any], weights: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the gradients, by ``backward``: ``autograd.grad`` refuses an input that no output depends on."""
        for tensor in inputs:
            if not tensor.is_leaf:
                tensor.retain_grad()  # ``backward`` keeps gradients of leaves only
            elif tensor.grad is not None:
                tensor.grad = None  # ``backward`` adds to what a pass of the body's own has left.
        self._module.autograd.backward(list(outputs), list(weights))
        return [tensor.grad for tensor in inputs]

    def synchronize(self) -> None:
        """Wait for OneFlow's threads, which compute on the CPU as well."""
        self._module._oneflow_internal.eager.Sync()  # noqa: SLF001 - no public function waits for the CPU

    def lacking(self, error: BaseException) -> str:
        """Return the feature that OneFlow reports as missing, with the dtypes in question."""
        text = COLOUR.sub("", str(error))
        if not isinstance(error, NotImplementedError) and not reported_limitation(
            error, text, _LIMITATIONS, self._folder
        ):
            return ""
        first = text.strip().splitlines()[0].strip()[:_SHOWN_CHARS].rstrip(" .")
        dtypes = ", ".join(dict.fromkeys(name.lower() for name in _DTYPE.findall(text)))
        return f"{first} ({dtypes})" if dtypes else first
