"""Runs in float64: a program is converted, and one tensor of it is computed from any data.

A conversion does not change what a program means. Inputs, modules and dtype arguments become float64. Defaults that an
operator takes from the dtype are written out first, so that they stay those of the original dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ci_autotest.alignment.blame.random_rounding import Formula, RandomRounding
from ci_autotest.alignment.elements import equal_or_nan, has_any, wide
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.input_copies import laid_out
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.backends.trace import overwritten
from ci_autotest.program.edit import mapped_step, renumbered_step
from ci_autotest.program.ir import CALL_METHOD, DType, Program, Ref, Step, TensorSpec
from ci_autotest.program.targets import last_name
from ci_autotest.values.dtypes import WIDE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ci_autotest.alignment.single_step import Live
    from ci_autotest.backends.trace import GradientKey, ReferenceBackend, Trace
    from ci_autotest.program.ir import Argument

#: Defaults that an operator takes from the dtype: the argument, its position, and the field of ``torch.finfo``.
_TAKEN: Final = {
    "rms_norm": (("eps", 3, "eps"),),
    "RMSNorm": (("eps", 1, "eps"),),
    "nan_to_num": (("posinf", 2, "max"), ("neginf", 3, "min")),
}
#: Most aligned elements that are measured along with the misaligned ones.
_OTHERS: Final = 1 << 16
#: Greatest size of a run that is kept, and the number of those: 64 hold all that is asked of one tensor.
_KEPT_BYTES: Final = 4 << 20
_KEPT_RUNS: Final = 64


def widened(live: Live, dtype: torch.dtype = torch.float32) -> tuple[Live, dict[int, int]]:
    """Return the program in float64 and the new index of each step: modules are converted after construction.

    Args:
        live: The program with its data.
        dtype: The dtype of its results, from which operators take defaults.
    """
    program = live.program
    loaded = {state[0] for step in program.setup if (state := step.loaded_state) is not None}
    moved: list[Step] = []
    places: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        places[i] = len(moved)
        moved.append(mapped_step(_written_out(renumbered_step(step, places), dtype), _widened_argument))
        # Only after the state is loaded, whose dtype is that of the recording.
        if i in loaded:
            moved.append(Step(CALL_METHOD, "double", (Ref(places[i]),), in_setup=True))
    sources = {key: _widened_tensor(tensor) for key, tensor in live.sources.items()}
    for step in program.steps:
        spec = step.spec
        if spec is not None and not spec.is_contiguous:
            # Elements of an expanded input share memory. Perturbing one of them must not move the others.
            view = laid_out(sources[step.target], spec)
            sources[step.target] = view.clone(memory_format=torch.contiguous_format)
    cotangents = {position: _widened_tensor(tensor) for position, tensor in live.cotangents.items()}
    return type(live)(Program.of(moved), sources, cotangents), places


def _written_out(step: Step, dtype: torch.dtype) -> Step:
    """Return a step with the defaults that it would take from the dtype as arguments."""
    taken = _TAKEN.get(last_name(step.target).rstrip("_"), ())
    if not taken or not (dtype.is_floating_point or dtype.is_complex):
        return step
    given = dict(step.kwargs)
    for name, position, number in taken:
        # Normalizations of half precision are computed in single precision.
        info = torch.finfo(torch.float32 if number == "eps" and dtype.itemsize < 4 else dtype)  # noqa: PLR2004 - bytes
        if len(step.args) <= position and given.get(name) is None:
            given[name] = float(getattr(info, number))
    return step._replace(kwargs=tuple(given.items()))


def _widened_argument(argument: Argument) -> Argument:
    if isinstance(argument, DType):
        return DType(WIDE.get(argument.name, argument.name))
    if isinstance(argument, TensorSpec):
        return argument.contiguous(dtype=WIDE.get(argument.dtype, argument.dtype))
    return argument


def _widened_tensor(tensor: torch.Tensor) -> torch.Tensor:
    name = DTYPE_NAMES[tensor.dtype]
    return tensor.to(getattr(torch, WIDE[name])) if name in WIDE else tensor


class Float64Runs:
    """Runs of one program in float64, which the questions about its tensors share.

    Where errors accumulate, up to two dozen tensors of one program are asked about, and each question runs it some
    fifty times with the same data.

    Args:
        reference: The side believed, if it is not torch on the whole program.
    """

    def __init__(self, reference: ReferenceBackend | None = None) -> None:
        self.reference = reference
        self._backend = reference or TorchBackend()
        self._wider: dict[torch.dtype, tuple[Live, tuple[Live, dict[int, int]]]] = {}
        # With the programs, so that no other one gets their ids.
        self._traces: dict[tuple[object, ...], tuple[Trace, Program]] = {}
        self._overwritten: dict[int, tuple[frozenset[int], Program]] = {}

    def widened(self, live: Live, dtype: torch.dtype) -> tuple[Live, dict[int, int]]:
        """Return a program in float64, the same one for each question about it (``widened``)."""
        known = self._wider.get(dtype)
        if known is None or known[0] is not live:
            known = self._wider[dtype] = live, widened(live, dtype)
        return known[1]

    def trace(self, live: Live, run: tuple[object, ...], *, has_backward: bool) -> Trace:
        """Return a run of a program in float64.

        Args:
            live: The program with the run's data.
            run: What the data and the arithmetic of the run are, so that an equal run need not be made again.
            has_backward: Whether the backward pass runs, too.
        """
        name = (id(live.program), has_backward, *run)
        if name not in self._traces:
            trace = ran(live, self.written(live) if has_backward else (), self._backend, has_backward=has_backward)
            size = sum(value.nbytes for value in trace.values if isinstance(value, torch.Tensor))
            if size > _KEPT_BYTES or len(self._traces) >= _KEPT_RUNS:
                return trace
            self._traces[name] = trace, live.program
        return self._traces[name][0]

    def written(self, live: Live) -> frozenset[int]:
        """Return the values that a later step writes to: a gradient belongs to such a value as it was at its step."""
        key = id(live.program)
        if key not in self._overwritten:
            self._overwritten[key] = overwritten(ran(live, (), self._backend, has_backward=False)), live.program
        return self._overwritten[key][0]


class Float64Question(NamedTuple):
    """A tensor of a program whose float64 value is wanted.

    Attributes:
        live: The program.
        wider: The program in float64.
        key: ``("value" | "gradient" | "state", what)``: which tensor of ``wider``.
        chosen: Positions of the wanted elements in row-major order; ``None`` for all, in the tensor's shape.
        reference: The side believed, if it is not torch on the whole program.
        runs: Runs that other questions about the program share.
    """

    live: Live
    wider: Live
    key: tuple[str, GradientKey]
    chosen: torch.Tensor | None = None
    reference: ReferenceBackend | None = None
    runs: Float64Runs | None = None

    def rounded(self, bits: int, seed: int, formula: Formula) -> torch.Tensor | None:
        """Return the elements if each intermediate result is rounded at random to so many bits."""
        if self.runs is not None and self.key[0] == "gradient":
            self.runs.written(self.wider)  # In a run of its own, whose results are not rounded.
        # The math backend computes attention from products and a softmax, so each of their results is rounded.
        with sdpa_kernel(SDPBackend.MATH), RandomRounding(bits, seed, formula):
            return self.answer(self.wider.sources, self.wider.cotangents, ("rounded", bits, seed, formula))

    def answer(
        self, sources: Mapping[str, Any], cotangents: Mapping[int, Any], run: tuple[object, ...] = ()
    ) -> torch.Tensor | None:
        """Return the elements in float64 for these data; ``None`` if there is no such tensor of that shape.

        Args:
            sources: Data of the placeholders.
            cotangents: Gradients of the outputs.
            run: What these data are, in values that tell equal runs; empty if the run is not shared.
        """
        live = self.wider._replace(sources=sources, cotangents=cotangents)
        found = None
        if self.runs is not None and run:
            found = picked(self.runs.trace(live, run, has_backward=self.key[0] == "gradient"), self.key)
        if found is None:
            # A run for all has no gradient of a body's only output, nor two of a tensor that stands at two steps.
            found = wanted(live, self.key, self.reference)
        if found is None or self.chosen is None:
            return None if found is None else wide(found)
        flat = found.reshape(-1)
        is_there = self.chosen.numel() == 0 or int(self.chosen.max()) < flat.numel()
        return wide(flat[self.chosen]) if is_there else None


def chosen(bad: torch.Tensor) -> torch.Tensor:
    """Return the positions of the misaligned elements of a tensor and of some others, in row-major order.

    The number is limited because the measures in float64 hold sixteen copies of each element.
    """
    flat = bad.reshape(-1)
    every = -(-flat.numel() // _OTHERS) if flat.numel() else 1
    flat = flat.clone()
    flat[::every] = True
    return flat.nonzero().reshape(-1)


def wanted(live: Live, key: tuple[str, GradientKey], reference: ReferenceBackend | None = None) -> torch.Tensor | None:
    """Return a tensor of a program on the reference, ``None`` if it has none; values and states as after the run."""
    has_backward = key[0] == "gradient"
    # A gradient belongs to the value as it was at its step, whatever is written to it later.
    copied = (key[1],) if has_backward and isinstance(key[1], int) else ()
    return picked(ran(live, copied, reference or TorchBackend(), has_backward=has_backward), key)


def ran(live: Live, copied: Collection[int], backend: ReferenceBackend, *, has_backward: bool) -> Trace:
    """Return a run of a program; of one that fails there is no backward pass."""
    trace = backend.run(live.program, live.sources, copied=copied)
    if has_backward and trace.failure is None:
        backend.backward(live.program, trace, live.cotangents)
    return trace


def picked(trace: Trace, key: tuple[str, GradientKey]) -> torch.Tensor | None:
    """Return a tensor of a run, ``None`` if it has none."""
    if trace.failure is not None:
        return None
    if key[0] == "state":
        found = trace.values[key[1][0]].state_dict().get(key[1][1]) if isinstance(key[1], tuple) else None
    elif key[0] == "value":
        found = observed(trace.values[key[1]]).data if isinstance(key[1], int) else None
    else:
        found = trace.gradients.get(key[1])
    return found if isinstance(found, torch.Tensor) else None


def distance(side: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Return ``|side - truth|``: 0 where both are NaN or the same infinity, infinite where only one is.

    Complex numbers with an infinite part are compared part by part.
    """
    same = equal_or_nan(side, truth)
    apart = (side - truth).abs()
    found = torch.where(same, 0.0, torch.where(torch.isfinite(apart), apart, torch.inf))
    if side.is_complex() and truth.is_complex() and has_any(torch.isinf(found)):
        parts = distance(torch.view_as_real(side.contiguous()), torch.view_as_real(truth.contiguous()))
        found = torch.where(same, 0.0, torch.hypot(parts[..., 0], parts[..., 1]))
    return found
