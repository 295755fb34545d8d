"""The backward pass of a program on JAX: the steps between leaves and outputs, run again under ``jax.vjp``.

Complex numbers: PyTorch's gradient is the direction of steepest ascent, the conjugate of JAX's; so the weights go in
conjugated, and the gradients come out conjugated. Source: JAX 0.10, "The autodiff cookbook"; PyTorch 2.13, "Autograd
mechanics".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.execute.steps import execute_step
from ci_autotest.program.ir import NO_GRAD, OUTPUT, PLACEHOLDER, output_refs, step_refs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.execute.frameworks.jax import Jax
    from ci_autotest.program.ir import Program, Step

#: Functions whose results are not differentiated by anything, in PyTorch.
_CONSTANT: Final = frozenset({
    "jax.lax.stop_gradient", "adapters.zeros_like", "adapters.ones_like", "adapters.full_like", "adapters.new_zeros",
    "adapters.new_ones",
})  # fmt: skip
_NOTHING: Final[frozenset[int]] = frozenset()


class Task(NamedTuple):
    """Say what is differentiated.

    Attributes:
        steps: Of the program.
        again: Steps that are run again, because they depend on a leaf, in order.
        given: Other steps whose arrays those read.
        fixed: Values that those read and that are no arrays, by step.
        roots: Step and position of each output that a weight is put into.
        leaves: Steps that are differentiated by, and that a root depends on.
        asked: Steps that gradients were asked for.
        key: What a compiled backward pass may be used again for.
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
    framework: Jax, program: Program, values: Sequence[Any], weights: Mapping[int, Any], leaves: Sequence[int]
) -> Task:
    """Return what must be run again to differentiate a program by its leaves."""
    steps = program.steps
    reach = _reach(framework, steps, values, leaves)
    roots = _roots(program, values, weights, reach)
    reached = _NOTHING.union(*(reach[index] for index, _ in roots))
    inexact = tuple(leaf for leaf in leaves if leaf in reached)
    again = tuple(index for index in sorted(reach) if steps[index].op != PLACEHOLDER)
    read = {ref.index for index in again for ref in step_refs(steps[index])} - set(again) - set(inexact)
    given = tuple(index for index in sorted(read) if _is_data(framework, values[index]))
    # What a step made a number of is a constant of the branch that was taken.
    fixed = {index: values[index] for index in sorted(read) if index not in given}
    shapes = tuple(_shapes(framework, values[index]) for index in (*inexact, *given))
    key = (steps, inexact, tuple(leaves), roots, shapes, repr(fixed))
    return Task(steps, again, given, fixed, roots, inexact, tuple(leaves), key)


def _reach(
    framework: Jax, steps: Sequence[Step], values: Sequence[Any], leaves: Sequence[int]
) -> dict[int, frozenset[int]]:
    """Return the leaves that each step depends on by what can be differentiated; steps without any are not in it."""
    reach = {leaf: frozenset({leaf}) for leaf in leaves if _has_inexact(framework, values[leaf])}
    for index, step in enumerate(steps):
        if step.op in {PLACEHOLDER, OUTPUT} or step.target in _CONSTANT or step.modes == NO_GRAD:
            continue
        found = _NOTHING.union(*(reach.get(ref.index, _NOTHING) for ref in step_refs(step)))
        if found and _has_inexact(framework, values[index]):
            reach[index] = found
    return reach


def _roots(
    program: Program, values: Sequence[Any], weights: Mapping[int, Any], reach: Mapping[int, frozenset[int]]
) -> tuple[tuple[int, int], ...]:
    """Return the outputs that a weight of their shape is put into, each array once."""
    refs = output_refs(program)
    roots: list[tuple[int, int]] = []
    for position, weight in weights.items():
        index = refs[position].index
        value = values[index]
        if index not in reach or getattr(value, "shape", None) != weight.shape:
            continue
        if not any(values[other] is value for other, _ in roots):
            roots.append((index, position))
    return tuple(roots)


def _has_inexact(framework: Jax, value: Any) -> bool:  # noqa: ANN401 - whatever a step gave
    """Whether a value is an array that can be differentiated, or a nest of tuples that has one."""
    if isinstance(value, tuple | list):
        return any(_has_inexact(framework, item) for item in value)
    # The dtypes that numpy lacks, bfloat16 among them, are of kind V.
    return framework.is_tensor(value) and value.dtype.kind in "fcV"


def _is_data(framework: Jax, value: Any) -> bool:  # noqa: ANN401 - whatever a step gave
    """Whether a value is an array, or a nest of tuples of them."""
    if isinstance(value, tuple | list):
        return bool(value) and all(_is_data(framework, item) for item in value)
    return framework.is_tensor(value)


def _shapes(framework: Jax, value: Any) -> object:  # noqa: ANN401 - an array, or a nest of tuples of them
    if isinstance(value, tuple | list):
        return tuple(_shapes(framework, item) for item in value)
    return framework.facts(value)[:2]


class Gradient:
    """The backward pass of one task, compiled as one computation.

    Args:
        jax: The module.
        framework: What executes steps.
        task: What is differentiated.
    """

    def __init__(self, jax: Any, framework: Jax, task: Task) -> None:  # noqa: ANN401 - a module
        """Compile nothing yet."""
        self._jax = jax
        self._framework = framework
        self._task = task
        self._jitted = jax.jit(self._pulled_back)

    def compiled(self, values: Sequence[Any], weights: Mapping[int, Any]) -> list[Any | None]:
        """Return the gradient of each leaf asked for."""
        return self._in_order(self._jitted(*self._arguments(values, weights)))

    def stepwise(self, values: Sequence[Any], weights: Mapping[int, Any]) -> list[Any | None]:
        """Return the same without compiling the whole: for steps whose shape follows from data."""
        return self._in_order(self._pulled_back(*self._arguments(values, weights)))

    def _arguments(self, values: Sequence[Any], weights: Mapping[int, Any]) -> tuple[list[Any], list[Any], list[Any]]:
        task = self._task
        return (
            [values[i] for i in task.leaves],
            [values[i] for i in task.given],
            [weights[position] for _, position in task.roots],
        )

    def _pulled_back(self, leaves: list[Any], given: list[Any], weights: list[Any]) -> list[Any]:
        """Return the vector-Jacobian product, in PyTorch's convention for complex numbers."""
        jnp = self._jax.numpy
        outputs, pull = self._jax.vjp(lambda *arrays: self._forward(arrays, given), *leaves)
        conjugated = [jnp.conj(weight.astype(output.dtype)) for weight, output in zip(weights, outputs, strict=True)]
        return [jnp.conj(gradient) for gradient in pull(tuple(conjugated))]

    def _forward(self, leaves: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
        """Run the dependent steps again."""
        task = self._task
        values: list[Any] = [None] * len(task.steps)
        for indices, found in ((task.leaves, leaves), (task.given, given), (task.fixed, task.fixed.values())):
            for index, value in zip(indices, found, strict=True):
                values[index] = value
        for index in task.again:
            values[index] = execute_step(task.steps[index], values, self._framework)  # type: ignore[arg-type]
        return tuple(values[index] for index, _ in task.roots)

    def _in_order(self, found: Sequence[Any]) -> list[Any | None]:
        gradients = dict(zip(self._task.leaves, found, strict=True))
        return [gradients.get(index) for index in self._task.asked]
