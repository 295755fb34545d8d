"""The float64 oracle: which side is wrong, element by element.

The program is run in float64 from the very same inputs. A side is far where it is farther from
float64 than the tolerance allows. Where a change of the inputs by half a unit in the last place
moves the float64 result by as much as the two sides differ, no side is to blame: the case is
ill-conditioned.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from ci_autotest.alignment.elements import dense, has_any, hexadecimal, mismatches, ulp_distance, wide
from ci_autotest.alignment.gradients import third_opinion
from ci_autotest.alignment.rounding import CLEARLY, Errors, excuse
from ci_autotest.backends.torch_eager import TorchBackend, observed
from ci_autotest.program.ir import (
    CALL_METHOD,
    FLOATING,
    PLACEHOLDER,
    DType,
    Program,
    Ref,
    Step,
    TensorSpec,
    contiguous_strides,
    renumbered_step,
)

if TYPE_CHECKING:
    from ci_autotest.alignment.isolate import Live
    from ci_autotest.backends.trace import GradientKey, Trace
    from ci_autotest.program.ir import Argument
    from ci_autotest.result import Blame
    from ci_autotest.tolerance import Tolerance

_WIDE: Final = {
    "float16": "float64",
    "bfloat16": "float64",
    "float32": "float64",
    "complex64": "complex128",
}
#: Random sign patterns by which inputs are moved, and how much more than one of them an
#: ill-conditioned case may be off.
_PATTERNS: Final = 4
_SLACK: Final = 4.0
#: How much less the inputs are moved to tell a kink from rounding.
_NEARER: Final = 2.0**-10


class Opinion(NamedTuple):
    """What the oracle says.

    Attributes:
        blame: Which side is wrong.
        sentence: The reason, for the reader.
        value: The float64 value at the first misaligned element, hexadecimal, where there is one.
    """

    blame: Blame
    sentence: str
    value: str | None = None


def widened(live: Live) -> tuple[Live, dict[int, int]]:
    """Return the program in float64, and where each step went: modules are converted after they are constructed."""
    program = live.program
    loaded = {
        step.args[0].index
        for step in program.setup
        if step.target == "load_state_dict" and isinstance(step.args[0], Ref)
    }
    moved: list[Step] = []
    places: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        places[i] = len(moved)
        moved.append(_widened_step(renumbered_step(step, places)))
        if i in loaded:
            moved.append(Step(CALL_METHOD, "double", (Ref(places[i]),), in_setup=True))
    count = len(program.setup) + len(loaded)
    sources = {key: _widened_tensor(tensor) for key, tensor in live.sources.items()}
    for step in program.steps:
        spec = step.args[0] if step.op == PLACEHOLDER else None
        if isinstance(spec, TensorSpec) and not spec.is_contiguous:
            # Each element is one of its own: those of an expanded input would be moved together otherwise.
            view = sources[step.target].as_strided(spec.shape, spec.strides, spec.offset)
            sources[step.target] = view.clone(memory_format=torch.contiguous_format)
    cotangents = {position: _widened_tensor(tensor) for position, tensor in live.cotangents.items()}
    return type(live)(Program(tuple(moved[:count]), tuple(moved[count:])), sources, cotangents), places


def _widened_step(step: Step) -> Step:
    kwargs = tuple((key, _widened_argument(value)) for key, value in step.kwargs)
    return step._replace(args=tuple(_widened_argument(arg) for arg in step.args), kwargs=kwargs)


def _widened_argument(argument: Argument) -> Argument:
    if isinstance(argument, DType):
        return DType(_WIDE.get(argument.name, argument.name))
    if isinstance(argument, TensorSpec):
        return TensorSpec(
            _WIDE.get(argument.dtype, argument.dtype), argument.shape, contiguous_strides(argument.shape), 0,
            math.prod(argument.shape), argument.requires_grad, argument.device,
        )  # fmt: skip
    return argument


def _widened_tensor(tensor: torch.Tensor) -> torch.Tensor:
    name = str(tensor.dtype).removeprefix("torch.")
    return tensor.to(getattr(torch, _WIDE[name])) if name in _WIDE else tensor


def judge(
    live: Live,
    key: tuple[str, GradientKey],
    candidate: torch.Tensor,
    reference: torch.Tensor,
    tolerance: Tolerance,
) -> Opinion:
    """Return which side departs from float64 in the elements that are misaligned.

    Args:
        live: The program.
        key: ``("value" | "gradient", what)``: which tensor of it.
        candidate: Its value, any shape.
        reference: The same shape.
        tolerance: In the unit of the elements.
    """
    if tolerance.strictness != "tolerance":
        return Opinion(
            "candidate", f"at strictness {tolerance.strictness!r} the reference's own bits are what is asked for"
        )
    wider, places = widened(live)
    index = key[1]
    key = (key[0], places[index] if isinstance(index, int) else (places[index[0]], index[1]))
    exact = _wanted(wider, key)
    if exact is None or exact.shape != reference.shape:
        return Opinion("unknown", "float64 is not defined for this program: the oracle has no opinion")
    bad = mismatches(candidate, reference, tolerance)
    if not has_any(bad):
        return Opinion("ill_conditioned", "both sides are aligned when the step is given the same inputs")
    truth = wide(exact)
    allowed = tolerance.atol + tolerance.rtol * truth.abs().nan_to_num(0.0, 0.0, 0.0)
    far = [_distance(wide(side), truth) for side in (candidate, reference)]
    errors = Errors(far[0], far[1], allowed, bad, truth, reference.dtype)
    value = hexadecimal(dense(exact)[tuple(int(i) for i in bad.nonzero()[0])] if bad.dim() else dense(exact))
    excused = excuse(errors)
    if not excused and _is_ill_conditioned(_Question(live, wider, key), truth, bad, errors.greatest):
        excused = "a change of the inputs in their last place moves the result as far as the two sides are apart"
    if excused:
        return Opinion("ill_conditioned", excused, value)
    if reference.dtype in {torch.float64, torch.complex128}:
        return Opinion(
            "candidate", "the case is in float64: the reference itself is the most exact side there is", value
        )
    return _blamed((candidate, reference), exact, errors, value, third_opinion(wider) if key[0] == "gradient" else "")


def _blamed(
    sides: tuple[torch.Tensor, torch.Tensor], exact: torch.Tensor, errors: Errors, value: str, third: str
) -> Opinion:
    """Return which side is wrong, once neither is excused."""
    bad = errors.bad
    far_candidate, far_reference = (bad & (error > errors.allowed) for error in (errors.candidate, errors.reference))
    only_candidate = has_any(far_candidate & ~far_reference)
    only_reference = has_any(far_reference & ~far_candidate)
    if only_candidate == only_reference or max(errors.worst) < CLEARLY * min(errors.worst):
        return Opinion(
            "both", "in float64 both sides are farther from the exact result than the tolerance allows", value
        )
    names = ("candidate", "reference") if only_candidate else ("reference", "candidate")
    wrong, near = (errors.candidate, errors.reference) if only_candidate else (errors.reference, errors.candidate)
    sentence = _sentence(names, wrong[bad], near[bad]) + _in_ulp(sides, exact, bad) + third
    return Opinion(names[0], sentence, value)  # type: ignore[arg-type]


def _sentence(sides: tuple[str, str], wrong: torch.Tensor, near: torch.Tensor) -> str:
    far, close = float(wrong.max()), float(near.max())
    if close == 0 or far == float("inf"):
        return f"in float64 the {sides[1]} is right and the {sides[0]} is off by up to {far:.3g}"
    return f"in float64 the {sides[0]} is {far / close:,.3g} times farther from the exact result than the {sides[1]}"


def _in_ulp(sides: tuple[torch.Tensor, torch.Tensor], exact: torch.Tensor, bad: torch.Tensor) -> str:
    """Return how far each side is from the exact result rounded to its dtype, ``""`` where that has no measure."""
    found = [ulp_distance(dense(side), dense(exact).to(side.dtype)) for side in sides]
    if any(distance is None for distance in found):
        return ""
    worst = [float(distance[bad].max()) for distance in found if distance is not None]
    told = ["not finite" if math.isinf(distance) else f"{distance:,.0f} ULP" for distance in worst]
    return f" (candidate {told[0]}, reference {told[1]} from it)"


def _wanted(live: Live, key: tuple[str, GradientKey]) -> torch.Tensor | None:
    backend = TorchBackend()
    trace: Trace = backend.run(live.program, live.sources)
    if trace.failure is not None:
        return None
    if key[0] == "value":
        found = observed(trace.values[key[1]]).data if isinstance(key[1], int) else None
    else:
        backend.backward(live.program, trace, live.cotangents)
        found = trace.gradients.get(key[1])
    return found if isinstance(found, torch.Tensor) else None


def _distance(side: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Return ``|side - truth|``: 0 where both are the same NaN or infinity, infinite where only one is."""
    same = (side == truth) | (torch.isnan(side) & torch.isnan(truth))
    apart = (side - truth).abs()
    return torch.where(same, 0.0, torch.where(torch.isfinite(apart), apart, torch.inf))


class _Question(NamedTuple):
    live: Live
    wider: Live
    key: tuple[str, GradientKey]


def _is_ill_conditioned(question: _Question, truth: torch.Tensor, bad: torch.Tensor, errors: torch.Tensor) -> bool:
    """Whether moving every input by half a unit in its last place explains the error of each misaligned element.

    A result that moves as far when the inputs move a thousand times less is at a step or a kink, where the reference
    defines it, as of a gradient at ties: that excuses nobody.
    """
    generator = torch.Generator().manual_seed(0)
    moved_most = torch.zeros_like(errors)
    for _ in range(_PATTERNS):
        signs = generator.get_state()
        far = _moved_by(question, truth, generator, 1.0)
        near = _moved_by(question, truth, generator.set_state(signs), _NEARER)
        if far is None or near is None:
            return False
        moved_most = torch.maximum(moved_most, torch.where(near < far / 2, far, 0.0))
    explained = errors <= _SLACK * moved_most
    finite = torch.isfinite(errors)
    return not has_any(~(explained & finite)[bad])


def _moved_by(
    question: _Question, truth: torch.Tensor, generator: torch.Generator, share: float
) -> torch.Tensor | None:
    """Return how far the float64 result moves when each input moves by a share of half a unit in its last place."""
    wider = question.wider
    moved = {name: _moved(wider.sources[name], ulp * share, generator) for name, ulp in _inputs(question.live)}
    other = _wanted(wider._replace(sources={**wider.sources, **moved}), question.key)
    return None if other is None else _distance(wide(other), truth)


def _inputs(live: Live) -> list[tuple[str, float]]:
    """Return each floating point input's key and half a unit in the last place of its dtype, relative."""
    found = []
    for step in live.program.body:
        spec = step.args[0] if step.op == PLACEHOLDER else None
        if isinstance(spec, TensorSpec) and spec.dtype in FLOATING:
            found.append((step.target, torch.finfo(getattr(torch, spec.dtype)).eps / 2))
    return found


def _moved(tensor: torch.Tensor, relative: float, generator: torch.Generator) -> torch.Tensor:
    signs = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return tensor * (1 + signs * relative)
