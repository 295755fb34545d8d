"""The part of a program that runs again when a framework can only differentiate functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.program.edit import used_by
from ci_autotest.program.ir import NO_GRAD, PLACEHOLDER, output_refs, step_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.program.ir import Program, Step

_NOTHING: Final[frozenset[int]] = frozenset()


class Differentiating(Protocol):
    """The members of a framework that a plan needs.

    Attributes:
        undifferentiated: Functions whose results have no gradient in PyTorch, such as ``zeros_like``.
    """

    undifferentiated: frozenset[str]

    def is_tensor(self, value: Any) -> bool:
        """Whether a value is a tensor of the framework."""

    def is_inexact(self, tensor: Any) -> bool:
        """Whether a tensor's dtype can be differentiated."""

    def facts(self, tensor: Any) -> tuple[str, tuple[int, ...], bool, bool]:
        """Return the dtype's name, the shape, ``requires_grad`` and ``is_leaf``."""


class Functional:
    """A framework that differentiates functions only. It has no autograd graph, and no mode but ``no_grad``."""

    def in_mode(self, step: Step, call: Callable[[], Any]) -> Any:
        """Call a step. ``plan`` leaves out steps under ``no_grad``, and seeds have no effect here.

        Raises:
            LackingError: Another mode than ``no_grad``.
        """
        if step.modes and step.modes != NO_GRAD:
            message = f"mode {step.modes[0]!r}"
            raise LackingError(message)
        return call()

    def gradients(self, outputs: Sequence[Any], weights: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any | None]:
        """Refuse, because tensors hold no autograd graph: ``backward`` differentiates the program.

        Raises:
            LackingError: Always.
        """
        message = f"graph behind {len(outputs)} outputs, {len(weights)} weights and {len(inputs)} inputs"
        raise LackingError(message)


class Differentiation(NamedTuple):
    """A differentiation: which steps run again, from which values, and with respect to which leaves.

    Attributes:
        steps: Steps of the program.
        again: Steps that run again because they depend on a leaf, in order.
        given: Other steps, whose arrays those read.
        fixed: Values other than arrays that those read, by step.
        roots: Step and position of each output that has a weight.
        leaves: Leaves that a root depends on.
        asked: All leaves whose gradients were requested.
        key: Key under which a compiled backward pass can be reused.
    """

    steps: tuple[Step, ...]
    again: tuple[int, ...]
    given: tuple[int, ...]
    fixed: Mapping[int, Any]
    roots: tuple[tuple[int, int], ...]
    leaves: tuple[int, ...]
    asked: tuple[int, ...]
    key: object


def plan(
    framework: Differentiating,
    program: Program,
    values: Sequence[Any],
    weights: Mapping[int, Any],
    leaves: Sequence[int],
) -> Differentiation:
    """Return the task of differentiating a program with respect to its leaves."""
    steps = program.steps
    reach = _reach(framework, steps, values, leaves)
    roots = _roots(program, values, weights, reach)
    reached = _NOTHING.union(*(reach[index] for index, _ in roots))
    inexact = tuple(leaf for leaf in leaves if leaf in reached)
    again = tuple(index for index in sorted(reach) if steps[index].op != PLACEHOLDER)
    read = used_by(steps[index] for index in again) - set(again) - set(inexact)
    given = tuple(index for index in sorted(read) if _is_data(framework, values[index]))
    # A number is a constant of the branch that the program took: it is not traced.
    fixed = {index: values[index] for index in sorted(read) if index not in given}
    shapes = tuple(_shapes(framework, values[index]) for index in (*inexact, *given))
    # Numbers are part of the compiled pass, arrays only by their shapes.
    key = (steps, inexact, tuple(leaves), roots, shapes, repr(fixed))
    return Differentiation(steps, again, given, fixed, roots, inexact, tuple(leaves), key)


def _reach(
    framework: Differentiating, steps: Sequence[Step], values: Sequence[Any], leaves: Sequence[int]
) -> dict[int, frozenset[int]]:
    """Return the leaves that each step depends on differentiably; steps that depend on none are left out."""
    reach = {leaf: frozenset({leaf}) for leaf in leaves if _has_inexact(framework, values[leaf])}
    for index, step in enumerate(steps):
        # With gradients off torch records no graph, whatever the step depends on.
        if not step.is_call or step.target in framework.undifferentiated or step.modes == NO_GRAD:
            continue
        found = _NOTHING.union(*(reach.get(ref.index, _NOTHING) for ref in step_refs(step)))
        if found and _has_inexact(framework, values[index]):
            reach[index] = found
    return reach


def _roots(
    program: Program, values: Sequence[Any], weights: Mapping[int, Any], reach: Mapping[int, frozenset[int]]
) -> tuple[tuple[int, int], ...]:
    """Return the outputs that have a weight of their own shape, each array once."""
    refs = output_refs(program)
    roots: list[tuple[int, int]] = []
    for position, weight in weights.items():
        index = refs[position].index
        value = values[index]
        # Another shape is a difference of the forward pass already.
        if index not in reach or getattr(value, "shape", None) != weight.shape:
            continue
        if not any(values[other] is value for other, _ in roots):
            roots.append((index, position))
    return tuple(roots)


def _has_inexact(framework: Differentiating, value: Any) -> bool:
    """Whether a value is an array that can be differentiated, or a nest of tuples that has one."""
    if isinstance(value, tuple | list):
        return any(_has_inexact(framework, item) for item in value)
    return framework.is_tensor(value) and framework.is_inexact(value)


def _is_data(framework: Differentiating, value: Any) -> bool:
    """Whether a value is an array, or a nest of tuples of them."""
    if isinstance(value, tuple | list):
        return bool(value) and all(_is_data(framework, item) for item in value)
    return framework.is_tensor(value)


def _shapes(framework: Differentiating, value: Any) -> object:
    if isinstance(value, tuple | list):
        return tuple(_shapes(framework, item) for item in value)
    return framework.facts(value)[:2]
