"""Mutations of a Python function: each changes one constant, comparison, sign, branch, default, argument or term.

Nothing here knows torch: a mutation is named by its place in the function's syntax tree.
"""

from __future__ import annotations

import ast
import copy
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class NodePlace(NamedTuple):
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


def _slots(parent: ast.AST) -> Iterator[NodePlace]:
    for field, held in ast.iter_fields(parent):
        if field in {"decorator_list", "annotation", "returns", "type_params", "ctx", "op", "ops"}:
            continue
        several = isinstance(held, list)
        for index, node in enumerate(held if several else [held]):
            if isinstance(node, ast.AST) and not _is_silent(node):
                yield NodePlace(parent, field, index if several else None, node)
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


def _alternatives(slot: NodePlace) -> list[Any]:
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
