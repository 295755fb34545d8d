"""Check whether the reference's gradient formula is the derivative of its forward pass.

The float64 oracle computes gradients by the reference's formulas. A wrong formula is wrong in float64, too, and only
finite differences of the forward pass show it. They are taken along one random direction of all inputs and for one
random projection of all outputs, so the Jacobian has one element whatever the sizes are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.program.ir import output_refs

if TYPE_CHECKING:
    from ci_autotest.alignment.single_step import Live

#: Most elements of all inputs together for which the check runs.
_ELEMENTS: Final = 4096


def third_opinion(live: Live) -> str:
    """Return the result of PyTorch's ``gradcheck`` for a program in float64, ``""`` if it cannot run.

    Args:
        live: In float64, with inputs that require grad.

    Source:
        ``torch.autograd.gradcheck`` (PyTorch 2.13), of the program along one direction. Its own ``fast_mode`` projects
        in the same way, but on failure it computes both full Jacobians for a message that nobody reads here.
    """
    keys = [step.target for step in live.program.body if (spec := step.spec) is not None and spec.requires_grad]
    leaves = {key: live.sources[key].detach() for key in keys}
    is_small = sum(leaf.numel() for leaf in leaves.values()) <= _ELEMENTS
    if not leaves or not is_small or not all(_is_smooth(leaf) for leaf in leaves.values()):
        return ""
    directions = _directions(leaves)

    def along(distance: torch.Tensor) -> torch.Tensor:
        return _projected(live, {key: leaf + distance * directions[key] for key, leaf in leaves.items()})

    origin = torch.zeros((), dtype=torch.float64, requires_grad=True)
    try:
        agrees = torch.autograd.gradcheck(
            along, (origin,), raise_exception=False, check_undefined_grad=False, atol=1e-4
        )  # fmt: skip
    except Exception:  # noqa: BLE001 - a failing check must not lose the finding
        return ""
    if agrees:
        return "; gradcheck confirms the float64 gradient"
    return "; gradcheck does not confirm the float64 gradient: the input is at a kink, or the formula is no derivative"


def _is_smooth(leaf: torch.Tensor) -> bool:
    return leaf.dtype is torch.float64 and bool(torch.isfinite(leaf).all())


def _directions(leaves: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return one direction of length 1 over all leaves, in their shapes."""
    # Seeded, so that a finding has the same sentence in every run.
    generator = torch.Generator().manual_seed(0)
    drawn = {key: torch.randn(leaf.shape, generator=generator, dtype=torch.float64) for key, leaf in leaves.items()}
    length = math.sqrt(sum(float(part.square().sum()) for part in drawn.values()))
    return {key: part / max(length, 1e-300) for key, part in drawn.items()}


def _projected(live: Live, leaves: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return a weighted sum of all outputs, 0-dim; the weights are the same in each call."""
    trace = TorchBackend().run(live.program, {**live.sources, **leaves})
    found = [trace.values[ref.index] for ref in output_refs(live.program)]
    generator = torch.Generator().manual_seed(1)
    total = torch.zeros((), dtype=torch.float64)
    for value in found:
        if isinstance(value, torch.Tensor) and value.requires_grad:
            flat = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
            weights = torch.randn(flat.shape, generator=generator, dtype=torch.float64)
            total = total + (flat * weights).sum() / max(float(weights.norm()), 1e-300)
    return total
