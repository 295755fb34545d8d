"""The backward pass of a program on JAX: the steps between leaves and outputs run again under ``jax.vjp``.

For complex numbers PyTorch's gradient is the direction of steepest ascent, which is the conjugate of JAX's. So weights
are conjugated before the pass, and gradients after it. Source: JAX 0.10, "The autodiff cookbook"; PyTorch 2.13,
"Autograd mechanics".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ci_autotest.host.steps import execute_step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.host.frameworks.task import Task


class Gradient:
    """The backward pass of one task, compiled as one computation."""

    def __init__(self, jax: Any, framework: Any, task: Task) -> None:
        self._jax = jax
        self._framework = framework
        self._task = task
        self._jitted = jax.jit(self._pulled_back)

    def compiled(self, values: Sequence[Any], weights: Mapping[int, Any]) -> list[Any | None]:
        """Return the gradient of each requested leaf."""
        return self._in_order(self._jitted(*self._arguments(values, weights)))

    def stepwise(self, values: Sequence[Any], weights: Mapping[int, Any]) -> list[Any | None]:
        """Return the same without compiling the pass, for steps whose shapes depend on data."""
        return self._in_order(self._pulled_back(*self._arguments(values, weights)))

    def _arguments(self, values: Sequence[Any], weights: Mapping[int, Any]) -> tuple[list[Any], list[Any], list[Any]]:
        task = self._task
        return (
            [values[i] for i in task.leaves],
            [values[i] for i in task.given],
            [weights[position] for _, position in task.roots],
        )

    def _pulled_back(self, leaves: list[Any], given: list[Any], weights: list[Any]) -> list[Any]:
        """Return the vector-Jacobian product in PyTorch's convention for complex numbers."""
        jnp = self._jax.numpy
        # The other arrays are arguments of the compiled pass and not of the differentiated function: they get no
        # gradient.
        outputs, pull = self._jax.vjp(lambda *arrays: self._forward(arrays, given), *leaves)
        # JAX refuses a weight in another dtype than its output's.
        conjugated = [jnp.conj(weight.astype(output.dtype)) for weight, output in zip(weights, outputs, strict=True)]
        return [jnp.conj(gradient) for gradient in pull(tuple(conjugated))]

    def _forward(self, leaves: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
        """Run the dependent steps again, on tracers of the leaves."""
        task = self._task
        values: list[Any] = [None] * len(task.steps)
        for indices, found in ((task.leaves, leaves), (task.given, given), (task.fixed, task.fixed.values())):
            for index, value in zip(indices, found, strict=True):
                values[index] = value
        for index in task.again:
            values[index] = execute_step(task.steps[index], values, self._framework)
        return tuple(values[index] for index, _ in task.roots)

    def _in_order(self, found: Sequence[Any]) -> list[Any | None]:
        gradients = dict(zip(self._task.leaves, found, strict=True))
        return [gradients.get(index) for index in self._task.asked]
