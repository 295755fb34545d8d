"""Mutants of torch's Python decompositions: one change in the source of what answers an overload of an operator.

The unchanged decomposition is their reference. It may differ from torch's kernel, which is no mistake of a mutant, so
a call counts only where the two agree.
"""

from __future__ import annotations

import ast
import inspect
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
from ci_autotest.power.source_mutations import mutated, mutations_of
from ci_autotest.values.power import MutantKind

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from ci_autotest.power.call import OperatorCall
    from ci_autotest.power.mutated_torch import Noted
    from ci_autotest.power.source_mutations import Mutation


#: Calls of an operator that show which overloads it calls.
_LOOKED_INTO: Final = 3
_TEXT: Final = 60


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
