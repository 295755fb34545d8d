"""Paddle: its tensors, functions, graphs and gradients. Source: the documentation of Paddle 3.3.1."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.errors import is_of_library
from ci_autotest.host.frameworks.limitations import Limitation, raiser, reported_limitation
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.program.ir import HOST_DEVICE, NO_GRAD, Device, DType
from ci_autotest.values.dtypes import DIFFERENTIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import Argument, Step, TensorSpec

#: How Paddle reports that it has no kernel for a dtype, or refuses one that its documentation does not list.
_LIMITATIONS: Final = (
    Limitation(RuntimeError, r"\(NotFound\) The kernel with key \([^`]*\) of kernel `\w+` is not registered\."),
    Limitation(Exception, r"\(\w+\) Type promotion only support calculations between floating-point numbers"),
    Limitation(Exception, r"\(\w+\) The data_type of input tensor in list isn't consistent"),
    Limitation(Exception, r"\(\w+\) The type of data we are trying to retrieve"),
    Limitation(
        ValueError,
        r"\(\w+\) The received values data type \w+ can not meet input requirements\. Because the given values data "
        r"type of searchsorted operators must be",
    ),
    Limitation(TypeError, r"Elements in Input\(x\) should all be integers"),
    # In graph mode: an operator does not take this dtype.
    Limitation(
        TypeError,
        r"\(InvalidType\) Check data type error for op: \S+, input: \S+ \S+dtype: \w+, and expected_dtype: \w[\w, ]*\w",
    ),
)
#: Files of Paddle whose checks refuse code that works in the other mode only, with the function if it is a single one.
_GUARDS: Final = {"base/framework.py": None, "utils/inplace_utils.py": None, "base/data_feeder.py": "check_dtype"}

#: Paddle's method that raises its own error in place of a step's error when it compiles a graph.
_WRAPS: Final = "raise_new_exception"


class Paddle:
    """Execute steps with Paddle on the CPU."""

    name = "paddle"
    has_flags = True

    def __init__(self, module: str, device: str) -> None:
        """Import Paddle without its signal handlers, so that a crash ends the process by its own signal.

        Raises:
            ImportError: It cannot be imported.
        """
        self._paddle: Any = import_module(module)
        self._paddle.disable_signal_handler()
        self._paddle.set_device("gpu" if device.startswith("cuda") else "cpu")
        self.version: str = self._paddle.__version__
        self._folder = Path(str(self._paddle.__file__)).resolve().parent

    def libraries(self) -> dict[str, str]:
        """Return the versions that results depend on."""
        return {"numpy": np.__version__, "paddle commit": self._paddle.version.commit}

    def devices(self) -> list[str]:
        """Return the kinds of devices that can be used here."""
        has_cuda = self._paddle.is_compiled_with_cuda() and self._paddle.device.cuda.device_count()
        return ["cpu", "cuda"] if has_cuda else ["cpu"]

    def tensor(self, array: np.ndarray[Any, Any], spec: TensorSpec) -> Any:
        """Return a leaf with the array's elements."""
        return self._paddle.to_tensor(array, dtype=spec.dtype, stop_gradient=not spec.requires_grad)

    def strided(self, storage: np.ndarray[Any, Any], spec: TensorSpec) -> Any:
        """Return a leaf in the layout of ``spec``; ``paddle.as_strided`` counts its offset in bytes."""
        if 0 in spec.shape:
            return self.tensor(np.empty(spec.shape, storage.dtype), spec)
        flat = self._paddle.to_tensor(storage, dtype=spec.dtype)
        offset = spec.offset * storage.itemsize
        view = self._paddle.as_strided(flat, list(spec.shape), list(spec.strides), offset).detach()
        view.stop_gradient = not spec.requires_grad
        return view

    def array(self, tensor: Any) -> np.ndarray[Any, Any]:
        """Return a copy of the elements in C order."""
        return np.ascontiguousarray(tensor.numpy()).reshape(tuple(tensor.shape))

    def is_tensor(self, value: Any) -> bool:
        """Whether a value is a tensor of Paddle, or stands for one while a graph is compiled."""
        return isinstance(value, self._paddle.Tensor | self._paddle.pir.Value)

    def facts(self, tensor: Any) -> tuple[str, tuple[int, ...], bool, bool]:
        """Return dtype, shape, requires_grad and is_leaf.

        In Paddle integers and booleans inherit ``stop_gradient``, but never have a gradient: they count as leaves.
        """
        dtype = str(tensor.dtype).removeprefix("paddle.")
        if dtype not in DIFFERENTIABLE:
            return dtype, tuple(tensor.shape), False, True
        return dtype, tuple(tensor.shape), not tensor.stop_gradient, tensor.is_leaf

    def function(self, target: str) -> Callable[..., Any]:
        """Return the function at a dotted path in Paddle.

        Raises:
            LookupError: Paddle has no such function.
        """
        found: Any = self._paddle
        for part in target.split(".")[1:]:
            found = getattr(found, part, None)
        if not callable(found):
            raise LackingError(target)
        return found  # type: ignore[no-any-return]

    def constant(self, argument: Argument) -> Any:
        """Return a dtype or a device of Paddle.

        Raises:
            LookupError: Paddle has no such constant.
        """
        if isinstance(argument, DType):
            return getattr(self._paddle, argument.name)
        if isinstance(argument, Device):
            return "cpu" if argument.symbol == HOST_DEVICE else self._paddle.get_device()
        raise LackingError(str(argument))

    def in_mode(self, step: Step, call: Callable[[], Any]) -> Any:
        """Call a step under its modes, after seeding the generator with its seed.

        Raises:
            LackingError: A mode other than ``no_grad``.
        """
        if step.seed is not None:
            self._paddle.seed(step.seed)
        # The adapter knows no counterpart of autocast.
        others = [mode for mode in step.modes if mode not in NO_GRAD]
        if others:
            message = f"mode {others[0]!r}"
            raise LackingError(message)
        if not step.modes:
            return call()
        with self._paddle.no_grad():
            return call()

    #: ``to_static`` rewrites ``x[i] = y`` in source code into another function. A step has no source code to rewrite.
    not_in_graphs: Final = frozenset({"operator.setitem"})

    def graph(
        self, body: Callable[[Sequence[Any], Sequence[Any]], list[Any]], inputs: Sequence[Any], modules: Sequence[Any]
    ) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Compile a body with ``to_static``, as a whole: otherwise Paddle silently runs parts of it eagerly.

        Source:
            Paddle 3.3.1: ``full_graph=True`` compiles the function's syntax tree. ``not_to_static`` exempts the body:
            it is straight-line code that needs no rewriting.
        """
        jit, parts = self._paddle.jit, list(modules)
        steps = jit.not_to_static(body)

        def whole(tensors: list[Any]) -> list[Any]:
            found: list[Any] = steps(tensors, parts)
            return found

        static = jit.to_static(whole, full_graph=True)
        static.get_concrete_program(list(inputs))
        return lambda tensors: static(list(tensors))

    def gradients(self, outputs: Sequence[Any], weights: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the gradient of the outputs, weighted, for each input; ``None`` for an input that has none.

        ``paddle.grad`` is not used, because it does not backpropagate past an output that is also an input. Hooks are
        used instead of ``retain_grads``, because a later gradient may be added into the memory that the latter keeps.
        """
        found: dict[int, Any] = {}
        hooks = [
            tensor.register_hook(_keeping(found, place)) for place, tensor in enumerate(inputs) if not tensor.is_leaf
        ]
        self._paddle.autograd.backward(list(outputs), list(weights))
        for hook in hooks:
            hook.remove()
        return [tensor.grad if tensor.is_leaf else found.get(place) for place, tensor in enumerate(inputs)]

    def lacking(self, error: BaseException) -> str:
        """Return the feature that Paddle reports as missing: a kernel for a dtype, a promotion, a graph."""
        cause = _cause(error)
        text = " ".join(str(cause).split())
        if self._is_guarded(cause):
            return f"graph of this body: {text}"
        return text if reported_limitation(cause, text, _LIMITATIONS, self._folder) else ""

    def _is_guarded(self, error: BaseException) -> bool:
        """Whether one of Paddle's own checks of the mode, or of dtypes in a graph, raised an error."""
        code = raiser(error)
        if code is None or is_of_library(error):
            return False
        places = {str(self._folder / file): name for file, name in _GUARDS.items()}
        path = str(Path(code.co_filename).resolve())
        return path in places and places[path] in {None, code.co_name}

    def synchronize(self) -> None:
        """Wait for the device; on the CPU calls are synchronous."""
        if self._paddle.get_device() != "cpu":
            self._paddle.device.synchronize()


def _cause(error: BaseException) -> BaseException:
    """Return the error that a step raised, from under the error of ``to_static``."""
    while (code := raiser(error)) is not None and code.co_name == _WRAPS and error.__context__ is not None:
        error = error.__context__
    return error


def _keeping(found: dict[int, Any], place: int) -> Callable[[Any], None]:
    """Return a hook that stores a copy of its gradient; Paddle passes ``None`` for an output that nothing uses."""

    def keep(gradient: Any) -> None:
        found[place] = None if gradient is None else gradient.clone()

    return keep
