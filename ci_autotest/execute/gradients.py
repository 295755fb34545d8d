"""Take the gradients of a run, from the graph behind its values or from the program as a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.execute.binding import storage_dtype
from ci_autotest.execute.running import Seen, together
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, PLACEHOLDER, TensorSpec, output_refs, ref_to, step_refs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from ci_autotest.execute.frameworks.protocol import Framework
    from ci_autotest.execute.running import Run
    from ci_autotest.program.ir import Program, Step

_WRITES: Final = frozenset({
    "setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift",
    "irshift",
})  # fmt: skip


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
        arrays = together((gradient for _, gradient in found), framework)  # reading waits for them
        run.gradients = [
            (key, None if gradient is None else _seen(gradient, framework, arrays)) for key, gradient in found
        ]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: its error is the outcome
        run.lacking = framework.lacking(error) or None
        run.backward_failure = f"{type(error).__name__}: {error}"


def _seen(gradient: Any, framework: Framework, arrays: Mapping[int, np.ndarray]) -> Seen:  # noqa: ANN401 - a tensor
    array = arrays.get(id(gradient))
    return Seen(framework.facts(gradient), framework.array(gradient) if array is None else array)


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
        if framework.is_tensor(value) and _fits(weight, *framework.facts(value)[:2]):
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
        if requires_grad and _fits(weight, dtype, shape):
            spec = TensorSpec(dtype, shape, (), 0, weight.size)
            roots.append(value)
            weights.append(framework.tensor(weight.copy(), spec))
    return roots, weights


def _fits(weight: np.ndarray, dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether a gradient can be put into a value: one of another dtype or shape is misaligned as it is."""
    return weight.shape == shape and weight.dtype == storage_dtype(dtype)


def _inputs(program: Program, run: Run, roots: Sequence[Any], framework: Framework) -> tuple[list[Any], list[Any]]:
    """Return what gradients are taken for: leaves, parameters, and intermediates where nothing is overwritten.

    Of intermediates those that an output depends on: for parts of a tuple that nothing uses some frameworks give zeros.
    """
    keys: list[Any] = []
    inputs: list[Any] = []
    last = len(run.values) - 2
    overwrites = any(_writes(step) for step in program.body)
    used = _used(program)
    # The gradient of an output that nothing else uses is the cotangent itself.
    taken = {id(roots[0])} if len(roots) == 1 and program.body[-1].args == (ref_to(last),) else set()
    for index, value in enumerate(run.values):
        step = program.steps[index]
        if framework.is_tensor(value):
            requires_grad = framework.facts(value)[2]
            is_asked = step.op == PLACEHOLDER or (index in used and not overwrites)
            if requires_grad and id(value) not in taken and is_asked:
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


def _used(program: Program) -> set[int]:
    """Return the steps whose values the output depends on."""
    steps = program.steps
    used = {ref.index for ref in output_refs(program)}
    for index in range(len(steps) - 1, -1, -1):
        if index in used:
            used.update(ref.index for ref in step_refs(steps[index]))
    return used


def _writes(step: Step) -> bool:
    name = step.target.rpartition(".")[2]
    if dict(step.kwargs).get("inplace") is True:
        return True
    if step.op == CALL_METHOD:
        return name.endswith("_") and not name.endswith("__")
    return step.op == CALL_FUNCTION and (name in _WRITES or (name.endswith("_") and not name.startswith("_")))
