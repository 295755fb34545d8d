"""What the shipped suite draws, operator by operator, and what the installed torch would take beside it.

Both come from running: the first from the steps of 20 cases of every test, the second from calls of these cases made
again in another dtype or form. Nothing is listed by hand.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.nest import tensors_in
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.backends.operators.signatures import takes_out
from ci_autotest.backends.substitute.backend import called_operator
from ci_autotest.discovery import families
from ci_autotest.power.call import OperatorCall, attempt_of
from ci_autotest.program.ir import autocast_dtype, step_refs
from ci_autotest.program.random_calls import is_random
from ci_autotest.record.declaration import declaration_of
from ci_autotest.record.draw.profiles import ORDINARY
from ci_autotest.values.case import test_key
from tests.engine import attempts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ci_autotest.backends.trace import Attempt
    from ci_autotest.program.ir import Step

CASES = 20
#: Cases whose calls are made again.
AS_WRITTEN = 3
HALVES = ("float16", "bfloat16")
OTHERS = ("bool", "int64", "complex64")
#: Calls of an operator that are made again.
_TRIED = 3
#: From so many numbers of dimensions on, an operator is taken to have any.
_FREE_DIMENSIONS = 3
_FIVE = 5


class Draws(NamedTuple):
    """What was drawn or taken: operators by a dtype, or by a form of the call; and the operators that tests call."""

    called: set[str]
    drawn: dict[str, set[str]]
    taken: dict[str, set[str]]
    steps: dict[str, list[tuple[Step, list[Step]]]]


class _Calls(TorchFunctionMode):
    """The first calls of each operator, with copies of their tensors."""

    def __init__(self, kept: dict[str, list[OperatorCall]]) -> None:
        super().__init__()
        self.kept = kept

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        call = OperatorCall(func, args, kwargs or {})
        operator, is_in_place = called_operator(func)
        if operator and not is_in_place and len(self.kept[operator]) < _TRIED and tensors_in([*args, call.kwargs]):
            self.kept[operator].append(call.mapped(lambda tensor: tensor.detach().clone()))
        return call.run()


def draws_of_suite() -> Draws:
    """Run 20 cases of every test on the reference, and some of their calls in other ways."""
    found = Draws(set(), defaultdict(set), defaultdict(set), defaultdict(list))
    calls: dict[str, list[OperatorCall]] = defaultdict(list)
    dimensions: dict[str, set[int]] = defaultdict(set)
    for attempt in _attempts():
        steps = attempt.program.steps
        found.called.update(step_operator(step, steps) for _, step in attempt.program.calls)
        is_deep = any(step.target == "torch.autograd.grad" for step in steps)
        for step in (step for step in steps if step.op.startswith("call")):
            operator = step_operator(step, steps)
            found.steps[operator].append((step, steps))
            given = [attempt.trace.values[ref.index] for ref in step_refs(step)]
            given = [value for value in given if isinstance(value, torch.Tensor)]
            dimensions[operator].update(value.ndim for value in given[:1])
            for kind in _kinds(step, given, is_deep=is_deep):
                found.drawn[kind].add(operator)
    for attempt in _attempts(as_written=True):
        with _Calls(calls):
            TorchBackend().run(attempt.program, attempt.sources)
    for operator, kept in calls.items():
        for kind in _taken(operator, kept):
            found.taken[kind].add(operator)
    for operator, seen in dimensions.items():
        if len(seen) >= _FREE_DIMENSIONS:
            found.taken["five dimensions"].add(operator)
        if max(seen, default=0) >= _FIVE:
            found.drawn["five dimensions"].add(operator)
    return found


def _attempts(*, as_written: bool = False) -> Iterator[Attempt]:
    """Yield 20 cases of each test, or the first ordinary ones, in float32 and without a form."""
    made = attempts()
    for family in families():
        for name, value in vars(importlib.import_module(f"ci_autotest.suite.{family}")).items():
            declaration = declaration_of(value)
            if declaration is None:
                continue
            test, profile = f"builtin:suite/{family}::{name}", None
            if as_written:
                declaration, profile = replace(declaration, dtypes=None, forms=()), ORDINARY
            for case in range(AS_WRITTEN if as_written else CASES):
                made._tracers.clear()
                yield made.attempt(declaration, declaration.body, (test_key(0, test), test, case, 0), profile=profile)


def _kinds(step: Step, given: list[torch.Tensor], *, is_deep: bool) -> Iterator[str]:
    dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in given]
    yield from {*HALVES}.intersection(dtypes)
    yield from {*OTHERS}.intersection(dtypes[:1])
    if any(map(autocast_dtype, step.modes)):
        yield "autocast"
    if any(name == "out" for name, _ in step.kwargs):
        yield "out"
    if is_deep and any(tensor.requires_grad for tensor in given):
        yield "second derivatives"


def _taken(operator: str, calls: list[OperatorCall]) -> Iterator[str]:
    """Yield the dtypes and forms in which one of an operator's calls is answered."""
    for name in (*HALVES, *OTHERS):
        change = partial(_to, dtype=getattr(torch, name))
        if any(_answers(call.mapped(change)) for call in calls if _has_float(call)):
            yield name
    if any(map(_under_autocast, calls)):
        yield "autocast"
    if not is_random(operator) and takes_out(operator) and any(map(_with_out, calls)):
        yield "out"
    if any(map(_has_second, calls)):
        yield "second derivatives"


def _has_float(call: OperatorCall) -> bool:
    """Whether the first tensor is floating, so that another dtype of it is another dtype of the call."""
    return tensors_in([*call.args, call.kwargs])[0].is_floating_point()


def _to(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _answers(call: OperatorCall) -> bool:
    return attempt_of(call) is not None


def _under_autocast(call: OperatorCall) -> bool:
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        return _has_float(call) and _answers(call)


def _with_out(call: OperatorCall) -> bool:
    results = tensors_in(attempt_of(call))
    rooms = [torch.empty_like(result, memory_format=torch.contiguous_format) for result in results]
    out = tuple(rooms) if len(rooms) > 1 else rooms[0] if rooms else None
    return bool(rooms) and _answers(call._replace(kwargs={**call.kwargs, "out": out}))


def _has_second(call: OperatorCall) -> bool:
    leaves: list[torch.Tensor] = []

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        own = tensor.clone().requires_grad_(tensor.is_floating_point() or tensor.is_complex())
        leaves.extend([own] if own.requires_grad else [])
        return own

    found = attempt_of(call.mapped(leaf))
    outputs = [tensor for tensor in tensors_in(found) if tensor.requires_grad]
    try:
        firsts = torch.autograd.grad(outputs, leaves, outputs, create_graph=True, allow_unused=True)
        deep = [gradient for gradient in firsts if gradient is not None and gradient.requires_grad]
        torch.autograd.grad(deep, leaves, deep, allow_unused=True)
    except RuntimeError:
        return False
    return bool(deep)
