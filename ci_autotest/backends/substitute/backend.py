"""The backend ``substitute``: torch with some operators replaced by the user's functions, also inside modules.

Replacement goes by operator: the user's function gets the call however a body spells it and whichever module makes it.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import TorchFunctionMode

from ci_autotest.backends.body_call import BodyCalls, called_with
from ci_autotest.backends.body_source import python_function
from ci_autotest.backends.case_scope import CaseScope
from ci_autotest.backends.eager.backend import TorchBackend, graph_on
from ci_autotest.backends.function_paths import load_function
from ci_autotest.backends.operators.identity import operator_of, public_name, step_operator
from ci_autotest.backends.operators.numpy_functions import NumpyFunction
from ci_autotest.backends.operators.signatures import python_parameters
from ci_autotest.backends.operators.user_operators import UserOperator, is_module_class
from ci_autotest.backends.protocol import Backend
from ci_autotest.backends.substitute.call_scope import CallScope
from ci_autotest.backends.substitute.operator_checks import checked, library_operator
from ci_autotest.backends.substitute.replaced_modules import ReplacedClass
from ci_autotest.errors import UnavailableError, Unsupported, UnsupportedReason
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD
from ci_autotest.program.roles import VARIADIC
from ci_autotest.program.targets import is_own
from ci_autotest.program.written_values import is_in_place
from ci_autotest.values.kernel_scope import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ci_autotest.backends.body_call import BodyCall
    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program, Step
    from ci_autotest.values.kernel_scope import KernelScope

LACKS_GRAPH: Final = "kernels with a declared scope are not compiled; drop it for this test's candidate"


class SubstituteBackend(Backend):
    """Execute steps with torch and replacements.

    Args:
        replace: Dotted path of the replacement by operator, in any spelling.
        device: ``cpu``, ``cuda`` or another attached device.
        scope: What the functions take.

    Raises:
        UnavailableError: A replacement cannot be imported.
    """

    takes_copies = True

    def __init__(
        self,
        replace: Mapping[str, str],
        device: str = "cpu",
        scope: KernelScope = EVERYTHING,
        state: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._torch = TorchBackend(device, is_candidate=True)
        self.device = self._torch.device
        found = {operator: load_function(path) for operator, path in replace.items()}
        classes = {operator for operator in found if is_module_class(operator)}
        self.scope = CallScope(scope, classes)
        self.case_scope, self.writes_inputs = CaseScope(frozenset(scope.profiles)), bool(scope.writes)
        # A graph calls the functions where nobody can ask what they take.
        self.lacks_graph = "" if self.scope.is_everything else LACKS_GRAPH
        self.functions = {operator_of(operator): found[operator] for operator in found if operator not in classes}
        self._classes = {
            operator: ReplacedClass(
                operator, _module_class(replace[operator], found[operator]),
                load_function(state[operator], "function of `state`") if operator in state else None, self.device,
            )
            for operator in classes
        }  # fmt: skip
        self._torch.steps.replace(self._classes)
        self._of_arrays = {name for name, each in self.functions.items() if isinstance(each, NumpyFunction)}
        if self._of_arrays:
            self.mode = "forward only where it takes arrays"

    def run(
        self, program: Program, sources: Mapping[str, Any], *, snapshots: bool = False, copied: Collection[int] = ()
    ) -> Trace:
        """Run the steps forward with the replacements."""
        mode = Replacing(self.functions, self.scope)
        for each in self._classes.values():
            each.count, each.unfit = mode.count, None
        trace = self._torch.run(program, sources, snapshots=snapshots, copied=copied, around=mode)
        trace.around, trace.calls = mode, mode.counts
        if self._of_arrays & mode.replaced:  # An array has neither flags nor a gradient.
            trace.has_flags = trace.has_backward = False
        if self.device.type == "cpu":
            trace.answered = mode.counts
        if not mode.replaced:
            trace.untested = nothing_replaced({**self.functions, **self._classes}, mode)
        # A module without the reference's state gives other results, which say nothing about it.
        trace.untested = next((each.unfit for each in self._classes.values() if each.unfit), trace.untested)
        trace.has_backward = trace.has_backward and not self.scope.is_forward_only(mode.counts)
        trace.has_flags = trace.has_flags and not self.scope.lacks_flags(mode.counts)
        return trace

    @property
    def on_step(self) -> Callable[[int], None] | None:
        """Called with the index of each step before it runs."""
        return self._torch.on_step

    @on_step.setter
    def on_step(self, callback: Callable[[int], None] | None) -> None:
        self._torch.on_step = callback

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run one backward pass over all outputs; calls in hooks are replaced too."""
        if not trace.has_backward:
            return
        self._torch.backward(program, trace, cotangents)
        is_untested = trace.untested is not None and trace.untested.reason is UnsupportedReason.NOT_REPLACED
        if is_untested and isinstance(trace.around, Replacing) and trace.around.replaced:
            trace.untested = None

    def again(self, program: Program, trace: Trace, values: list[Any], *, holds: bool) -> Iterable[tuple[int, Any]]:
        """Run steps once more with the replacements."""
        return self._torch.again(program, trace, values, holds=holds)

    def body_calls(self, program: Program, values: Sequence[Any]) -> BodyCalls | None:
        """Return what runs the body once: with plain calls of the replacements, if that replaces as many calls."""
        if self._classes:
            return None  # The values hold torch's modules, whose time is not the replacement's.
        plain = called_with(python_function(program, self.device), program, values)
        if self.scope.is_everything and self._replaces_all(program, plain):
            return BodyCalls(called_with(python_function(program, self.device, self.functions), program, values))
        # Torch passes the calls of both sides to a mode, so that what this costs is on both sides.
        return BodyCalls(_within(plain, Replacing(self.functions, self.scope)), _within(plain, Replacing({})))

    def _replaces_all(self, program: Program, plain: BodyCall) -> bool:
        """Whether every replaced call of a body is a plain call of its own, not one inside a module or a function."""
        steps = program.steps
        own = [step for _, step in program.calls if step_operator(step, steps) in self.functions]
        if not all(map(_is_plain, own)):
            return False
        mode = Replacing(self.functions)
        with mode:
            plain()
        return sum(mode.counts[operator] for operator in mode.replaced) == len(own)

    def has_operators(self) -> bool:
        """Whether a replacement is an operator of a library."""
        return any(library_operator(function) is not None for function in self.functions.values())

    def as_graph(self) -> Backend | None:
        """Return a backend that compiles bodies together with the replacements; ``None`` if these have a scope."""
        if self.lacks_graph:
            return None
        found = graph_on(self._torch)
        found.functions = self.functions
        found.replace(self._classes)
        return found


def _is_plain(step: Step) -> bool:
    """Whether a replaced call has the operator's own arguments and writes to none of them."""
    is_function = step.op == CALL_FUNCTION and step.target.startswith("torch.")
    is_method = step.op == CALL_METHOD and step.target not in VARIADIC
    return (is_function or is_method) and not is_in_place(step.target) and "inplace" not in dict(step.kwargs)


def _within(call: BodyCall, mode: Replacing) -> BodyCall:
    def run() -> Sequence[Any]:
        with mode:
            return call()

    return run


def nothing_replaced(functions: Mapping[str, Callable[..., Any]], mode: Replacing) -> Unsupported:
    """Return that no replacement was called, with the operators that were."""
    wanted, seen = ", ".join(sorted(functions)), ", ".join(sorted(mode.seen)) or "none"
    detail = f"no call was replaced: {wanted} did not occur; operators called: {seen}"
    return Unsupported(UnsupportedReason.NOT_REPLACED, detail)


class Replacing(TorchFunctionMode):
    """Pass the calls of replaced operators to the user's functions, and count them.

    Attributes:
        replaced: Operators whose replacement was called.
        seen: Operators that were called and have no replacement.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]], scope: CallScope | None = None) -> None:
        super().__init__()
        self.functions = functions
        self._scope = scope or CallScope()
        self._check = ""
        self.counts: dict[str, int] = {}
        self.replaced: set[str] = set()
        self.seen: set[str] = set()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer one call by its replacement, or by torch if it has none."""
        operator, in_place = called_operator(func)
        kwargs = kwargs or {}
        function = self.functions.get(operator)
        if function is None:
            if operator:
                self.seen.add(operator)
                self.counts.setdefault(operator, 0)
            return func(*args, **kwargs)
        self._scope.refuse(operator, (args, kwargs))
        self.count(operator)
        if is_own(operator):
            return self._call(operator, (function, func), args, kwargs)
        func_name = operator.rpartition(".")[2] if args and isinstance(args[0], torch.Tensor) else ""
        if "inplace" in kwargs:
            kwargs = dict(kwargs)
            in_place = bool(kwargs.pop("inplace")) or in_place
        if len(args) > 1 and _is_reflected(func):
            # A replacement has the operator's order: `3 - x` is `sub(3, x)`, `x.where(mask, y)` is `where(mask, x, y)`.
            args = (args[1], args[0], *args[2:])
        if func_name in VARIADIC and len(args) > 1 and all(type(arg) is int for arg in args[1:]):
            args = (args[0], tuple(args[1:]))  # The method is `x.permute(2, 0, 1)`, the function `permute(x, dims)`.
        kwargs = _written(func, function, kwargs)
        if not _takes_out(function, kwargs):
            out, kwargs = kwargs["out"], {name: value for name, value in kwargs.items() if name != "out"}
            return _put_into(out, self._call(operator, (function, func), args, kwargs))
        receiver = args[0] if args else kwargs.get("input")
        if not (in_place and isinstance(receiver, torch.Tensor)):
            return self._call(operator, (function, func), args, kwargs)
        # The replacement's backward pass may need its input, which is overwritten afterwards.
        given = receiver.clone() if receiver.requires_grad and torch.is_grad_enabled() else receiver
        args, kwargs = ((given, *args[1:]), kwargs) if args else (args, {**kwargs, "input": given})
        return overwritten_by(receiver, self._call(operator, (function, func), args, kwargs))

    @contextmanager
    def checking(self, check: str) -> Iterator[None]:
        """Check the operators of libraries to which calls are passed, by the check's name in torch."""
        self._check = check
        try:
            yield
        finally:
            self._check = ""

    def _call(
        self,
        operator: str,
        functions: tuple[Callable[..., Any], Callable[..., Any]],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        function, standard = functions
        called = checked(function, self._check) if self._check else function
        return self._scope.call(operator, (called, standard), args, kwargs)

    def count(self, operator: str) -> None:
        """Count a call that a replacement answers."""
        self.replaced.add(operator)
        self.counts[operator] = self.counts.get(operator, 0) + 1


def overwritten_by(receiver: torch.Tensor, result: object) -> torch.Tensor:
    """Write a replacement's result to the tensor that an in-place spelling was called on, and return that tensor.

    Raises:
        RuntimeError: The result has another shape, or a dtype that cannot be cast to the receiver's.
    """
    if result is receiver:
        return receiver  # The user's function is in place itself.
    if isinstance(result, torch.Tensor):
        if result.shape == receiver.shape and torch.can_cast(result.dtype, receiver.dtype):
            return receiver.copy_(result)
        given = _form(result)
    else:
        given = type(result).__name__
    message = f"the replacement returned {given}, which cannot be written in place to {_form(receiver)}."
    raise RuntimeError(message)


def _takes_out(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a replacement takes the ``out=`` of a call itself, or the call has none."""
    taken = _takes(function)
    return kwargs.get("out") is None or taken is None or "out" in taken


def _put_into(out: Any, result: Any) -> Any:
    """Write the result of a replacement that takes no ``out=`` to the one that the call has, as torch's own do."""
    if not isinstance(out, tuple | list):
        return _put_into_one(out, result)
    results = result if isinstance(result, tuple | list) else (result,)
    return type(out)(map(_put_into_one, out, results)) if len(out) == len(results) else result


def _put_into_one(out: Any, result: Any) -> Any:
    if isinstance(out, torch.Tensor) and isinstance(result, torch.Tensor) and out.shape != result.shape:
        out.resize_(result.shape)
    return overwritten_by(out, result)


def _form(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


@lru_cache(maxsize=4096)
def called_operator(func: Callable[..., Any]) -> tuple[str, bool]:
    """Return a function's operator, and whether it writes to its first argument."""
    if isinstance(func, UserOperator):
        return func.target, False
    name = public_name(func)
    if name is None or name.endswith((".__get__", ".__set__")):
        return "", False
    namespace, _, bare = name.rpartition(".")
    # `torch.exp_(x)` and `torch.nn.functional.relu_(x)` write as the method does.
    # A replacement of `x[i] = y` writes itself.
    in_place = namespace in _WITH_IN_PLACE and is_in_place(name) and bare != "__setitem__"
    return operator_of(bare, CALL_METHOD) if name.startswith("torch.Tensor.") else operator_of(name), in_place


@lru_cache(maxsize=4096)
def _is_reflected(func: Callable[..., Any]) -> bool:
    """Whether a torch function takes the operands in another order than its operator, and the order matters."""
    name = public_name(func) or ""
    return name.rpartition(".")[2] in _REFLECTED or name == "torch.Tensor.where"


def _written(func: Callable[..., Any], function: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords without those that torch's wrapper adds itself and the replacement does not accept.

    For example, ``torch.nn.functional.softmax(x, 1)`` arrives here with ``_stacklevel=3`` and ``dtype=None``.
    """
    if not kwargs:
        return kwargs
    taken, defaults = _takes(function), _defaults(func)
    return {
        key: value
        for key, value in kwargs.items()
        if taken is None or key in taken or not (key.startswith("_") or (key in defaults and defaults[key] is value))
    }


@lru_cache(maxsize=1024)
def _takes(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the keywords that a function accepts; ``None`` if it accepts any, or nothing is known."""
    parameters = python_parameters(function)
    if parameters is None or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)


@lru_cache(maxsize=1024)
def _defaults(func: Callable[..., Any]) -> dict[str, Any]:
    return {parameter.name: parameter.default for parameter in python_parameters(func) or ()}


#: ``torch.rsub(x, 2)`` is ``2 - x``. For commutative operators such as ``2 + x`` torch passes ``x + 2``.
_REFLECTED = frozenset({
    "rsub", "__rsub__", "__rdiv__", "__rtruediv__", "__rpow__", "__rfloordiv__", "__rmod__", "__rmatmul__",
    "__rlshift__", "__rrshift__",
})  # fmt: skip
#: Namespaces in which a trailing underscore means that the first argument is written to.
_WITH_IN_PLACE = frozenset({"torch", "torch.Tensor", "torch.nn.functional"})


def _module_class(path: str, found: Callable[..., Any]) -> type[torch.nn.Module]:
    """Return the class that replaces a class of modules.

    Raises:
        UnavailableError: It is no such class.
    """
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        return found
    message = f"replacement {path!r} of a class of modules is no subclass of torch.nn.Module. Name one."
    raise UnavailableError(message)
