"""What the slices of a batch give, held against the whole batch: how they are joined, and whether rows are mixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.backends.ranks.training.batch_split import split_dimension
from ci_autotest.backends.ranks.training.joins import SAME, Join, is_close, joins_of, slices_join, total
from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.program.expectations import has_expectation
from ci_autotest.program.ir import BUFFER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ci_autotest.backends.trace import GradientKey, Trace
    from ci_autotest.program.ir import Program

_Tensor: Final = torch.Tensor
_Module: Final = torch.nn.Module


class Decisions(NamedTuple):
    """What a run of the slices found out, for other runs of the same body, for example in float64.

    Attributes:
        joins: How the value of a step is joined, by its position in the body.
        is_mixed: Whether rows are not independent.
        shares_buffers: Whether ranks get the buffers of the first one before each forward pass.
        sized: Steps that hold the number of rows as a size, by their position in the body.
    """

    joins: Mapping[int, Join | None]
    is_mixed: bool
    shares_buffers: bool
    sized: tuple[int, ...] = ()


class SliceComparison:
    """What a run of the slices gives, held against the whole batch.

    Args:
        program: The program of the whole batch.
        whole: Its run, with snapshots and gradients.
        shares: The part of the batch that each slice has.
        prefer: Which join a value has that fits several.
        decisions: What an earlier run found out; ``None`` to find it out.
        shares_buffers: Whether ranks get the buffers of the first one before each forward pass.

    Attributes:
        gradients: Gradients of leaves and parameters over all slices, by key.
        is_ambiguous: Whether a value could also be a sum, so that another preference may fit better.
        draws: The step that draws random numbers; empty for none.
    """

    def __init__(
        self, program: Program, whole: Trace, shares: Sequence[float], *,
        prefer: str = "mean", decisions: Decisions | None = None, shares_buffers: bool = True,
    ) -> None:  # fmt: skip
        self._program, self._whole, self._shares, self._prefer = program, whole, shares, prefer
        self._earlier, self._shares_buffers = decisions, shares_buffers
        self._found: dict[int, Join | None] = {}
        self._mixes = self._apart = ""
        self.gradients: dict[GradientKey, torch.Tensor | None] = {}
        self.is_ambiguous = False
        self.draws = ""

    @property
    def decisions(self) -> Decisions:
        """What this run has found out."""
        return self._earlier or Decisions(self._found, bool(self._mixes), self._shares_buffers)

    def why_not_held(self) -> Unsupported | None:
        """Return why rows that are not independent can be held against nothing."""
        if not self._mixes:
            return None
        why = f"{self.draws} draws random numbers, of which each rank has its own" if self.draws else self._apart
        if not why and has_expectation(self._program.steps):
            why = "the test expects a value of the whole batch"
        said = f"rows are not independent: {self._mixes}, and {why}. Only whether the ranks agree is compared"
        return Unsupported(UnsupportedReason.BATCH, said) if why else None

    def join(self, index: int, parts: Sequence[torch.Tensor], whole: torch.Tensor) -> Join | None:
        """Return how a value is joined; ``None`` if it cannot be."""
        at = index - self._program.start
        if self._earlier is not None:
            return self._earlier.joins.get(at)
        joins = joins_of(parts, whole, self._shares)
        self.is_ambiguous |= Join("sum") in joins and len(joins) > 1
        if not joins:
            self._mix(index)
            self._found[at] = slices_join(parts, whole)
            if self._found[at] is None:
                self._apart = self._apart or f"{self._program.steps[index].name} of the slices cannot be joined"
        else:
            self._found[at] = Join("sum") if self._prefer == "sum" and Join("sum") in joins else joins[0]
        return self._found[at]

    def output(self, index: int, parts: Sequence[Any]) -> Join | None:
        """Return how an output is joined; ``None`` if it cannot be."""
        whole = self._whole.values[index]
        if isinstance(whole, _Tensor):
            return self.join(index, parts, whole)
        if any(part != whole for part in parts):
            self._mix(index)
            self._apart = self._apart or f"{self._program.steps[index].name} of the slices is no tensor"
        return SAME

    def _mix(self, index: int) -> None:
        step = self._program.steps[index]
        self._mixes = self._mixes or f"{step.name} of a slice is not that slice of {step.name} of the whole batch"

    def take_gradients(self, keys: Iterable[GradientKey], slices: Sequence[Sequence[Any]]) -> None:
        """Hold the gradients against those of the whole batch.

        Args:
            keys: Of leaves and parameters.
            slices: The values of each slice.
        """
        for key in keys:
            whole = self._whole.gradients.get(key)
            parts = [_gradient_of(values, key) for values in slices]
            self.gradients[key] = None
            if any(part is None for part in parts):
                continue
            index = key if isinstance(key, int) else key[0]
            spec = self._program.steps[index].spec
            dimension = split_dimension(spec) if spec is not None else None
            is_state = isinstance(key, tuple) or bool(spec and spec.state)
            given = [part for part in parts if part is not None]
            now = given[0] if is_state else torch.cat(given, dimension) if dimension is not None else total(given)
            self.gradients[key] = now
            if whole is not None and not is_close(now, whole):
                self._mix(index)

    def of_slices(self, slices: Sequence[Sequence[Any]]) -> frozenset[tuple[int, str]]:
        """Return the buffers whose values are those of a slice, by their definition."""
        found = set()
        for index, whole in enumerate(self._whole.values):
            if not isinstance(whole, _Module):
                continue
            parameters = dict(whole.named_parameters())
            for name, tensor in whole.state_dict().items():
                if any(not is_close(values[index].state_dict()[name], tensor) for values in slices):
                    if name in parameters:
                        self._mix(index)
                    found.add((index, name))
        for index, spec in self._program.inputs.items():
            if spec.state:
                whole = self._whole.values[index]
                if any(not is_close(values[index], whole) for values in slices):
                    if spec.state != BUFFER:
                        self._mix(index)
                    found.add((index, ""))
        return frozenset(found)


def _gradient_of(values: Sequence[Any], key: GradientKey) -> torch.Tensor | None:
    """Return the gradient that a leaf or parameter holds."""
    owner = values[key] if isinstance(key, int) else values[key[0]].get_parameter(key[1])
    found: torch.Tensor | None = owner.grad
    return found
