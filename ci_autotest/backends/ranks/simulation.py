"""A group whose ranks are all simulated in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.distributed.device_mesh import DeviceMesh

from ci_autotest.backends.input_copies import CPU
from ci_autotest.backends.ranks.group import GroupTrace
from ci_autotest.backends.ranks.local_tensor import (
    begin_simulation,
    by_rank,
    joined,
    numbers_by_rank,
    seed_ranks,
    simulated,
)
from ci_autotest.backends.ranks.parts import parts_of
from ci_autotest.backends.ranks.rank_run import RankRun, fault_of
from ci_autotest.backends.ranks.ranks import RankError, numbered
from ci_autotest.backends.ranks.refusals import refusal_of_ranks
from ci_autotest.backends.ranks.wholes import (
    Gathered,
    as_plain,
    disagreement,
    gathered,
    module_of,
    plain_value,
)
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.trace import Failure, Raised, RankFault
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import error_text
from ci_autotest.program.ir import PLACEHOLDER, Program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from ci_autotest.backends.torch_steps import TorchSteps
    from ci_autotest.backends.trace import GradientKey
    from ci_autotest.program.distribution import Distribution

_Tensor: Final = torch.Tensor
_Module: Final = torch.nn.Module


class SimulatedRanks:
    """All ranks of a mesh, in this process.

    Args:
        mesh: Sizes of the mesh.

    Raises:
        UnavailableError: This PyTorch cannot simulate ranks.
    """

    def __init__(self, mesh: tuple[int, ...]) -> None:
        begin_simulation()
        self.sizes, self.device = mesh, CPU
        self.count = torch.Size(mesh).numel()
        self.mesh = DeviceMesh("cpu", torch.arange(self.count).view(mesh))
        self._mode: Any = None

    def own_part(self, tensor: torch.Tensor, distribution: Distribution) -> torch.Tensor:
        """Return the parts of all ranks as one simulated tensor."""
        parts = by_rank(tensor, self.count)
        if parts[0] is not tensor:  # The setup ran on plain tensors, and a step may have made one of each rank.
            return joined([parts_of(part, distribution)[rank] for rank, part in enumerate(parts)])
        return joined(parts_of(tensor, distribution))

    def active(self) -> AbstractContextManager[object]:
        """Return the context in which operators run on all ranks."""
        self._mode = simulated(self.count)
        found: AbstractContextManager[object] = self._mode
        return found

    def seed(self, number: int) -> None:
        """Seed the generator of each rank."""
        if self._mode is not None:
            seed_ranks(self._mode, torch.Generator().manual_seed(number).get_state())

    def shapes(self, part: torch.Tensor) -> dict[int, tuple[int, ...]]:
        """Return the shape of each rank's part."""
        return {rank: tuple(each.shape) for rank, each in enumerate(by_rank(part, self.count))}

    def is_of_kernel(self, error: BaseException) -> bool:
        """Whether an operator on a rank's part raised an error, and not DTensor itself."""
        return self._mode is not None and any(error is each for each in self._mode.raised)

    def is_mixed(self) -> bool:
        """Whether the last operator that DTensor got took a plain tensor too."""
        return self._mode is not None and self._mode.is_mixed


class Simulation:
    """A group of simulated ranks.

    Args:
        mesh: Sizes of the mesh.
        steps: The meaning of steps in torch.

    Raises:
        UnavailableError: This PyTorch cannot simulate ranks.
    """

    def __init__(self, mesh: tuple[int, ...], steps: TorchSteps) -> None:
        self._ranks = SimulatedRanks(mesh)
        self._steps = steps

    def forward(
        self, program: Program, sources: Mapping[str, Any], on_step: Callable[[int], None] | None, *, snapshots: bool
    ) -> GroupTrace:
        """Run a program forward, and gather its values."""
        seen: dict[int, Any] = {}

        def gather(index: int, value: Any) -> None:
            whole = self._gathered(value)
            # The whole of a replicated value is the memory of its part, which later steps may write to.
            seen[index] = whole._replace(whole=whole.whole.clone()) if isinstance(whole, Gathered) else whole

        run = RankRun(self._ranks, self._steps, on_step, gather if snapshots else None)
        live = run.forward(program, sources, keeps_edges=snapshots)
        trace = GroupTrace(len(program.steps), snapshots=snapshots)
        trace.live, trace.run, trace.failure = live, run, live.failure
        self._take_values(program, trace)
        for index, value in seen.items():
            trace.observations[index] = observed(self._plain(value, index, trace))
        trace.rank_faults = [*run.faults, *trace.rank_faults]
        return trace

    def close(self) -> None:
        """Do nothing: there are no processes."""

    def backward(self, program: Program, trace: GroupTrace, cotangents: Mapping[int, Any]) -> None:
        """Run the backward pass of a trace, and gather the gradients."""
        live, run = trace.live, trace.run
        before = len(run.faults)
        run.backward(program, live, cotangents)
        trace.backward_failure, trace.backward_lacking = live.backward_failure, live.backward_lacking
        trace.rank_faults = [*trace.rank_faults, *run.faults[before:]]
        found: dict[Any, Any] = {}
        with self._ranks.active():
            for key, gradient in live.gradients.items():
                is_leaf = not isinstance(key, int) or program.steps[key].op == PLACEHOLDER
                if not is_leaf and not trace.observations:
                    continue  # Only an examination compares the gradients of intermediates.
                try:
                    found[key] = None if gradient is None else gathered(gradient, self._ranks)
                except RankError as error:
                    trace.rank_faults = [
                        *trace.rank_faults,
                        fault_of(error, key if isinstance(key, int) else key[0], key),
                    ]
                except FOREIGN as error:
                    pass_interrupt(error)
                    trace.backward_failure = Raised(type(error).__name__, error_text(error))
                    trace.backward_lacking = refusal_of_ranks(error)
                    return
        trace.gradients = {
            key: None if each is None else self._plain(each, key if isinstance(key, int) else key[0], trace, key)
            for key, each in found.items()
        }

    def _take_values(self, program: Program, trace: GroupTrace) -> None:
        """Gather the values as they are at the end of the run."""
        found = {}
        with self._ranks.active():
            for index, value in enumerate(trace.live.values):
                try:
                    found[index] = self._gathered(value)
                except RankError as error:
                    trace.rank_faults = [*trace.rank_faults, fault_of(error, index)]
                    trace.failure = _failure(error, index)
                    break
                except FOREIGN as error:
                    pass_interrupt(error)
                    trace.failure = _failure(error, index)
                    break
        last = trace.failure.step if trace.failure is not None else len(program.steps)
        for index in range(last):
            trace.values[index] = self._plain(found[index], index, trace)
        del trace.values[last:], trace.facts[last:]

    def _gathered(self, value: Any) -> Any:
        """Return a value with its tensors gathered; called inside of the ranks' context."""
        if isinstance(value, _Tensor):
            return gathered(value, self._ranks)
        if isinstance(value, _Module):
            return {name: gathered(each, self._ranks) for name, each in value.state_dict().items()}
        return value

    def _plain(self, value: Any, index: int, trace: GroupTrace, key: GradientKey | None = None) -> Any:
        """Return a gathered value as one side's value; note where the ranks disagree."""
        if isinstance(value, Gathered):
            if key is None and value.distribution is not None:
                trace.distributions[index] = value.distribution
            wholes = by_rank(value.whole, self._ranks.count)
            fault = disagreement(wholes)
            if fault is not None and not any((one.step, one.key) == (index, key) for one in trace.rank_faults):
                trace.rank_faults = [
                    *trace.rank_faults,
                    RankFault(index, key, is_call=False, seen=fault[0], expected=fault[1]),
                ]
            return as_plain(wholes[0], requires_grad=value.requires_grad, is_leaf=value.is_leaf)
        if isinstance(value, dict):
            return module_of({name: self._plain(each, index, trace) for name, each in value.items()})
        numbers = numbers_by_rank(value)
        if numbers is not None:
            others = [rank for rank, number in enumerate(numbers) if number != numbers[0]]
            seen = f"{numbered(others)} read {numbers[others[0]]}, the others {numbers[0]}"
            trace.rank_faults = [
                *trace.rank_faults,
                RankFault(index, key, is_call=False, seen=seen, expected="one number on all ranks"),
            ]
            return numbers[0]
        return plain_value(value)


def _failure(error: BaseException, index: int) -> Failure:
    return Failure(index, type(error).__name__, error_text(error), refusal_of_ranks(error))
