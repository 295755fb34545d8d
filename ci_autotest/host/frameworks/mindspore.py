"""MindSpore on the CPU in eager mode: ``mindspore.mint``, and gradients by ``GradOperation`` of the program.

MindSpore launches its kernels from a thread of its own: an error surfaces only when a later call reads a value, and
then again at every call after that. So launching is set to block, and an error surfaces at its own step.

Source: MindSpore 2.10, ``mindspore.runtime.launch_blocking``, ``mindspore.ops.GradOperation``.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.host.frameworks.limitations import Limitation, reported_limitation
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.host.frameworks.task import Functional, plan
from ci_autotest.host.steps import execute_step
from ci_autotest.program.ir import Device, DType
from ci_autotest.values.dtypes import COMPLEX, DIFFERENTIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.host.frameworks.task import Differentiation
    from ci_autotest.program.ir import Argument, Program, TensorSpec

#: How MindSpore reports that it has no kernel on the CPU or for a dtype, or no such argument. Half of ``mint`` is
#: documented for Ascend only, and each layer of the runtime has its own words for that.
_LIMITATIONS: Final = (
    Limitation(RuntimeError, r"The kernel \w+ unregistered\."),
    Limitation(RuntimeError, r"Not found op \w+ on device CPU"),
    Limitation(RuntimeError, r"Create kernelmod for op \w+ failed"),
    Limitation(RuntimeError, r"KernelMod Init Failed: \w+"),
    Limitation(RuntimeError, r"\s*-+\n- Kernel select failed:\n-+\n[^\n]*"),
    Limitation(RuntimeError, r"Not implement exception\s*(?:\n|$)"),
    Limitation(ValueError, r"should not come here for \w+ py_method\."),
    Limitation(ValueError, r"For Primitive \[\w+\], type should be \w+"),
    Limitation(TypeError, r"Select CPU operator\[\w+\] fail! Unsupported data type!"),
    Limitation(TypeError, r"For primitive\[\w+\], the input argument ?\[[\w ]+\] must be a type of \{"),
    Limitation(TypeError, r"For primitive\[\w+\], the input\[\w+\] supports types: "),
    Limitation(TypeError, r"For Primitive \w+, the type of \w+ must be in \{"),
    Limitation(TypeError, r"Failed calling \w+ with \""),
    Limitation(TypeError, r"For '\w+', '\w+' do not support "),
)
_ADAPTERS: Final = "adapters."
_SHOWN_CHARS: Final = 200


class MindSpore(Functional):
    """Execute translated programs with MindSpore on the host's processor.

    Args:
        module: ``mindspore``.
        device: ``cpu``.
    """

    name = "mindspore"
    has_flags = False
    undifferentiated = frozenset({
        "mindspore.ops.stop_gradient", "mindspore.mint.zeros_like", "mindspore.mint.ones_like",
        "mindspore.mint.full_like",
    })  # fmt: skip

    def __init__(self, module: str = "mindspore", device: str = "cpu") -> None:
        """Import MindSpore on the CPU, with blocking launches.

        Raises:
            LackingError: Another device.
        """
        if device != "cpu":
            message = f"device {device} here: the adapter of MindSpore runs on cpu"
            raise LackingError(message)
        os.environ.setdefault("GLOG_v", "3")  # No warnings: every error that matters is raised.
        mindspore = self._mindspore = importlib.import_module(module)
        importlib.import_module(f"{module}.mint")
        mindspore.set_device("CPU")
        mindspore.runtime.launch_blocking()
        self.version: str = mindspore.__version__
        self._folder = Path(str(mindspore.__file__)).resolve().parent
        self._tensor = mindspore.Tensor
        self._gradient = mindspore.ops.GradOperation(get_all=True, sens_param=True)
        self._functions: dict[str, Callable[..., Any]] = {}

    def libraries(self) -> dict[str, str]:
        """Return the version of numpy."""
        return {"numpy": np.__version__}

    def devices(self) -> list[str]:
        """Return the one device that the adapter runs on."""
        return ["cpu"]

    def tensor(self, array: np.ndarray[Any, Any], spec: TensorSpec) -> Any:
        """Return a tensor."""
        # As bits, because a conversion by way of float32 may change the payload of a NaN.
        found = self._tensor(array.view(np.int16) if spec.dtype == "bfloat16" else array)
        return found.view(self._mindspore.bfloat16) if spec.dtype == "bfloat16" else found

    def array(self, tensor: Any) -> np.ndarray[Any, Any]:
        """Return a copy of the elements in C order."""
        is_narrow = tensor.dtype == self._mindspore.bfloat16
        found = np.array((tensor.view(self._mindspore.int16) if is_narrow else tensor).asnumpy(), order="C")
        return found.view(np.uint16) if is_narrow else found

    def is_tensor(self, value: Any) -> bool:
        """Whether a value is a tensor of MindSpore."""
        return isinstance(value, self._tensor)

    def is_inexact(self, tensor: Any) -> bool:
        """Whether a tensor can be differentiated."""
        return self.facts(tensor)[0] in DIFFERENTIABLE

    def facts(self, tensor: Any) -> tuple[str, tuple[int, ...], bool, bool]:
        """Return dtype and shape. MindSpore's tensors have no flags."""
        name = str(tensor.dtype).lower()
        return name, tuple(tensor.shape), False, False

    def function(self, target: str) -> Callable[..., Any]:
        """Return the function that a target names.

        Raises:
            LackingError: MindSpore has no such function.
        """
        found: Any = self._functions.get(target)
        if found is not None:
            return found  # type: ignore[no-any-return]
        if target.startswith(_ADAPTERS):
            adapters = importlib.import_module("ci_autotest.host.adapters.mindspore")
            found = getattr(adapters, target.removeprefix(_ADAPTERS), None)
        else:
            found = self._mindspore
            for part in target.split(".")[1:]:
                found = getattr(found, part, None)
        if not callable(found):
            raise LackingError(target)
        self._functions[target] = found
        return found  # type: ignore[no-any-return]

    def constant(self, argument: Argument) -> Any:
        """Return a dtype or device.

        Raises:
            LackingError: MindSpore has no such constant.
        """
        if isinstance(argument, DType):
            return getattr(self._mindspore, "bool_" if argument.name == "bool" else argument.name)
        if isinstance(argument, Device):
            return "CPU"
        message = f"constant {argument!r}"
        raise LackingError(message)

    def backward(
        self, program: Program, values: Sequence[Any], weights: Mapping[int, Any], leaves: Sequence[int]
    ) -> list[Any | None]:
        """Return the gradients of leaves, by ``GradOperation`` of the steps between them and the outputs.

        Args:
            program: Translated.
            values: Value of each step, from the forward run.
            weights: Cotangent of each output, by its position.
            leaves: Steps whose gradients are requested.

        Returns:
            One gradient for each leaf; ``None`` if no output depends on it differentiably.

        Raises:
            LackingError: A leaf or output is complex. MindSpore documents no gradients for those.
        """
        task = plan(self, program, values, weights, leaves)
        if not task.leaves or not task.roots:
            return [None] * len(leaves)
        if any(self.facts(values[i])[0] in COMPLEX for i in (*task.leaves, *(index for index, _ in task.roots))):
            message = "gradients of complex tensors"
            raise LackingError(message)
        cotangents = tuple(weights[position] for _, position in task.roots)
        # MindSpore takes one weight for one output, and a tuple for several.
        found = self._gradient(lambda *tensors: self._forward(task, values, tensors))(
            *(values[i] for i in task.leaves), cotangents[0] if len(cotangents) == 1 else cotangents
        )
        gradients = dict(zip(task.leaves, found, strict=True))
        return [gradients.get(index) for index in task.asked]

    def _forward(self, task: Differentiation, known: Sequence[Any], leaves: Sequence[Any]) -> Any:
        """Run the dependent steps again, and return the outputs that are differentiated."""
        values: list[Any] = [None] * len(task.steps)
        for index in (*task.given, *task.fixed):
            values[index] = known[index]
        for index, leaf in zip(task.leaves, leaves, strict=True):
            values[index] = leaf
        for index in task.again:
            values[index] = execute_step(task.steps[index], values, self)  # type: ignore[arg-type]
        outputs = tuple(values[index] for index, _ in task.roots)
        return outputs[0] if len(outputs) == 1 else outputs

    def lacking(self, error: BaseException) -> str:
        """Return the feature that MindSpore reports as missing on the CPU: a kernel, a dtype, an argument."""
        if isinstance(error, LackingError):
            return f"it has no {error}"
        text = str(error).strip()
        if not isinstance(error, NotImplementedError) and not reported_limitation(
            error, text, _LIMITATIONS, self._folder
        ):
            return ""
        # Behind the first line of dashes MindSpore writes about its own sources.
        return " ".join(text.partition("\n\n---")[0].split())[:_SHOWN_CHARS].rstrip(" .")

    def synchronize(self) -> None:
        """Do nothing, because launches block."""
