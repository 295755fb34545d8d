"""Mutants of torch's Python decompositions: one change in the source of what answers an overload of an operator.

A mutation changes one constant, comparison, sign, branch, default, argument or term of a Python function. It is named
by its place in the function's syntax tree.

The unchanged decomposition is their reference. It may differ from torch's kernel, which is no mistake of a mutant, so
a call counts only where the two agree.
"""

from __future__ import annotations

import ast
import copy
import inspect
import math
import sys
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
import torch._refs.fft
import torch._refs.linalg
import torch._refs.nn.functional
import torch._refs.special
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from ci_autotest.power.mutants import Mutant
from ci_autotest.power.outcome import outcome, reference
from ci_autotest.values.power import MutantKind

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from ci_autotest.power.call import OperatorCall
    from ci_autotest.power.mutated_torch import Noted

#: Calls of an operator that show which overloads it calls.
_LOOKED_INTO: Final = 3
_TEXT: Final = 60
_COMPARISONS: Final[dict[type, type]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: Final[dict[type, type]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.FloorDiv: ast.Mod, ast.Pow: ast.Mult,
}  # fmt: skip
#: Functions that kernel authors take for one another.
_FUNCTIONS: Final = {
    one: other
    for pair in (
        ("maximum", "minimum"), ("amax", "amin"), ("max", "min"), ("floor", "ceil"), ("sin", "cos"), ("any", "all"),
        ("logical_and", "logical_or"), ("ones_like", "zeros_like"), ("trunc", "floor"), ("log1p", "log"),
        ("expm1", "exp"), ("le", "lt"), ("ge", "gt"), ("eq", "ne"), ("round", "floor"), ("tril", "triu"),
    )
    for one, other in (pair, pair[::-1])
}  # fmt: skip
#: Calls that only refuse arguments or hint a compiler: whatever is changed in them, no right call shows it.
_SILENT: Final = frozenset({"warn", "_check", "_check_value", "_check_type", "_check_with", "_check_is_size", "check"})


class SourceMutant(NamedTuple):
    """A mutant with what answers its overload without the change."""

    mutant: Mutant
    unchanged: OverloadAnswering


def source_mutants(operator: str, calls: Sequence[Noted], rng: random.Random, count: int) -> list[SourceMutant]:
    """Return some mutants of the decompositions that an operator's calls reach, forward or backward.

    Args:
        operator: The operator.
        calls: Its calls in a test.
        rng: Chooses the mutants.
        count: Number of mutants at most.
    """
    found = [(target, change) for target in _targets_of(calls) for change in _mutations(target)]
    chosen = rng.sample(found, min(count, len(found)))
    return [each for target, change in chosen for each in _made(operator, target, change)]


def _targets_of(calls: Sequence[Noted]) -> Iterator[Target]:
    noting = OverloadAnswering()
    for noted in calls[:: max(1, len(calls) // _LOOKED_INTO)][:_LOOKED_INTO]:
        outcome(reference, noted, around=noting)
    for target in _all_targets():
        if target.overload in noting.called:
            yield target


def _made(operator: str, target: Target, change: Mutation) -> Iterator[SourceMutant]:
    overload = overload_of(target.overload)
    try:
        unchanged = function_of(target._replace(changed=target.entry))
        changed = function_of(target, (change.slot, change.alternative))
    except Exception:  # noqa: BLE001 - what cannot be made into a function again is no mutant
        return
    before, after = (" ".join(text.split())[:_TEXT] for text in (change.before, change.after))
    detail = f"{target.changed[1]}, line {change.line}: {before} -> {after}"
    mutant = Mutant(operator, MutantKind.SOURCE, detail, _as_called, OverloadAnswering(overload, changed))
    yield SourceMutant(mutant, OverloadAnswering(overload, unchanged))


def _as_called() -> Callable[[OperatorCall], Any]:
    return reference


@lru_cache(maxsize=1)
def _all_targets() -> tuple[Target, ...]:
    return tuple(targets())


@lru_cache(maxsize=1024)
def _mutations(target: Target) -> tuple[Mutation, ...]:
    return tuple(mutations_of(definition_of(target)))


# Torch's Python decompositions and references, as sources that can be changed and made into functions again.


#: Decorators that enter a function into a table of torch's: it may be entered once only.
_REGISTER: Final = frozenset({"register_decomposition", "py_impl", "register_inplace", "register_meta"})


class Target(NamedTuple):
    """A function whose source is changed.

    Attributes:
        overload: What it computes: ``aten._softmax.default``.
        module: Module that it is in.
        entry: Line and name of the function that the dispatcher is given.
        changed: Line and name of the function that is mutated: the entry itself, or one of its module that it calls.
    """

    overload: str
    module: str
    entry: tuple[int, str]
    changed: tuple[int, str]


def targets() -> list[Target]:
    """Return all functions that a mutant can be made of, in the order of their overloads' names."""
    found = []
    for overload, function in decomposition_table.items():
        schema = getattr(overload, "_schema", None)
        if schema is None or schema.is_mutable:
            continue
        bare = inspect.unwrap(function)
        module = getattr(bare, "__module__", "")
        if not isinstance(bare, FunctionType) or not module.startswith(("torch._decomp", "torch._refs")):
            continue
        entry = (bare.__code__.co_firstlineno, bare.__name__)
        if entry not in _definitions(module):
            continue
        found.append(Target(str(overload), module, entry, entry))
        found += [Target(str(overload), module, entry, helper) for helper in _helpers(module, entry)]
    return sorted(found)


def overload_of(name: str) -> Any:
    """Return the overload of a name such as ``aten.gelu.default``."""
    namespace, operator, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), operator), overload)


def function_of(target: Target, change: tuple[int, int] | None = None) -> Callable[..., Any]:
    """Return the entry of a target, made from its source; ``change`` is the mutation (slot, alternative)."""
    namespace = dict(vars(sys.modules[target.module]))
    definitions = _definitions(target.module)
    changed = definitions[target.changed]
    body = [mutated(changed, *change) if change is not None else changed]
    if target.changed != target.entry:
        body.append(definitions[target.entry])
    tree = ast.Module([_undecorated(item) for item in body], [])
    exec(compile(ast.fix_missing_locations(tree), f"<{target.overload}>", "exec"), namespace)  # noqa: S102 - torch's own source
    made: Callable[..., Any] = namespace[target.entry[1]]
    return made


def definition_of(target: Target) -> ast.FunctionDef:
    """Return the source of the function that is mutated."""
    return _definitions(target.module)[target.changed]


@lru_cache(maxsize=16)
def _definitions(module: str) -> dict[tuple[int, str], ast.FunctionDef]:
    """Return the functions of a module by their first line, decorators counted, and their name."""
    tree = ast.parse(Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8"))
    return {
        (min([node.lineno, *(item.lineno for item in node.decorator_list)]), node.name): node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def _helpers(module: str, entry: tuple[int, str]) -> list[tuple[int, str]]:
    """Return the private functions of the module that an entry calls by name."""
    definitions = _definitions(module)
    called = {
        node.func.id
        for node in ast.walk(definitions[entry])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return [key for key in definitions if key[1] in called and key[1].startswith("_") and key != entry]


def _undecorated(definition: ast.FunctionDef) -> ast.FunctionDef:
    """Return a definition without what would enter it into a table of torch's."""
    kept = [_unregistered(item) for item in definition.decorator_list if _name(item) not in _REGISTER]
    return ast.FunctionDef(
        definition.name, definition.args, definition.body, kept, definition.returns, None, lineno=1, col_offset=0
    )


def _unregistered(decorator: ast.expr) -> ast.expr:
    if not isinstance(decorator, ast.Call) or not _name(decorator).startswith("_make_elementwise"):
        return decorator
    keywords = [item for item in decorator.keywords if item.arg != "aten_op"]
    return ast.Call(decorator.func, decorator.args, [*keywords, ast.keyword("aten_op", ast.Constant(None))])


def _name(decorator: ast.expr) -> str:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(function, "attr", getattr(function, "id", ""))


class OverloadAnswering(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode in which a function answers one overload, wherever it is called, and notes the overloads that are called.

    Args:
        overload: What is answered; ``None``: nothing.
        function: What answers it.
    """

    def __init__(self, overload: Any = None, function: Callable[..., Any] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.overload, self.function = overload, function
        self.called: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer the overload, or call torch."""
        if self.function is None:
            self.called.add(str(func))
        elif func is self.overload:
            return self.function(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class _NodePlace(NamedTuple):
    """A node of a syntax tree and where its parent holds it: in a field, or at a position of the field's list."""

    parent: ast.AST
    field: str
    position: int | None
    node: ast.AST


class Mutation(NamedTuple):
    """One change of a function: of the ``slot``-th node, to its ``alternative``-th alternative.

    Attributes:
        slot: Number of the node in the order of ``_slots``.
        alternative: Number of the change among those of the node.
        line: Line of the node in its file.
        before: What is there.
        after: What is there instead.
    """

    slot: int
    alternative: int
    line: int
    before: str
    after: str


def mutations_of(function: ast.FunctionDef) -> list[Mutation]:
    """Return every mutation of a function."""
    return [
        Mutation(number, choice, getattr(slot.node, "lineno", 0), ast.unparse(slot.node), ast.unparse(other))
        for number, slot in enumerate(_slots(function))
        for choice, other in enumerate(_alternatives(slot))
    ]


def mutated(function: ast.FunctionDef, slot: int, alternative: int) -> ast.FunctionDef:
    """Return a copy of a function with one mutation."""
    changed = copy.deepcopy(function)
    at = next(found for number, found in enumerate(_slots(changed)) if number == slot)
    other = ast.copy_location(_alternatives(at)[alternative], at.node)
    if at.position is None:
        setattr(at.parent, at.field, other)
    else:
        getattr(at.parent, at.field)[at.position] = other
    return ast.fix_missing_locations(changed)


def _slots(parent: ast.AST) -> Iterator[_NodePlace]:
    for field, held in ast.iter_fields(parent):
        if field in {"decorator_list", "annotation", "returns", "type_params", "ctx", "op", "ops"}:
            continue
        several = isinstance(held, list)
        for index, node in enumerate(held if several else [held]):
            if isinstance(node, ast.AST) and not _is_silent(node):
                yield _NodePlace(parent, field, index if several else None, node)
                yield from _slots(node)


def _is_silent(node: ast.AST) -> bool:
    """Whether a node is a text, or only refuses arguments."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise) and len(node.body) == 1:
        return True
    return isinstance(node, ast.Call) and _called(node) in _SILENT


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _alternatives(slot: _NodePlace) -> list[Any]:
    change = _CHANGES.get(type(slot.node))
    return change(slot.node) if change is not None else []


def _of_constant(node: ast.Constant) -> list[ast.expr]:
    value = node.value
    if isinstance(value, bool):
        return [ast.Constant(not value)]
    if isinstance(value, int):
        return [ast.Constant(value + 1), ast.Constant(value - 1)]
    if isinstance(value, float) and math.isfinite(value):
        return [ast.Constant(value * 1.1 if value else 0.1), ast.Constant(-value if value else 1.0)]
    return []


def _of_compare(node: ast.Compare) -> list[ast.expr]:
    other = _COMPARISONS.get(type(node.ops[0]))
    return [ast.Compare(node.left, [other()], node.comparators)] if other and len(node.ops) == 1 else []


def _of_unary(node: ast.UnaryOp) -> list[ast.expr]:
    return [node.operand] if isinstance(node.op, ast.USub | ast.Not) else []


def _of_binary(node: ast.BinOp) -> list[ast.expr]:
    other = _ARITHMETIC.get(type(node.op))
    changed: list[ast.expr] = [ast.BinOp(node.left, other(), node.right)] if other else []
    if isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        changed.append(node.left)
    return [*changed, node.right] if isinstance(node.op, ast.Add | ast.Mult) else changed


def _of_logic(node: ast.BoolOp) -> list[ast.expr]:
    other = ast.Or if isinstance(node.op, ast.And) else ast.And
    return [ast.BoolOp(other(), node.values), node.values[0], node.values[-1]]


def _of_branch(node: ast.If) -> list[ast.stmt]:
    return [ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)]


def _of_call(node: ast.Call) -> list[ast.expr]:
    """Return calls of the opposite function, without one of the keywords, and with the first two arguments swapped."""
    changed: list[ast.expr] = []
    other = _FUNCTIONS.get(_called(node))
    if other and isinstance(node.func, ast.Attribute):
        changed.append(ast.Call(ast.Attribute(node.func.value, other, ast.Load()), node.args, node.keywords))
    for index in range(len(node.keywords)):
        changed.append(ast.Call(node.func, node.args, node.keywords[:index] + node.keywords[index + 1 :]))
    if len(node.args) > 1:
        changed.append(ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords))
    return changed


_CHANGES: Final[dict[type, Any]] = {
    ast.Constant: _of_constant,
    ast.Compare: _of_compare,
    ast.UnaryOp: _of_unary,
    ast.BinOp: _of_binary,
    ast.BoolOp: _of_logic,
    ast.If: _of_branch,
    ast.IfExp: lambda node: [node.body, node.orelse],
    ast.Call: _of_call,
}
