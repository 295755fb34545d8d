"""Run a program in a framework, and keep what was seen: values, facts, copies, gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.execute.binding import Binding
from ci_autotest.execute.failing import failed, needs_attribute
from ci_autotest.execute.frameworks.protocol import LackingError
from ci_autotest.execute.steps import execute_step
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    OUTPUT,
    PLACEHOLDER,
    TensorSpec,
    output_refs,
    ref_to,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from ci_autotest.execute.frameworks.protocol import Framework
    from ci_autotest.program.ir import Program, Step

#: A tensor's dtype, shape, requires_grad and is_leaf.
Facts = tuple[str, tuple[int, ...], bool, bool]
_WRITES: Final = frozenset({
    "setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift",
    "irshift",
})  # fmt: skip


class Seen(NamedTuple):
    """Hold a value as it was at its step.

    Attributes:
        facts: Of a tensor; ``None`` for another value.
        array: Its elements, or the plain value.
    """

    facts: Facts | None
    array: Any


class Run:
    """What one run of a program left behind.

    Attributes:
        values: Live value of each step, by index.
        facts: Of each tensor as it was observed, ``None`` for other values.
        copies: Of each value at its step; empty unless the run took snapshots.
        failure: The step that raised, the error's kind and message.
        lacking: What the framework has not, where a step asked for it.
        gradients: By what they are with respect to.
        backward_failure: What the backward pass raised.
    """

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self.values: list[Any] = []
        self.facts: list[Facts | None] = []
        self.copies: list[Seen] = []
        self.failure: tuple[int, str, str] | None = None
        self.lacking: str | None = None
        self.gradients: list[tuple[Any, Any]] = []
        self.backward_failure: str | None = None


def forward(
    program: Program,
    tensors: Mapping[str, np.ndarray],
    framework: Framework,
    enter: Callable[[int], None],
    *,
    snapshots: bool,
) -> Run:
    """Run the steps; one that raises ends the run and is in it.

    Args:
        program: Setup and body.
        tensors: Storage of each placeholder by key.
        framework: Runs it.
        enter: Told the index of each step before it is run.
        snapshots: Whether every value is copied at its step.
    """
    run = Run()
    binding = Binding(framework, tensors)
    for index, step in enumerate(program.steps):
        enter(index)
        value: Any = None
        facts: Facts | None = None
        if step.op != OUTPUT:
            try:
                needs_attribute(step, run.values, framework)
                value = execute_step(step, run.values, binding)
                if step.op != PLACEHOLDER:
                    framework.synchronize()
                facts = framework.facts(value) if framework.is_tensor(value) else None
                if snapshots:
                    run.copies.append(seen(value, facts, framework))
            except LackingError as error:
                run.lacking = f"it has no {error}"
                return run
            except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: its error is the outcome
                failed(run, step, index, error, framework)
                return run
        elif snapshots:
            run.copies.append(Seen(None, None))
        run.values.append(value)
        run.facts.append(facts)
    return run


def seen(value: Any, facts: Facts | None, framework: Framework) -> Seen:  # noqa: ANN401 - a framework's value
    """Return a value as it is now."""
    return Seen(facts, framework.array(value) if facts is not None else value)


def backward(program: Program, run: Run, cotangents: Mapping[int, np.ndarray], framework: Framework) -> None:
    """Put the cotangents into the outputs that require grad, and keep every gradient.

    Args:
        program: What was run.
        run: What it left; the gradients are put into it.
        cotangents: Elements by position of the output's tensors, in their shape.
        framework: Ran it.
    """
    differentiated = _of_program if hasattr(framework, "backward") else _of_values
    try:
        found = differentiated(program, run, cotangents, framework)
        framework.synchronize()
        run.gradients = [
            (key, None if gradient is None else seen(gradient, framework.facts(gradient), framework))
            for key, gradient in found
        ]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: its error is the outcome
        run.lacking = framework.lacking(error) or None
        run.backward_failure = f"{type(error).__name__}: {error}"


def _of_values(
    program: Program, run: Run, cotangents: Mapping[int, np.ndarray], framework: Framework
) -> Sequence[tuple[Any, Any]]:
    """Return the gradients that the graph behind the values gives, with what they are with respect to."""
    roots, weights = _roots(program, run, cotangents, framework)
    keys, inputs = _inputs(program, run, roots, framework)
    return list(zip(keys, framework.gradients(roots, weights, inputs), strict=True)) if roots and keys else []


def _of_program(
    program: Program,
    run: Run,
    cotangents: Mapping[int, np.ndarray],
    framework: Any,  # noqa: ANN401 - see its protocol
) -> Sequence[tuple[Any, Any]]:
    """Return the gradients of the leaves from a framework that differentiates functions and not values."""
    weights, refs = {}, output_refs(program)
    for position, weight in cotangents.items():
        value = run.values[refs[position].index] if position < len(refs) else None
        if framework.is_tensor(value) and framework.facts(value)[1] == weight.shape:
            spec = TensorSpec(framework.facts(value)[0], weight.shape, (), 0, weight.size)
            weights[position] = framework.tensor(weight.copy(), spec)
    leaves = [i for i, step in enumerate(program.steps) if step.op == PLACEHOLDER and step.args[0].requires_grad]  # type: ignore[union-attr]
    return list(zip(leaves, framework.backward(program, run.values, weights, leaves), strict=True))


def _roots(
    program: Program, run: Run, cotangents: Mapping[int, np.ndarray], framework: Framework
) -> tuple[list[Any], list[Any]]:
    """Return the outputs that require grad on this side, each once, and the gradients that are put into them."""
    roots: list[Any] = []
    weights: list[Any] = []
    refs = output_refs(program)
    for position, weight in cotangents.items():
        value = run.values[refs[position].index] if position < len(refs) else None
        if not framework.is_tensor(value) or any(value is root for root in roots):
            continue
        dtype, shape, requires_grad, _ = framework.facts(value)
        if requires_grad and shape == weight.shape:
            spec = TensorSpec(dtype, shape, (), 0, weight.size)
            roots.append(value)
            weights.append(framework.tensor(weight.copy(), spec))
    return roots, weights


def _inputs(program: Program, run: Run, roots: Sequence[Any], framework: Framework) -> tuple[list[Any], list[Any]]:
    """Return what gradients are taken for: leaves, parameters, and intermediates where nothing is overwritten."""
    keys: list[Any] = []
    inputs: list[Any] = []
    last = len(run.values) - 2
    overwrites = any(_writes(step) for step in program.body)
    # The gradient of an output that nothing else uses is the cotangent itself.
    taken = {id(roots[0])} if len(roots) == 1 and program.body[-1].args == (ref_to(last),) else set()
    for index, value in enumerate(run.values):
        step = program.steps[index]
        if framework.is_tensor(value):
            requires_grad = framework.facts(value)[2]
            if requires_grad and id(value) not in taken and (step.op == PLACEHOLDER or not overwrites):
                taken.add(id(value))
                keys.append(index)
                inputs.append(value)
        elif step.in_setup and hasattr(value, "named_parameters"):
            for name, parameter in value.named_parameters():
                if framework.facts(parameter)[2] and id(parameter) not in taken:
                    taken.add(id(parameter))
                    keys.append((index, name))
                    inputs.append(parameter)
    return keys, inputs


def _writes(step: Step) -> bool:
    name = step.target.rpartition(".")[2]
    if dict(step.kwargs).get("inplace") is True:
        return True
    if step.op == CALL_METHOD:
        return name.endswith("_") and not name.endswith("__")
    return step.op == CALL_FUNCTION and (name in _WRITES or (name.endswith("_") and not name.startswith("_")))
