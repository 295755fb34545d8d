"""Whether a body does the same calls in every case, which its source proves: then it need not be run for each.

A plain body is a list of assignments and expressions over what it draws, recorded torch and constants. It has no
branch, no loop, no function of the user's; so nothing but draws can make one case differ from another, and draws are
made again as they were asked for. What is not proved here is run.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.record import variables
from ci_autotest.record.dtypes import random_dtype
from ci_autotest.record.function import Function
from ci_autotest.record.functions import Namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: What a body may call by a name of its own: the drawing of a tensor, and generators.
_DRAWS: Final = ("ci_autotest.testing", "random_tensor")
_GENERATORS: Final = frozenset({
    variables.random, variables.random_bool, variables.oneof, variables.constant, variables.nothing,
    variables.random_or_nothing, random_dtype,
})  # fmt: skip
#: Types of values that are the same in every case; of a class derived from one, nobody knows.
_CONSTANTS: Final = frozenset({int, float, complex, str, bool, type(None), torch.dtype})
#: Types of what a path through torch may lead to: ``torch.float16``, ``torch.pi``.
_OF_TORCH: Final = frozenset({float, torch.dtype, torch.memory_format})
#: Flags of a function that takes any number of arguments (``inspect.CO_VARARGS``, ``CO_VARKEYWORDS``).
_STARS: Final = 0x0C
#: What a name means that nothing has.
_NOTHING: Final = object()
_TYPES: Final = frozenset({int, float, bool})


class Plain(NamedTuple):
    """Say that a body is plain, as long as its names mean what they do.

    Attributes:
        names: Its module's, and what each names.
        held: The module's variables.
    """

    names: dict[str, Any]
    held: dict[str, Any]

    @property
    def holds(self) -> bool:
        """Whether the names still mean the same."""
        return all(self.held.get(name, _NOTHING) is value for name, value in self.names.items())


def proved_plain(body: Callable[..., object]) -> Plain | None:
    """Return the proof that a body is plain; ``None`` where there is none."""
    if not isinstance(body, FunctionType):
        return None
    code = body.__code__
    if code.co_freevars or code.co_argcount or code.co_kwonlyargcount or code.co_flags & _STARS:
        return None
    node, compiled = _functions(code.co_filename).get((code.co_name, code.co_firstlineno), (None, None))
    if node is None or compiled is None or not _is_same(compiled, code):
        return None
    proof = _Proof(body.__globals__)
    return Plain(proof.names, body.__globals__) if all(map(proof.statement, node.body)) else None


@lru_cache(maxsize=16)
def _functions(file: str) -> dict[tuple[str, int], tuple[ast.FunctionDef, CodeType | None]]:
    """Return the functions of a file, each with its code, by name and first line, decorators included."""
    try:
        tree = ast.parse(Path(file).read_bytes())
        codes = {
            (code.co_name, code.co_firstlineno): code for code in _codes(compile(tree, file, "exec", dont_inherit=True))
        }
    except (OSError, SyntaxError, ValueError):
        return {}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    lines = [min([node.lineno, *[one.lineno for one in node.decorator_list]]) for node in nodes]
    return {(node.name, line): (node, codes.get((node.name, line))) for node, line in zip(nodes, lines, strict=True)}


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _is_same(compiled: CodeType, code: CodeType) -> bool:
    """Whether what a file says is what runs: the file may be another by now."""
    return (compiled.co_code, compiled.co_consts, compiled.co_names, compiled.co_varnames) == (
        code.co_code, code.co_consts, code.co_names, code.co_varnames,
    )  # fmt: skip


class _Proof:
    """Prove statement by statement."""

    def __init__(self, held: dict[str, Any]) -> None:
        self.names: dict[str, Any] = {}
        self._held = held
        self._local: set[str] = set()

    def statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.Assign([target], value):
                return self._is_plain(value) and self._assigned(target)
            case ast.AugAssign(ast.Name(name), _, value):
                return name in self._local and self._is_plain(value)
            case ast.Expr(value) | ast.Return(ast.expr() as value):
                return self._is_plain(value)
            case ast.Pass() | ast.Return(None):
                return True
            case _:
                return False

    def _assigned(self, target: ast.expr) -> bool:
        match target:
            case ast.Name(name):
                self._local.add(name)
                return True
            case ast.Tuple(items):
                return all(isinstance(item, ast.Name) and self._assigned(item) for item in items)
            case ast.Subscript(value, index):
                return self._is_plain(value) and self._is_plain(index)
            case _:
                return False

    def _is_plain(self, node: ast.expr | None) -> bool:  # noqa: C901 - one arm per kind of expression
        match node:
            case None | ast.Constant():
                return True
            case ast.Name(name):
                return name in self._local or type(self._named(name)) in _CONSTANTS
            case ast.Attribute(value, name):
                found = self._in_torch(node)
                if found is not _NOTHING:
                    return type(found) in _OF_TORCH
                return _is_tensors(name) and self._is_plain(value)
            case ast.Call(function, args, keywords):
                given = [*args, *[keyword.value for keyword in keywords]]
                is_named = all(keyword.arg for keyword in keywords)
                return is_named and self._is_callable(function) and all(map(self._is_argument, given))
            case ast.BinOp(left, _, right) | ast.Compare(left, [_], [right]):
                return _is_operator(node, left) and self._is_plain(left) and self._is_plain(right)
            case ast.UnaryOp(operator, value):
                return not isinstance(operator, ast.Not) and self._is_plain(value)
            case ast.Tuple(items) | ast.List(items):
                return all(map(self._is_plain, items))
            case ast.Subscript(value, index):
                return self._is_plain(value) and self._is_plain(index)
            case ast.Slice(lower, upper, step):
                return all(map(self._is_plain, (lower, upper, step)))
            case _:
                return False

    def _is_argument(self, node: ast.expr) -> bool:
        """Whether an argument is plain; a type may be one, ``random().to(int)``."""
        if isinstance(node, ast.Name) and node.id not in self._local:
            named = self._named(node.id)
            return type(named) in _CONSTANTS or any(named is one for one in _TYPES)
        return self._is_plain(node)

    def _is_callable(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(name) if name not in self._local:
                found = self._named(name)
                is_draw = (getattr(found, "__module__", ""), getattr(found, "__name__", "")) == _DRAWS
                return is_draw or any(found is one for one in _GENERATORS)
            case ast.Attribute(value, name):
                found = self._in_torch(node)
                if found is _NOTHING:
                    return _is_tensors(name) and self._is_plain(value)
                return (
                    isinstance(found, Function)
                    and found.is_operator
                    and not (found.is_module_class or found.is_random or found.is_autograd)
                )
            case _:
                return False

    def _named(self, name: str) -> Any:  # noqa: ANN401 - whatever a module holds
        """Return what a name of the module, or of Python, means; remember it."""
        if name in self._held:
            found = self.names[name] = self._held[name]
            return found
        return {"int": int, "float": float, "bool": bool}.get(name, _NOTHING)

    def _in_torch(self, node: ast.Attribute) -> Any:  # noqa: ANN401 - whatever torch has there
        """Return what a path through recorded torch leads to; ``_NOTHING`` for any other attribute."""
        path = [node.attr]
        value = node.value
        while isinstance(value, ast.Attribute):
            path.append(value.attr)
            value = value.value
        if not isinstance(value, ast.Name) or value.id in self._local:
            return _NOTHING
        found = self._named(value.id)
        if not isinstance(found, Namespace):
            return _NOTHING
        for name in reversed(path):
            found = getattr(found, name, None)
        return found


def _is_tensors(name: str) -> bool:
    return not name.startswith("_") and hasattr(torch.Tensor, name)


def _is_operator(node: ast.expr, left: ast.expr) -> bool:
    """Whether an operator is one of tensors and numbers: not ``in`` or ``is``, nor the formatting of a text."""
    if isinstance(left, ast.Constant) and isinstance(left.value, str | bytes):
        return False
    return not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.In | ast.NotIn | ast.Is | ast.IsNot)
