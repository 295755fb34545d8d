"""The memory guard: inputs and results lie between guard bands, which a kernel within bounds never touches.

A guarded program is the program with each input as a view of a storage of its own, and with a mode at each call, in
which what a kernel allocates has bands too. Recording, localizing and shrinking know nothing of it. A write into a band
is a `mutation`: of that storage, or an error of the call. A read shows in the result, because the bands hold NaN (or
large integers) in one run and zeros in another; the reference reads neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
import torch

from ci_autotest.program.edit import rewritten, with_mode
from ci_autotest.program.ir import (
    CALL_METHOD,
    PLACEHOLDER,
    REGISTERS,
    RESULT_BANDS,
    Program,
    Ref,
    Step,
    contiguous_strides,
    result_bands_of,
)
from ci_autotest.program.refusal import refused_as
from ci_autotest.values.verdict import Call, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ci_autotest.alignment.single_step import Live
    from ci_autotest.values.verdict import Misalignment, Verdict

#: Elements of a band. A multiple of 64, so that the first element is aligned as in a storage of its own (rule 16).
BAND: Final = 64
_KEY: Final = "guarded"
#: Kinds of differences that a band can cause. An error may only say that a kernel takes no view of a larger storage.
KINDS: Final = frozenset({"value", "gradient", "mutation"})


#: What lies between bands.
Guarded: TypeAlias = Literal["results", "inputs"]


def guarded_programs(live: Live, guarded: Sequence[Guarded]) -> Iterator[Live]:
    """Yield a program with inputs and results between guard bands: of NaN or the largest integer, then of zeros."""
    if any(key.startswith(_KEY) for key in live.sources) or any(map(result_bands_of, live.program.steps)):
        return
    for has_zeros in (False, True):
        found = _with_result_bands(live, has_zeros=has_zeros) if "results" in guarded else live
        yield _with_input_bands(found, has_zeros=has_zeros) if "inputs" in guarded else found


def _with_result_bands(live: Live, *, has_zeros: bool) -> Live:
    """Return the program with bands around what the kernel of each call allocates."""
    # A refusal is an error of its own, and what registers a hook calls no kernel.
    calls = [i for i, step in live.program.calls if refused_as(step) is None and REGISTERS[0] not in step.modes]
    return live._replace(program=with_mode(live.program, RESULT_BANDS[has_zeros], calls))


def _with_input_bands(live: Live, *, has_zeros: bool) -> Live:
    """Return the program with bands around each input that has elements."""
    sources = dict(live.sources)

    def banded(index: int, step: Step) -> tuple[Step, ...]:
        spec = step.spec if not step.in_setup else None
        if spec is None or not sources[step.target].numel():
            return (step,)
        source = _banded(sources.pop(step.target), has_zeros=has_zeros)
        key, name = f"{_KEY}{index}", f"{step.name or step.target}_storage"
        sources[key] = source
        whole = step._replace(target=key, args=(spec.contiguous(shape=(source.numel(),)),), name=name)
        view = (Ref(index), spec.shape, spec.strides or contiguous_strides(spec.shape), spec.offset + BAND)
        return whole, Step(CALL_METHOD, "as_strided", view, (), step.name or step.target)

    return live._replace(program=rewritten(live.program, banded), sources=sources)


def _banded(source: Any, *, has_zeros: bool) -> torch.Tensor:
    """Return the elements of a storage between two bands."""
    flat = source.detach().reshape(-1)
    fill = _fill(flat.dtype, has_zeros=has_zeros)
    # On its own device: a kernel may have left another one as the default of this process.
    found = torch.full((flat.numel() + 2 * BAND,), fill, dtype=flat.dtype, device=flat.device)
    found[BAND:-BAND] = flat
    return found


def _fill(dtype: torch.dtype, *, has_zeros: bool) -> float | int | bool:
    if has_zeros:
        return 0
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    # `torch.iinfo` refuses bool.
    return True if dtype is torch.bool else torch.iinfo(dtype).max


def is_guarded(program: Program) -> bool:
    """Whether a program's inputs lie between guard bands, which a step on its own would not have."""
    return any(map(_is_band, program.steps))


def is_out_of_bounds(verdict: Verdict, live: Live) -> bool:
    """Whether a verdict on a guarded program is a write into a band."""
    found = verdict.misalignment
    is_written = found is not None and found.kind == "mutation" and _is_band(live.program.steps[found.step])
    return is_written or is_beside_result(verdict)


def is_beside_result(verdict: Verdict) -> bool:
    """Whether a verdict is a write beside memory that a kernel allocates."""
    found = verdict.misalignment
    return found is not None and found.kind == "mutation" and isinstance(found.at, Call)


def _is_band(step: Step) -> bool:
    return step.op == PLACEHOLDER and step.target.startswith(_KEY)


def explained(found: Misalignment, live: Live) -> Misalignment:
    """Return a difference of a guarded program with what the kernel did, in words; any other as it is."""
    steps = live.program.steps
    bands = [index for index, step in enumerate(steps) if _is_band(step)]
    has_results = any(map(result_bands_of, steps))
    if not (bands or has_results) or found.kind not in KINDS or isinstance(found.at, Call):
        return found
    if found.step in bands and isinstance(found.at, Value) and found.at.aspect == "end":
        return msgspec.structs.replace(found, detail=_written(found, steps))
    names = ", ".join(_input(steps[index]) for index in bands)
    text = f"reads beside its inputs: the storage of {names} has guard bands, and the result depends on them"
    if not bands:
        text = "reads beside memory that it allocates, which has guard bands, and the result depends on them"
    return msgspec.structs.replace(found, detail=f"{text}. {found.detail}" if found.detail else text)


def _written(found: Misalignment, steps: tuple[Step, ...]) -> str:
    """Return how many elements a kernel wrote beside an input, and on which side of it."""
    difference = found.difference
    if difference is None or not difference.first_index:
        return found.detail
    # By the view, because a shrunk program has other bands.
    spans = [_span(step) for step in steps if step.target == "as_strided" and step.args[0] == Ref(found.step)]
    first, name = difference.first_index[0], _input(steps[found.step])
    where = "beside"
    if any(spans):
        lowest, end = min(span.start for span in spans), max(span.stop for span in spans)
        where = "before" if first < lowest else "behind" if first >= end else "within"
    return f"writes {difference.mismatched} element{'' if difference.mismatched == 1 else 's'} {where} {name}"


def _span(step: Step) -> range:
    """Return the places in a storage, in elements, from the first to the last element of a view made above."""
    shape, strides, offset = (*step.args[1:4], None, None, None)[:3]
    # A body's own `as_strided` may have taken its place in a shrunk program.
    if not (isinstance(shape, tuple) and isinstance(strides, tuple) and isinstance(offset, int)):
        return range(0)
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))  # type: ignore[operator, misc]
    return range(offset, offset + last + 1)


def _input(step: Step) -> str:
    return step.name.removesuffix("_storage")
