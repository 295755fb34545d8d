"""Float64 programs: convert a program and its data to float64 without changing what it means.

Inputs, modules and dtype arguments become float64. Defaults that an operator takes from the dtype are written out
first, so that they stay those of the original dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.backends.input_copies import laid_out
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.program.edit import mapped_step, renumbered_step
from ci_autotest.program.ir import CALL_METHOD, DType, Program, Ref, Step, TensorSpec
from ci_autotest.program.targets import last_name
from ci_autotest.values.dtypes import WIDE

if TYPE_CHECKING:
    from ci_autotest.alignment.single_step import Live
    from ci_autotest.program.ir import Argument

#: Defaults that an operator takes from the dtype: the argument, its position, and the field of ``torch.finfo``.
_TAKEN: Final = {
    "rms_norm": (("eps", 3, "eps"),),
    "RMSNorm": (("eps", 1, "eps"),),
    "nan_to_num": (("posinf", 2, "max"), ("neginf", 3, "min")),
}


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
