"""The backward pass of a run: from its autograd graph, or of the program as a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.host.binding import storage_dtype
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.host.shared_program import SharedProgram
from ci_autotest.host.trace import OutputCotangent
from ci_autotest.program.ir import PLACEHOLDER, TensorSpec, is_unpacking, output_refs
from ci_autotest.program.literals import array_of, rounded_bytes
from ci_autotest.values.dtypes import BITS, FLOAT8

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.host.frameworks.protocol import Framework
    from ci_autotest.host.trace import RunTrace
    from ci_autotest.program.ir import Program


def backward(
    program: Program,
    run: RunTrace,
    cotangents: Mapping[int, np.ndarray],
    framework: Framework,
    shared_program: SharedProgram | None = None,
) -> None:
    """Backpropagate the cotangents from the outputs that require grad, and store every gradient in the run.

    Args:
        program: The program of the run.
        run: The finished forward run; receives the gradients, or the error of the backward pass.
        cotangents: Elements by position of the output's tensors, in their shape.
        framework: The framework of the run.
        shared_program: Facts about the program, if they were worked out already.
    """
    try:
        if hasattr(framework, "backward"):
            run.gradients = _of_program(program, run, cotangents, framework)
        else:
            run.gradients = _of_values(shared_program or SharedProgram(program), run, cotangents, framework)
    except BaseException as error:  # noqa: BLE001 - foreign code: its error is the outcome
        record_backward_error(run, error, framework)


def record_backward_error(run: RunTrace, error: BaseException, framework: Framework) -> None:
    """Record an error of the backward pass: either the framework lacks a feature, or the error is the outcome."""
    # What was found before the error would be compared as if the pass had ended.
    run.gradients = []
    if isinstance(error, LackingError):
        run.lacking = error.why
    else:
        lacking = framework.lacking(error)
        run.lacking = Unsupported(UnsupportedReason.NO_COUNTERPART, lacking) if lacking else None
    run.backward_failure = type(error).__name__, str(error)


def _of_values(
    shared_program: SharedProgram, run: RunTrace, cotangents: Mapping[int, np.ndarray], framework: Framework
) -> list[tuple[Any, Any]]:
    """Return pairs of a step or parameter and its gradient, from the autograd graph behind the values."""
    roots, weights = _roots(shared_program, run, cotangents, framework)
    keys, inputs = _inputs(shared_program, run, roots, framework)
    if not roots or not keys:
        return []
    found = framework.gradients(roots, [weight.tensor for weight in weights.values()], inputs)
    run.cotangents = weights
    return list(zip(keys, found, strict=True))


def _of_program(
    program: Program,
    run: RunTrace,
    cotangents: Mapping[int, np.ndarray],
    framework: Any,
) -> list[tuple[Any, Any]]:
    """Return pairs of a leaf and its gradient, from a framework that differentiates functions instead of values."""
    weights, refs = {}, output_refs(program)
    for position, weight in cotangents.items():
        value = run.values[refs[position].index] if position < len(refs) else None
        fitting = _fitting(weight, *framework.facts(value)[:2]) if framework.is_tensor(value) else None
        if fitting is not None:
            spec = TensorSpec(framework.facts(value)[0], weight.shape, (), 0, weight.size)
            weights[position] = framework.tensor(fitting, spec)
    leaves = [i for i, step in enumerate(program.steps) if (leaf := step.spec) and leaf.requires_grad]
    return list(zip(leaves, framework.backward(program, run.values, weights, leaves), strict=True))


def _roots(
    shared_program: SharedProgram, run: RunTrace, cotangents: Mapping[int, np.ndarray], framework: Framework
) -> tuple[list[Any], dict[int, OutputCotangent]]:
    """Return the outputs that require grad on this side, each once, and their cotangents by position.

    One tensor may stand for two outputs that are separate tensors on the reference. Its cotangent is then the sum.
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
        position: _cotangent(array, TensorSpec(dtype, array.shape, (), 0, array.size), framework)
        for position, array, dtype in given.values()
    }


def _cotangent(array: np.ndarray, spec: TensorSpec, framework: Framework) -> OutputCotangent:
    """Return a cotangent as a tensor, with a copy of its elements from before the backward pass may overwrite them."""
    elements = array.tobytes()
    tensor = framework.tensor(array, spec)
    if spec.dtype in BITS:  # some frameworks convert it by way of float32, which may change a NaN's payload
        elements = framework.array(tensor).tobytes()
    shares = getattr(framework, "shares", None)
    return OutputCotangent(tensor, elements, array if shares is not None and array.size and shares(spec) else None)


def _sum(left: np.ndarray, right: np.ndarray, dtype: str) -> np.ndarray:
    """Return the sum of two cotangents. bfloat16 and float8 come as their bits; the sum is rounded to the nearest."""
    if dtype in FLOAT8:
        numbers = [array_of(side.tobytes(), dtype, side.shape).astype(np.float64) for side in (left, right)]
        return np.frombuffer(rounded_bytes(numbers[0] + numbers[1], dtype), np.uint8).reshape(left.shape).copy()
    if dtype not in BITS:
        return np.asarray(left + right, left.dtype)
    wide = [(side.astype(np.uint32) << np.uint32(16)).view(np.float32) for side in (left, right)]
    bits = np.asarray(wide[0] + wide[1], np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.asarray((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16), np.uint16)


def _fitting(weight: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return a cotangent in the dtype of its output; ``None`` if it has another shape or cannot be converted."""
    wanted = storage_dtype(dtype)
    is_complex = weight.dtype.kind == "c" and wanted.kind != "c"
    has_bits = dtype in BITS or weight.dtype in (np.uint8, np.uint16)
    if weight.shape != shape or is_complex or (weight.dtype != wanted and has_bits):
        return None  # the bits of a bfloat16 or float8, which a cast would take for a number
    return weight.astype(wanted)


def _inputs(
    shared_program: SharedProgram, run: RunTrace, roots: Sequence[Any], framework: Framework
) -> tuple[list[Any], list[Any]]:
    """Return the values to differentiate with respect to: leaves, parameters and intermediate values.

    Intermediate values are left out

    - if any step overwrites one: the gradient would be that of a value that is gone;
    - in graph mode, where they are not visible;
    - if no output depends on them;
    - if their call returns several results: where a framework computes one result from another, the gradient also
      holds what flows inside the call, and that is the framework's own business.
    """
    keys: list[Any] = []
    inputs: list[Any] = []
    overwrites = shared_program.overwrites or _gives_again(shared_program, run)
    used = frozenset() if run.graph is not None else shared_program.used
    # The gradient of a last output is the cotangent itself: comparing it would prove nothing. Leaves are compared.
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


def _gives_again(shared_program: SharedProgram, run: RunTrace) -> bool:
    """Whether a call returned one of its own arguments, as an in-place operator does whatever its name is."""
    values = run.values
    # Small numbers and `None` are single objects in Python, so that only tensors tell something.
    return any(
        values[call] is values[given] and run.facts[call] is not None for call, given in shared_program.arguments
    )
