"""Mutants of an operator's arguments: another axis, swapped inputs, a constant off, an argument that is ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.power.call import attempt_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ci_autotest.power.call import Argument, OperatorCall

#: Names of parameters that count the dimensions of the first tensor.
AXES: Final = frozenset({"dim", "dims", "axis", "dim0", "dim1", "source", "destination"})
_OFF: Final = 1.1
#: Smallest number of dimensions of which one can be taken for another.
_AXES_LEAST: Final = 2


def _unless_refused(wrong: OperatorCall, right: OperatorCall) -> Any:
    """Return the result of the wrong call. If that call raises, nobody could miss it: return the right result."""
    result = attempt_of(wrong)
    return right.run() if result is None else result


def is_axis(argument: Argument) -> bool:
    """Whether an argument names one or several dimensions."""
    return argument.parameter.name in AXES and not isinstance(argument.value, torch.Tensor)


def axis(name: str) -> Callable[[OperatorCall], Any]:
    """Return a mutant that takes the next dimension for the one that an argument names."""

    def run(call: OperatorCall) -> Any:
        argument, given = call.arguments().get(name), call.tensors()
        count = given[0][1].ndim if given else 0
        if argument is None or count < _AXES_LEAST or not _is_number_or_list(argument.value):
            return call.run()
        value = argument.value
        other = (value + 1) % count if type(value) is int else type(value)((each + 1) % count for each in value)
        return _unless_refused(call.changed(argument, other), call)

    return run


def _is_number_or_list(value: Any) -> bool:
    if type(value) is int:
        return True
    return type(value) in {list, tuple} and bool(value) and all(type(each) is int for each in value)


def swapped(call: OperatorCall) -> Any:
    """Return the result for the first two tensors in the other order."""
    given = call.tensors()[:2]
    if len(given) < len((0, 1)):
        return call.run()
    (first, left), (second, right) = given
    return _unless_refused(call.given(first, right).given(second, left), call)


def constant(name: str) -> Callable[[OperatorCall], Any]:
    """Return a mutant in which a number is a tenth off."""

    def run(call: OperatorCall) -> Any:
        argument = call.arguments().get(name)
        if argument is None or type(argument.value) not in {int, float}:
            return call.run()
        other = argument.value * _OFF if argument.value else _OFF - 1
        return _unless_refused(call.changed(argument, other), call)

    return run


def ignored(name: str) -> Callable[[OperatorCall], Any]:
    """Return a mutant that takes an argument's default, whatever the call gives."""

    def run(call: OperatorCall) -> Any:
        argument = call.arguments().get(name)
        if argument is None or argument.place is None:
            return call.run()
        return _unless_refused(call.changed(argument, _default(argument)), call)

    return run


def _default(argument: Argument) -> Any:
    default = argument.parameter.default
    return list(default) if isinstance(default, tuple) else default


def stuck(name: str) -> Callable[[OperatorCall], Any]:
    """Return a mutant in which a switch has the value that is not its default, whatever the call gives."""

    def run(call: OperatorCall) -> Any:
        argument = call.arguments().get(name)
        if argument is None or type(argument.parameter.default) is not bool:
            return call.run()
        return _unless_refused(call.changed(argument, not argument.parameter.default), call)

    return run


def no_broadcast(call: OperatorCall) -> Any:
    """Return the result with zeros for the smaller of two operands beyond its own elements."""
    given, result = call.tensors()[:2], call.run()
    if not broadcasts(call, result) or given[0][1].shape == given[1][1].shape:
        return result
    (first, left), (second, right) = given
    shape = result.shape
    wrong = call.given(first, _padded(left, shape)).given(second, _padded(right, shape))
    return _unless_refused(wrong, call)


def broadcasts(call: OperatorCall, result: Any) -> bool:
    """Whether the first two tensors of a call are broadcast to its result, so that they may have other shapes."""
    given = [tensor for _, tensor in call.tensors()[:2]]
    if len(given) < len((0, 1)) or not isinstance(result, torch.Tensor):
        return False
    # `torch.broadcast_shapes` imports sympy, which takes a second.
    ranks = [(1,) * (result.ndim - each.ndim) + tuple(each.shape) for each in given]
    if any(len(rank) != result.ndim for rank in ranks):
        return False
    pairs = zip(*ranks, result.shape, strict=True)
    return all(left in {1, size} and right in {1, size} and size in {left, right} for left, right, size in pairs)


def _padded(tensor: torch.Tensor, shape: Iterable[int]) -> torch.Tensor:
    """Return a tensor in a larger shape, with zeros beyond its own elements."""
    shape = tuple(shape)
    if tuple(tensor.shape) == shape:
        return tensor
    own = tensor.reshape((1,) * (len(shape) - tensor.ndim) + tuple(tensor.shape))
    mask = torch.zeros(shape, dtype=torch.bool, device=tensor.device)
    mask[tuple(slice(0, size) for size in own.shape)] = True
    return torch.where(mask, own, torch.zeros((), dtype=tensor.dtype, device=tensor.device))


def is_switch(argument: Argument) -> bool:
    """Whether an argument is a switch with a default."""
    return type(argument.parameter.default) is bool


def is_constant(argument: Argument) -> bool:
    """Whether an argument is a number that is no size, count or axis."""
    kind = argument.parameter.kind
    is_number = type(argument.value) is float or (type(argument.value) is int and kind == "number")
    return is_number and not is_axis(argument) and kind not in {"int", "List[int]"}


def is_optional(argument: Argument) -> bool:
    """Whether an argument may be left out."""
    return argument.parameter.has_default and not is_axis(argument)


#: Values of arguments that are words, where no signature lists them.
_WORDS: Final[dict[str, tuple[Any, ...]]] = {
    "reduction": ("none", "mean", "sum"), "approximate": ("none", "tanh"), "rounding_mode": (None, "trunc", "floor"),
    "side": ("left", "right"), "padding_mode": ("zeros", "border", "reflection"), "UPLO": ("L", "U"),
    "mode": ("constant", "reflect", "replicate", "nearest", "bilinear", "linear", "sum", "mean", "max"),
    "interpolation": ("linear", "lower", "higher", "midpoint", "nearest"), "norm": (None, "ortho", "forward"),
    "indexing": ("ij", "xy"),
}  # fmt: skip


def other_values(argument: Argument) -> list[Any]:
    """Return values of an argument other than its own, by the type of its value or default."""
    value = argument.value if argument.value is not None else argument.parameter.default
    name, kind = argument.parameter.name, argument.parameter.kind
    if name in _WORDS:
        return [word for word in _WORDS[name] if word != value]
    if type(value) is bool or kind == "bool":
        return [not value]
    if name == "dtype":
        return [each for each in (torch.float64, torch.float32, torch.int32) if each is not value]
    if type(value) is float:
        return [value * 2 + 0.25, value / 2 + 0.125, -value]
    if type(value) is int:
        return [value + 1, value - 1, value + 2, -value]
    if kind in {"number", "float"}:
        return [0.5, 2.0, -1.0]
    return [0, 1, -1, 2] if kind == "int" or is_axis(argument) else []
