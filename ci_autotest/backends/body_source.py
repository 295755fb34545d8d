"""The text of a body as a Python function, which compilers and exporters take and which is timed."""

from __future__ import annotations

import io
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.operators.identity import operator_of, step_operator
from ci_autotest.backends.operators.user_operators import UserOperator
from ci_autotest.backends.torch_steps import resolve
from ci_autotest.program.codegen import body_statements, function_text
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, Program
from ci_autotest.program.targets import is_own
from ci_autotest.program.written_values import is_in_place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.program.ir import Step

#: The file name of a body's text, and a line of it in the stack trace of a node.
BODY: Final = "<program>"


def lines_of(program: Program, functions: Mapping[str, Callable[..., Any]] = MappingProxyType({})) -> dict[int, int]:
    """Return the step of each line of the text of ``python_function``; the first line is the function's head."""
    spelled = _spelled_out(program, frozenset({**own_functions(program), **functions}))
    steps = [index for index, lines in body_statements(spelled) for _ in lines]
    return dict(enumerate(steps, 2))


def python_function(
    program: Program,
    device: torch.device,
    functions: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
    file: str = BODY,
) -> Callable[..., Any]:
    """Return the body as a function of its inputs; calls of replaced operators become calls of the replacements."""
    scope: dict[str, Any] = {"torch": torch, "device": device, "io": io}
    functions = {**own_functions(program), **functions}
    replacements = {operator: f"replacement_{i}" for i, operator in enumerate(functions)}
    scope |= {replacements[operator]: function for operator, function in functions.items()}
    text = function_text(
        _spelled_out(program, frozenset(functions)), rename=lambda target: replacements.get(operator_of(target), target)
    )
    exec(compile(text, file, "exec"), scope)  # noqa: S102 - text of our own making
    function: Callable[..., Any] = scope["program"]
    return function


def own_functions(program: Program) -> dict[str, Callable[..., Any]]:
    """Return the user's operators that a program calls: a compiler compiles their bodies too."""
    found = {step.target: resolve(step.target) for _, step in program.calls if is_own(step.target)}
    return {
        operator_of(target): function.body if isinstance(function, UserOperator) else function
        for target, function in found.items()
        if not isinstance(function, type)
    }


def _as_function(step: Step, operator: str) -> Step:
    args = step.args
    if step.target == "where" and len(args) > 1:
        args = (args[1], args[0], *args[2:])  # `x.where(mask, y)` is `where(mask, x, y)`
    return step._replace(op=CALL_FUNCTION, target=operator, args=args)


def _spelled_out(program: Program, operators: frozenset[str]) -> Program:
    """Return the program with methods of ``operators`` as calls of functions, because only names can be replaced."""
    steps = program.steps
    body = tuple(
        _as_function(step, step_operator(step, steps))
        if step.op == CALL_METHOD and not is_in_place(step.target) and step_operator(step, steps) in operators
        else step
        for step in program.body
    )
    return program.with_body(body)
