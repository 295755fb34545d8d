"""Paddle, for a host: its tensors, functions and gradients. Source: the documentation of Paddle 3.3.1."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.errors import is_of_library
from ci_autotest.host.frameworks.limitations import Limitation, raiser, told_by
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.program.ir import COMPLEX, FLOATING, HOST_DEVICE, NO_GRAD, Device, DType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import Argument, Step, TensorSpec

#: What Paddle says where it has no kernel of a dtype, or documents that it takes none: nothing to hold against it.
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
    # Of a graph: an operator takes no such dtype.
    Limitation(
        TypeError,
        r"\(InvalidType\) Check data type error for op: \S+, input: \S+ \S+dtype: \w+, and expected_dtype: \w[\w, ]*\w",
    ),
)
#: Where Paddle's Python refuses what it takes eagerly alone, or in a graph alone, and dtypes in a graph.
_GUARDS: Final = {"base/framework.py": None, "utils/inplace_utils.py": None, "base/data_feeder.py": "check_dtype"}

#: The method of Paddle's that raises the error of a graph over that of a step.
_WRAPS: Final = "raise_new_exception"


class Paddle:
    """Execute steps with Paddle on the CPU."""

    name = "paddle"
    has_flags = True
    shows_steps = True

    def __init__(self, module: str, device: str) -> None:
        """Import Paddle; its handlers of signals are taken off, so that a crash ends the process as it is.

        Raises:
            ImportError: It cannot be imported.
        """
        self._paddle: Any = import_module(module)
        self._paddle.disable_signal_handler()
        self._paddle.set_device("gpu" if device.startswith("cuda") else "cpu")
        self.version: str = self._paddle.__version__
        self._folder = Path(str(self._paddle.__file__)).resolve().parent

    def libraries(self) -> dict[str, str]:
        """Return the versions that its results depend on."""
        return {"numpy": np.__version__, "paddle commit": self._paddle.version.commit}

    def devices(self) -> list[str]:
        """Return the kinds of devices that can be used here."""
        has_cuda = self._paddle.is_compiled_with_cuda() and self._paddle.device.cuda.device_count()
        return ["cpu", "cuda"] if has_cuda else ["cpu"]

    def tensor(self, array: np.ndarray[Any, Any], spec: TensorSpec) -> Any:
        """Return a leaf of the array's elements; bfloat16 comes as its bits, in uint16."""
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
        """Return a copy of the elements in C order; bfloat16 as its bits."""
        return np.ascontiguousarray(tensor.numpy()).reshape(tuple(tensor.shape))

    def is_tensor(self, value: Any) -> bool:
        """Whether the value is a tensor of Paddle, or stands for one while a graph is made."""
        return isinstance(value, self._paddle.Tensor | self._paddle.pir.Value)

    def facts(self, tensor: Any) -> tuple[str, tuple[int, ...], bool, bool]:
        """Return dtype, shape, requires_grad and is_leaf.

        Paddle hands ``stop_gradient`` on to integers and booleans, which never have a gradient: they are leaves.
        """
        dtype = str(tensor.dtype).removeprefix("paddle.")
        if dtype not in FLOATING and dtype not in COMPLEX:
            return dtype, tuple(tensor.shape), False, True
        return dtype, tuple(tensor.shape), not tensor.stop_gradient, tensor.is_leaf

    def function(self, target: str) -> Callable[..., Any]:
        """Return what a dotted path names in Paddle.

        Raises:
            LookupError: Paddle has no such thing.
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
        """Call under the step's modes, with the generator set to its seed.

        Raises:
            LackingError: The step ran under a mode other than ``no_grad``.
        """
        if step.seed is not None:
            self._paddle.seed(step.seed)
        others = [mode for mode in step.modes if mode not in NO_GRAD]
        if others:
            message = f"mode {others[0]!r}"
            raise LackingError(message)
        if not step.modes:
            return call()
        with self._paddle.no_grad():
            return call()

    #: ``to_static`` makes a call of another function of ``x[i] = y``, where it sees it written; steps are not written.
    not_in_graphs: Final = frozenset({"operator.setitem"})

    def graph(
        self, body: Callable[[Sequence[Any], Sequence[Any]], list[Any]], inputs: Sequence[Any], modules: Sequence[Any]
    ) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Compile a body by ``to_static`` as one whole graph: otherwise what cannot be in it is run eagerly in silence.

        Source:
            Paddle 3.3.1: ``full_graph=True`` compiles the function's syntax tree; ``not_to_static`` leaves the steps,
            which are straight, as they are written.
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
        """Return the gradient of the outputs, weighted, for each input, ``None`` where it takes no part.

        By ``backward`` and not by ``paddle.grad``, which leaves out what lies before an output that is an input too; by
        hooks and not by ``retain_grads``, whose gradient may be the memory that a later one is added into.
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
        """Return what Paddle's error says that it has not, as documented: a kernel of a dtype, a promotion, a graph."""
        cause = _cause(error)
        said = " ".join(str(cause).split())
        if self._is_guarded(cause):
            return f"graph of this body: {said}"
        return said if told_by(cause, said, _LIMITATIONS, self._folder) else ""

    def _is_guarded(self, error: BaseException) -> bool:
        """Whether a check of Paddle's own, of the mode or of a graph's dtypes, raised an error."""
        code = raiser(error)
        if code is None or is_of_library(error):
            return False
        places = {str(self._folder / file): name for file, name in _GUARDS.items()}
        path = str(Path(code.co_filename).resolve())
        return path in places and places[path] in {None, code.co_name}

    def synchronize(self) -> None:
        """Wait for nothing on the CPU, where a call returns when it is done."""
        if self._paddle.get_device() != "cpu":
            self._paddle.device.synchronize()


def _cause(error: BaseException) -> BaseException:
    """Return what a step raised, where ``to_static`` raised an error of its own over it."""
    while (code := raiser(error)) is not None and code.co_name == _WRAPS and error.__context__ is not None:
        error = error.__context__
    return error


def _keeping(found: dict[int, Any], place: int) -> Callable[[Any], None]:
    """Return a hook that keeps a copy of the gradient that it is called with: none of an output that nothing uses."""

    def keep(gradient: Any) -> None:
        found[place] = None if gradient is None else gradient.clone()

    return keep
