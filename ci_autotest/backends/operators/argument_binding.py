"""Bind the arguments of a step to torch's names, however the test spelled the call.

Arguments with torch's default value are left out, so that a table need not mention them. The binding depends on the
target and on the types of the arguments, not on their values, so it is computed once for each spelling.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.backends.operators.identity import spellings
from ci_autotest.backends.operators.signatures import ANYTHING, GATHERED, SPELLED, forms, resolved
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, GET_ATTR, Device, DType, FrameworkConstant, List, Ref

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ci_autotest.backends.operators.signatures import Parameter
    from ci_autotest.program.ir import Argument, Step


#: Spellings whose first operand is the second of their operator: ``torch.rsub(x, 2)`` is ``2 - x``.
_REFLECTED: Final = frozenset({
    "rsub", "__rsub__", "__rdiv__", "__rtruediv__", "__rpow__", "__rfloordiv__", "__rmod__", "__rmatmul__", "__radd__",
    "__rmul__", "__rlshift__", "__rrshift__", "__rand__", "__ror__", "__rxor__",
})  # fmt: skip
#: The types that an argument may have in a step, by the schema's type.
_ACCEPTED: Final[dict[str, frozenset[type]]] = {
    "Tensor": frozenset({Ref}),
    "int": frozenset({int}),
    "float": frozenset({int, float}),
    "complex": frozenset({int, float, complex}),
    "bool": frozenset({bool}),
    "number": frozenset({bool, int, float, complex}),
    "str": frozenset({str}),
    "Dimname": frozenset({str}),
    "ScalarType": frozenset({DType}),
    "Device": frozenset({Device, str}),
    "Layout": frozenset({FrameworkConstant}),
    "MemoryFormat": frozenset({FrameworkConstant}),
}

_PRESERVED: Final = FrameworkConstant("torch.preserve_format")
#: Python's operators whose operands have names of their own; those of arithmetic are bound in order.
_OF_ITEMS: Final = frozenset({"__getitem__", "__setitem__", "__contains__"})


class BindingPlan(NamedTuple):
    """How the arguments of one spelling are bound.

    Attributes:
        positional: Torch's name of each positional argument.
        gathered: Name of the parameter that takes the positional arguments from ``len(positional)`` on as a tuple;
            ``None`` if there is none.
        named: Torch's name of each keyword, by the keyword as written.
        defaults: Default value by name.
        order: Names of the parameters that have no default and may be positional, in order.
    """

    positional: tuple[str, ...]
    gathered: str | None
    named: dict[str, str]
    defaults: dict[str, object]
    order: tuple[str, ...] = ()

    def is_left_out(self, name: str, value: Argument) -> bool:
        """Whether an argument means the same as none: it has torch's default, or chooses how torch computes."""
        if name in WITHOUT_MEANING:
            return True
        # Torch's own code writes this out, and the schemas have `None` for it.
        given = None if value == _PRESERVED else value
        return name in self.defaults and is_same(given, self.defaults[name])


class Binder:
    """Bind the arguments of steps, and cache the plan of each spelling."""

    def __init__(self) -> None:
        self._plans: dict[Any, BindingPlan] = {}

    def bound(self, step: Step, operator: str) -> dict[str, Argument]:
        """Return a call's arguments by torch's names, without those that have torch's default value.

        Args:
            step: A call of a function or method, or one of Python's operators.
            operator: Its canonical operator.

        Raises:
            UnsupportedError: Torch has no signature that names a positional argument.
        """
        if step.op == GET_ATTR or step.target == "builtins.getattr":
            return {_INPUT: step.args[0]}
        plan = self._plan(step, operator)
        count = len(plan.positional)
        found: dict[str, Argument] = dict(zip(plan.positional, step.args, strict=False))
        if plan.gathered is not None:
            rest = step.args[count:]
            found[plan.gathered] = rest[0] if len(rest) == 1 and isinstance(rest[0], tuple | List) else tuple(rest)
        for key, value in step.kwargs:
            found[plan.named[key]] = value
        return {name: value for name, value in found.items() if not plan.is_left_out(name, value)}

    def names(self, step: Step, operator: str) -> tuple[str, ...]:
        """Return torch's names of a call's arguments, whatever their values.

        Raises:
            UnsupportedError: Torch has no signature that names a positional argument.
        """
        if step.op == GET_ATTR or step.target == "builtins.getattr":
            return (_INPUT,)
        plan = self._plan(step, operator)
        given = (*plan.positional[: len(step.args)], *(plan.named[key] for key, _ in step.kwargs))
        return given if plan.gathered is None else (*given, plan.gathered)

    def respelled(
        self, step: Step, operator: str, dropped: Collection[str], renamed: Mapping[str, str]
    ) -> tuple[tuple[Argument, ...], tuple[tuple[str, Argument], ...]]:
        """Return a call's arguments as the test spelled them, but required ones by position and none at its default.

        Args:
            step: A call of a function or method, or one of Python's operators.
            operator: Its canonical operator.
            dropped: Torch's names of arguments to leave out.
            renamed: The framework's name of a keyword, by torch's.
        """
        plan = self._plan(step, operator)
        named = {plan.named[key]: (key, value) for key, value in step.kwargs}
        named = {name: given for name, given in named.items() if not plan.is_left_out(name, given[1])}
        args = list(step.args)
        if plan.gathered is None:
            while args and plan.positional[len(args) - 1] in dropped:
                args.pop()
            for name in plan.order[len(args) :]:
                if name not in named:
                    break
                args.append(named.pop(name)[1])
        return tuple(args), tuple(
            (renamed.get(name, key), value) for name, (key, value) in named.items() if name not in dropped
        )

    def defaults(self, step: Step, operator: str) -> dict[str, object]:
        """Return torch's default values of the arguments of this call."""
        return self._plan(step, operator).defaults

    def _plan(self, step: Step, operator: str) -> BindingPlan:
        args, kwargs = step.args, step.kwargs
        key = (step.target, step.op, tuple(map(_kind, args)), tuple((name, _kind(value)) for name, value in kwargs))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = _planned(step, operator)
        return plan


def is_same(value: Argument, other: object) -> bool:
    """Whether an argument means the same as ``other``: one number equals a list of that number; ``True`` is not 1."""
    if type(value) is Ref:
        return False
    if isinstance(value, List):
        value = value.items
    if isinstance(other, list | List):
        other = tuple(other.items if isinstance(other, List) else other)
    if isinstance(value, tuple) and not isinstance(other, tuple):
        return bool(value) and all(is_same(item, other) for item in value)
    if isinstance(other, tuple) and not isinstance(value, tuple):
        return bool(other) and all(is_same(value, item) for item in other)
    if isinstance(value, tuple) and isinstance(other, tuple):
        return len(value) == len(other) and all(is_same(*pair) for pair in zip(value, other, strict=True))
    return isinstance(value, bool) == isinstance(other, bool) and value == other


def _kind(argument: Argument) -> Any:
    kind = type(argument)
    if kind is tuple:
        return (tuple, *map(_kind, argument[:2]))  # type: ignore[index]
    if kind is List:
        return (List, *map(_kind, argument.items[:2]))  # type: ignore[union-attr]
    return kind


def _planned(step: Step, operator: str) -> BindingPlan:
    target, op = step.target, step.op
    if target.startswith(("operator.", "__")) and target not in _OF_ITEMS:
        return _of_python(step, operator)
    found = forms(target, op)
    # A reference may be to a number as well as to a tensor, so an overload that takes tensors there is preferred.
    for is_strict in (True, False):
        for form in found:
            plan = _plan_of(form, step, is_strict=is_strict)
            if plan is not None:
                return _reflected(plan) if target.rpartition(".")[2] in _REFLECTED else plan
    # Even without a signature, a single positional argument can only be the input.
    if not step.kwargs and len(step.args) == 1 and op in {CALL_METHOD, CALL_FUNCTION}:
        return BindingPlan((_INPUT,), None, {}, {})
    message = f"torch has no signature of {target} that names the arguments of the call {_shown(step)}."
    raise UnsupportedError(message, operator)


def _of_python(step: Step, operator: str) -> BindingPlan:
    """Return the plan of one of Python's operators: operands in order, because either one may be a number."""
    found = forms(operator.removeprefix("torch.Tensor."), CALL_METHOD if "torch.Tensor." in operator else CALL_FUNCTION)
    longest = max(found, key=len, default=())
    names = tuple(respelled(operator, parameter.name) for parameter in longest)[: len(step.args)]
    if len(names) < len(step.args):
        message = f"torch has no signature of {operator} that names the operands of {step.target}."
        raise UnsupportedError(message, operator)
    return BindingPlan(names[::-1] if step.target in _REFLECTED else names, None, {}, {})


def _plan_of(form: tuple[Parameter, ...], step: Step, *, is_strict: bool) -> BindingPlan | None:
    """Return the plan of a call of this form; ``None`` if the call does not fit it."""
    positional = _in_order(form, step.op)
    gathered = _gathered(positional, step.args)
    taken = positional[: len(step.args)] if gathered is None else positional[: positional.index(gathered)]
    if len(step.args) > len(taken) and gathered is None:
        return None
    pairs: list[tuple[Parameter, Argument]] = list(zip(taken, step.args, strict=False))
    left = {parameter.name: parameter for parameter in form if parameter not in taken and parameter is not gathered}
    named = {}
    for key, value in step.kwargs:
        parameter = left.pop(key, None) or left.pop(SPELLED.get(key, ""), None)
        if parameter is None:
            if key not in OF_PYTHON:
                return None
            named[key] = key
            continue
        named[key] = respelled(step.target, parameter.name)
        pairs.append((parameter, value))
    if not all(parameter.has_default for parameter in left.values()):
        return None
    if not all(_accepts(parameter, value, is_strict=is_strict) for parameter, value in pairs):
        return None
    names = tuple(respelled(step.target, parameter.name) for parameter in taken)
    last = respelled(step.target, gathered.name) if gathered is not None else None
    defaults = {respelled(step.target, p.name): p.default for p in form if p.has_default and p.kind != GATHERED}
    order = tuple(respelled(step.target, parameter.name) for parameter in takewhile(_is_needed, positional))
    return BindingPlan(names, last, named, {"requires_grad": False, **defaults}, order)


def _is_needed(parameter: Parameter) -> bool:
    return not parameter.has_default


def _in_order(form: tuple[Parameter, ...], op: str) -> list[Parameter]:
    """Return the parameters that may be positional; for a method, ``self`` comes first because it is the receiver."""
    positional = [parameter for parameter in form if not parameter.by_keyword]
    if op == CALL_METHOD:
        positional.sort(key=lambda parameter: parameter.name != "self")
    return positional


def _gathered(positional: Sequence[Parameter], args: Sequence[Argument]) -> Parameter | None:
    """Return the parameter that takes several arguments, for example ``*tensors`` or the sizes of ``x.view(2, 3)``."""
    if not positional:
        return None
    last, first = positional[-1], len(positional) - 1
    for place, parameter in enumerate(positional):
        if parameter.kind == GATHERED:
            return parameter if place <= len(args) else None
    if last.kind != "List[int]" or last.length is not None or len(args) <= first:
        return None
    return last if all(type(value) is int for value in args[first:]) else None


def _reflected(plan: BindingPlan) -> BindingPlan:
    swapped = {_INPUT: "other", "other": _INPUT}
    names = tuple(swapped.get(name, name) for name in plan.positional)
    return plan._replace(positional=names, named={key: swapped.get(name, name) for key, name in plan.named.items()})


def _accepts(parameter: Parameter, value: Argument, *, is_strict: bool) -> bool:
    kind = parameter.kind
    if kind in {ANYTHING, GATHERED} or (isinstance(value, Ref) and not is_strict):
        return True
    if value is None:
        return parameter.is_optional
    if kind.startswith("List["):
        item = parameter._replace(kind=kind[len("List[") : -1], length=None, is_optional=False)
        if item.kind.startswith("Optional["):
            item = item._replace(kind=item.kind[len("Optional[") : -1], is_optional=True)
        if isinstance(value, tuple | List):
            return _all_accept(item, value if isinstance(value, tuple) else value.items, is_strict=is_strict)
        return parameter.length is not None and _accepts(item, value, is_strict=is_strict)
    accepted = _ACCEPTED.get(kind)
    return accepted is None or type(value) in accepted


def _all_accept(parameter: Parameter, values: Iterable[Argument], *, is_strict: bool) -> bool:
    return all(_accepts(parameter, value, is_strict=is_strict) for value in values)


def _shown(step: Step) -> str:
    names = [type(value).__name__ for value in step.args]
    return f"({', '.join([*names, *(f'{key}=' for key, _ in step.kwargs)])})"


# The names that torch's documentation gives the arguments of an operator, whatever spelling the call has.
#
# A schema's ``self``, and the receiver of a method, is ``input``.


#: The name of a method's receiver and of a schema's ``self``.
_INPUT: Final = "input"
#: Arguments that a spelling names differently from its operator's documentation, by the function's or method's name.
_RESPELLED: Final[dict[str, dict[str, str]]] = {
    "split": {"tensor": "input", "split_size": "split_size_or_sections"},
    "tensor": {"t": "data"},
    "swapaxes": {"axis0": "dim0", "axis1": "dim1"},
    "det": {"input": "A"},
    "slogdet": {"input": "A"},
    "inverse": {"input": "A"},
    "orgqr": {"input2": "tau"},
}
#: Arguments that choose how torch computes a result, not which.
WITHOUT_MEANING: Final = frozenset({
    "_stacklevel", "cudnn_enabled", "cudnn_enable", "non_blocking", "pin_memory", "layout", "generator", "sparse_grad",
})  # fmt: skip
#: Arguments that torch's Python bindings accept and no schema lists.
OF_PYTHON: Final = ("requires_grad", "out")


def respelled(target: str, name: str) -> str:
    """Return the name that the documentation of a target's operator gives an argument."""
    documented = _INPUT if name == "self" else name
    return _RESPELLED.get(target.rpartition(".")[2], {}).get(documented, documented)


@lru_cache(maxsize=2048)
def arguments(operator: str) -> frozenset[str]:
    """Return the names of the arguments that an operator has in any of its spellings."""
    bare = operator.rpartition(".")[2]
    targets = {(path, "") for name in (operator, f"torch.{bare}", f"torch.{bare}_") for path in spellings(name)}
    found = {
        respelled(target, parameter.name)
        for target, op in targets
        if resolved(target) is not None
        for form in forms(target.removeprefix("torch.Tensor."), CALL_METHOD if "torch.Tensor." in target else op)
        for parameter in form
    }
    if operator.startswith("torch.Tensor."):
        found.add(_INPUT)
    return frozenset({*found, *OF_PYTHON}) if found else frozenset()
