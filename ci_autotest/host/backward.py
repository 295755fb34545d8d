"""Compute the gradients of a run, from its autograd graph or from the program as a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.host.binding import storage_dtype
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.host.shared_program import SharedProgram
from ci_autotest.host.trace import PutIn
from ci_autotest.program.ir import PLACEHOLDER, TensorSpec, is_unpacking, output_refs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.host.frameworks.protocol import Framework
    from ci_autotest.host.trace import Run
    from ci_autotest.program.ir import Program


def backward(
    program: Program,
    run: Run,
    cotangents: Mapping[int, np.ndarray],
    framework: Framework,
    shared_program: SharedProgram | None = None,
) -> None:
    """Put the cotangents into the outputs that require grad, and keep every gradient.

    Args:
        program: What was run.
        run: What it left; the gradients are put into it.
        cotangents: Elements by position of the output's tensors, in their shape.
        framework: Ran it.
        shared_program: What is known of the program already.
    """
    try:
        if hasattr(framework, "backward"):
            run.gradients = _of_program(program, run, cotangents, framework)
        else:
            run.gradients = _of_values(shared_program or SharedProgram(program), run, cotangents, framework)
    except BaseException as error:  # noqa: BLE001 - foreign code: its error is the outcome
        failed_backward(run, error, framework)


def failed_backward(run: Run, error: BaseException, framework: Framework) -> None:
    """Note what an error of the backward pass means: the framework has not what was asked for, or it is the outcome."""
    run.gradients = []
    if isinstance(error, LackingError):
        run.lacking = error.why
    else:
        lacking = framework.lacking(error)
        run.lacking = Unsupported(UnsupportedReason.NO_COUNTERPART, lacking) if lacking else None
    run.backward_failure = type(error).__name__, str(error)


def _of_values(
    shared_program: SharedProgram, run: Run, cotangents: Mapping[int, np.ndarray], framework: Framework
) -> list[tuple[Any, Any]]:
    """Return the gradients that the graph behind the values gives, with what they are with respect to."""
    roots, weights = _roots(shared_program, run, cotangents, framework)
    keys, inputs = _inputs(shared_program, run, roots, framework)
    if not roots or not keys:
        return []
    found = framework.gradients(roots, [weight.tensor for weight in weights.values()], inputs)
    run.put_in = weights
    return list(zip(keys, found, strict=True))


def _of_program(
    program: Program,
    run: Run,
    cotangents: Mapping[int, np.ndarray],
    framework: Any,
) -> list[tuple[Any, Any]]:
    """Return the gradients of the leaves from a framework that differentiates functions and not values."""
    weights, refs = {}, output_refs(program)
    for position, weight in cotangents.items():
        value = run.values[refs[position].index] if position < len(refs) else None
        fitting = _fitting(weight, *framework.facts(value)[:2]) if framework.is_tensor(value) else None
        if fitting is not None:
            spec = TensorSpec(framework.facts(value)[0], weight.shape, (), 0, weight.size)
            weights[position] = framework.tensor(fitting, spec)
    leaves = [i for i, step in enumerate(program.steps) if step.op == PLACEHOLDER and step.args[0].requires_grad]  # type: ignore[union-attr]
    return list(zip(leaves, framework.backward(program, run.values, weights, leaves), strict=True))


def _roots(
    shared_program: SharedProgram, run: Run, cotangents: Mapping[int, np.ndarray], framework: Framework
) -> tuple[list[Any], dict[int, PutIn]]:
    """Return the outputs that require grad on this side, each once, and what is put into them by position.

    One tensor may be what the reference has two of: it is given the sum of both gradients.
    """
    roots: dict[int, Any] = {}
    given: dict[int, tuple[int, np.ndarray, str]] = {}
    refs = shared_program.outputs
    for position, weight in cotangents.items():
        value = run.values[refs[position].index] if position < len(refs) else None
        if not framework.is_tensor(value):
            continue
        dtype, shape, requires_grad, _ = framework.facts(value)
        fitting = _fitting(weight, dtype, shape)
        if not requires_grad or fitting is None:
            continue
        roots[id(value)] = value
        first, before, _ = given.get(id(value), (position, None, dtype))
        given[id(value)] = first, fitting if before is None else _sum(before, fitting, dtype), dtype
    return list(roots.values()), {
        position: _put_in(array, TensorSpec(dtype, array.shape, (), 0, array.size), framework)
        for position, array, dtype in given.values()
    }


def _put_in(array: np.ndarray, spec: TensorSpec, framework: Framework) -> PutIn:
    """Return what is put into an output, and its elements before anything can write to them."""
    elements = array.tobytes()
    tensor = framework.tensor(array, spec)
    if spec.dtype == "bfloat16":  # by way of float32 where there is no other: a NaN may then be another one
        elements = framework.array(tensor).tobytes()
    shares = getattr(framework, "shares", None)
    return PutIn(tensor, elements, array if shares is not None and array.size and shares(spec) else None)


def _sum(left: np.ndarray, right: np.ndarray, dtype: str) -> np.ndarray:
    """Return the sum of two gradients; of bfloat16, which is here its bits, rounded to the nearest."""
    if dtype != "bfloat16":
        return np.asarray(left + right, left.dtype)
    wide = [(side.astype(np.uint32) << np.uint32(16)).view(np.float32) for side in (left, right)]
    bits = np.asarray(wide[0] + wide[1], np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.asarray((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16), np.uint16)


def _fitting(weight: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return a gradient as it is put into a value, in the value's own dtype; ``None`` where it has another shape."""
    wanted = storage_dtype(dtype)
    is_complex = weight.dtype.kind == "c" and wanted.kind != "c"
    if weight.shape != shape or is_complex or (weight.dtype != wanted and np.uint16 in (weight.dtype, wanted)):
        return None  # bits of bfloat16 are no numbers to convert
    return weight.astype(wanted)


def _inputs(
    shared_program: SharedProgram, run: Run, roots: Sequence[Any], framework: Framework
) -> tuple[list[Any], list[Any]]:
    """Return what gradients are taken for: leaves, parameters, and intermediates where nothing is overwritten.

    Of a graph there are no intermediates: an output that another one is made of has the gradient that was put in.
    Of intermediates those that an output depends on, and none of a call with several results: where a framework makes
    one of them of another, its gradient holds what comes through the call itself, which is the framework's business.
    """
    keys: list[Any] = []
    inputs: list[Any] = []
    overwrites = shared_program.overwrites or _gives_again(shared_program, run)
    used = frozenset() if run.graph is not None else shared_program.used
    # The gradient of an output that nothing else uses is the cotangent itself; a leaf's is compared like any other's.
    is_cotangent = len(roots) == 1 and shared_program.ends_in_output and not framework.facts(roots[0])[3]
    taken = {id(roots[0])} if is_cotangent else set()
    for index, (step, value) in enumerate(zip(shared_program.example.steps, run.values, strict=True)):
        if framework.is_tensor(value):
            requires_grad = framework.facts(value)[2]
            is_asked = step.op == PLACEHOLDER or (index in used and not overwrites and not is_unpacking(step))
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


def _gives_again(shared_program: SharedProgram, run: Run) -> bool:
    """Whether a call gave one of its arguments back, as what writes to it does, however that is spelled."""
    values = run.values
    return any(
        values[call] is values[given] and run.facts[call] is not None for call, given in shared_program.arguments
    )
