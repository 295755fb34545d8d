"""The backward pass of a program on JAX: the steps between leaves and outputs, run again under ``jax.vjp``.

What depends on a leaf is found while it is traced: a value of the differentiated kind is a tracer of the same type as the
leaves; integers, detached values and constants are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ci_autotest.execute.steps import execute_step
from ci_autotest.program.ir import OUTPUT, PLACEHOLDER, output_refs, step_refs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.execute.frameworks.jax import JaxFramework
    from ci_autotest.program.ir import Program, Step


class Task(NamedTuple):
    """Say what is differentiated.

    Attributes:
        steps: Of the program.
        again: Steps that are run again, because they may depend on a leaf, in order.
        given: Other steps whose arrays those read.
        fixed: Values that those read and that are no arrays, by step.
        roots: Step and position of each output that a weight is put into.
        leaves: Steps that are differentiated by: those asked for that are floating or complex.
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
    framework: JaxFramework, program: Program, values: Sequence[Any], weights: Mapping[int, Any], leaves: Sequence[int]
) -> Task:
    """Return what must be run again to differentiate a program by its leaves."""
    steps = program.steps
    inexact = tuple(i for i in leaves if _is_inexact(framework, values[i]))
    depends = set(inexact)
    again, read = [], set()
    for index, step in enumerate(steps):
        sources = {ref.index for ref in step_refs(step)}
        if step.op not in {PLACEHOLDER, OUTPUT} and sources & depends:
            depends.add(index)
            again.append(index)
            read |= sources
    given, fixed = [], {}
    for index in sorted(read - depends):
        if _is_data(framework, values[index]):
            given.append(index)
        else:
            fixed[index] = values[index]
    # What a step made a number of is a constant of the branch that was taken.
    numbers = [i for i in again if not _is_data(framework, values[i])]
    fixed |= {i: values[i] for i in numbers}
    again = [i for i in again if i not in fixed]
    roots = _roots(program, values, weights, depends)
    shapes = tuple(framework.facts(values[i])[:2] for i in (*inexact, *given) if framework.is_tensor(values[i]))
    key = (steps, inexact, tuple(leaves), roots, shapes, repr(sorted(fixed.items(), key=lambda item: item[0])))
    return Task(steps, tuple(again), tuple(given), fixed, roots, inexact, tuple(leaves), key)


def _roots(
    program: Program, values: Sequence[Any], weights: Mapping[int, Any], depends: set[int]
) -> tuple[tuple[int, int], ...]:
    """Return the outputs that a weight of their shape is put into, each array once."""
    refs, roots = output_refs(program), []
    for position, weight in weights.items():
        index = refs[position].index
        value = values[index]
        if index not in depends or getattr(value, "shape", None) != weight.shape:
            continue
        if not any(values[other] is value for other, _ in roots):
            roots.append((index, position))
    return tuple(roots)


def _is_inexact(framework: JaxFramework, value: Any) -> bool:  # noqa: ANN401 - whatever a step gave
    return framework.is_tensor(value) and value.dtype.kind in "fcV"


def _is_data(framework: JaxFramework, value: Any) -> bool:  # noqa: ANN401 - whatever a step gave
    """Whether a value is an array, or a nest of tuples of them."""
    if isinstance(value, tuple | list):
        return bool(value) and all(_is_data(framework, item) for item in value)
    return framework.is_tensor(value)


class Gradient:
    """The backward pass of one task, compiled as one computation.

    Args:
        jax: The module.
        framework: What executes steps.
        task: What is differentiated.
    """

    def __init__(self, jax: Any, framework: JaxFramework, task: Task) -> None:  # noqa: ANN401 - a module
        """Compile nothing yet."""
        self._jax = jax
        self._framework = framework
        self._task = task
        self._reached: frozenset[int] = frozenset()
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
        conjugated = [
            jnp.conj(weight.astype(output.dtype)) for weight, output in zip(weights, outputs, strict=True)
        ]
        return [jnp.conj(gradient) for gradient in pull(tuple(conjugated))]

    def _forward(self, leaves: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
        """Run the dependent steps again, and note which leaves the outputs depend on."""
        task, framework = self._task, self._framework
        values: list[Any] = [None] * len(task.steps)
        reach: dict[int, frozenset[int]] = {}
        for index, value in (*zip(task.given, given, strict=True), *task.fixed.items()):
            values[index] = value
        for index, leaf in zip(task.leaves, leaves, strict=True):
            values[index], reach[index] = leaf, frozenset({index})
        traced = type(leaves[0])
        nothing: frozenset[int] = frozenset()
        for index in task.again:
            step = task.steps[index]
            values[index] = execute_step(step, values, framework)  # type: ignore[arg-type] - placeholders are given
            if any(type(item) is traced for item in self._jax.tree.leaves(values[index])):
                reach[index] = nothing.union(*(reach.get(ref.index, nothing) for ref in step_refs(step)))
        self._reached = nothing.union(*(reach.get(index, nothing) for index, _ in task.roots))
        return tuple(values[index] for index, _ in task.roots)

    def _in_order(self, found: Sequence[Any]) -> list[Any | None]:
        gradients = dict(zip(self._task.leaves, found, strict=True))
        return [gradients.get(index) if index in self._reached else None for index in self._task.asked]
