"""One rank of a group that runs OneFlow's global tensors. All ranks execute the same steps at the same time.

Every leaf is global itself, so that its gradient is global too. (The gradient of a local tensor through ``to_global``
is the part of one rank.) A value is read as a whole, by ``to_global`` with ``broadcast``: every rank must read it.

Source: oneflow 0.9.0; its collectives on the CPU take neither float16 nor bfloat16, so that these are read as float32.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.host.frameworks.limitations import Limitation, reported_limitation
from ci_autotest.host.frameworks.oneflow import COLOUR, OneFlow
from ci_autotest.host.frameworks.protocol import LackingError
from ci_autotest.program.distribution import PARTIAL, REPLICATE, dimension_of, shard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import TensorSpec

#: How OneFlow 0.9 says that an operator does not take global tensors, or not how they lie, in its own spelling. What it
#: says of tensors of both kinds in one call is not here: then an operator before has lost the ranks.
_REFUSALS: Final = (
    Limitation(RuntimeError, r"\w+ has no maching sbp"),
    Limitation(RuntimeError, r"The input sbp is not valid for an inplace operation"),
    Limitation(RuntimeError, r"[\w.]+(?:\(\))? only support local tensor"),
    Limitation(RuntimeError, r"\w+ only accept local tensors as input"),
    Limitation(RuntimeError, r"tensor\.to\(other\) can only be called when tensor and other are local tensors"),
    Limitation(RuntimeError, r"Global tensor has no \w+ method"),
    Limitation(RuntimeError, r"Only local tensors have 'device'"),
)
#: What stands before some of these words.
_HEAD: Final = re.compile(r"^(?:Error: )?(?:RuntimeError : )?")


class GlobalOneFlow(OneFlow):
    """Execute with OneFlow on tensors that lie on all ranks.

    Args:
        module: ``oneflow``.
        device: ``cpu``.
    """

    #: Reading a value is a collective.
    gathers = True

    def __init__(self, module: str, device: str) -> None:
        super().__init__(module, device)
        flow = self._module
        self._rank = flow.env.get_rank()
        self._placement = flow.placement(device, list(range(flow.env.get_world_size())))
        self._everywhere = [flow.sbp.broadcast]
        self._narrow = (flow.float16, flow.bfloat16)
        # A rank that waits for the others polls for them: it needs a processor of its own.
        self.polls = False

    def shares(self, spec: TensorSpec) -> bool:  # noqa: ARG002 - a part of a tensor never does
        """Whether ``tensor`` shares an array's memory."""
        return False

    def _leaf(self, tensor: Any, spec: TensorSpec) -> Any:
        placement = spec.distribution.placements[0] if spec.distribution is not None else REPLICATE
        with self._module.no_grad():
            found = self._spread(tensor, placement).detach()
        return found.requires_grad_() if spec.requires_grad else found

    def _spread(self, tensor: Any, placement: str) -> Any:
        """Return a local tensor, of which every rank has the whole, as a global one."""
        flow, dtype = self._module, tensor.dtype
        if placement == PARTIAL and tensor.nelement():
            tensor = flow.from_numpy(self._summand(self._readable(tensor).numpy()))
        elif not tensor.nelement():
            # An empty tensor over memory of NumPy ends the process; one of OneFlow's own does not.
            tensor = flow.zeros(tuple(tensor.shape), dtype=dtype)
        found = self._readable(tensor)
        if placement == PARTIAL:
            found = found.to_global(self._placement, [flow.sbp.partial_sum])
        else:
            found = found.to_global(self._placement, self._everywhere)
            cut = dimension_of(placement)
            found = found if cut is None else found.to_global(self._placement, [flow.sbp.split(cut)])
        return found if found.dtype == dtype else found.to(dtype)

    def _readable(self, tensor: Any) -> Any:
        return tensor.to(self._module.float32) if tensor.dtype in self._narrow else tensor

    def _summand(self, whole: np.ndarray) -> np.ndarray:
        """Return this rank's summand: 2x, -x, and nothing on every further rank; x alone where 2x is not finite."""
        nothing = np.negative(np.zeros_like(whole)) if whole.dtype.kind == "f" else np.zeros_like(whole)
        if self._rank > 1:
            return nothing
        with np.errstate(over="ignore"):
            double = whole + whole
        can_split = np.isfinite(double) & (whole != 0)
        if self._rank == 0:
            return np.where(can_split, double, whole)
        return np.where(can_split, np.negative(whole), nothing)

    def begin_read(self, tensor: Any) -> np.ndarray:
        """Gather a tensor, and start to copy it into NumPy's memory; float16 and bfloat16 as float32."""
        value = self._readable(tensor.detach())
        if value.is_global and value.nelement():
            value = value.to_global(self._placement, self._everywhere).to_local()
        elif value.is_global:
            return np.empty(tuple(value.shape), value.to_local().numpy().dtype)
        return super().begin_read(value)

    def end_read(self, tensor: Any, memory: np.ndarray) -> np.ndarray:
        """Return a tensor's elements in C order, from the memory that it was copied into."""
        if tensor.dtype == self._module.float16:
            return memory.astype(np.float16)
        return super().end_read(tensor, memory)

    def placement(self, tensor: Any) -> str:
        """Return how a tensor lies on the ranks; empty if it is local, or lies as no program can say."""
        if not tensor.is_global or len(tensor.sbp) != 1:
            return ""
        flow, sbp = self._module, tensor.sbp[0]
        if sbp == flow.sbp.broadcast:
            return REPLICATE
        if sbp == flow.sbp.partial_sum:
            return PARTIAL
        return next((shard(cut) for cut in range(tensor.ndim) if sbp == flow.sbp.split(cut)), "")

    def function(self, target: str) -> Callable[..., Any]:
        """Return the function that a target names. What it makes from no other tensor is the same on all ranks."""
        found = super().function(target)
        if isinstance(found, type) and hasattr(found, "named_parameters"):
            return lambda *args, **kwargs: self._replicated(found(*args, **kwargs))
        return lambda *args, **kwargs: self._on_all_ranks(found(*args, **kwargs))

    def _replicated(self, layer: Any) -> Any:
        """Return a module whose parameters and buffers lie on all ranks; of half precision they are sent as float32."""
        narrow = next((one.dtype for one in layer.parameters() if one.dtype in self._narrow), None)
        if narrow is None:
            return layer.to_global(self._placement, self._everywhere)
        return layer.to(self._module.float32).to_global(self._placement, self._everywhere).to(narrow)

    def _on_all_ranks(self, value: Any) -> Any:
        if self.is_tensor(value) and not value.is_global:
            if self._module._oneflow_internal.lazy_mode.is_enabled():  # noqa: SLF001 - no public function says so
                message = "graph on ranks of a body that makes a tensor from no other one"
                raise LackingError(message)
            found = self._spread(value.detach(), REPLICATE)
            return found.requires_grad_() if value.requires_grad else found
        return value

    def lacking(self, error: BaseException) -> str:
        """Return the feature that OneFlow reports as missing: also that an operator does not take how inputs lie."""
        text = _HEAD.sub("", COLOUR.sub("", str(error)), count=1)
        return super().lacking(error) or reported_limitation(error, text, _REFUSALS, self._folder)

    def gradients(self, outputs: Sequence[Any], weights: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the gradients; what goes in lies as its output, or on all ranks where that is a sum."""
        flow = self._module
        lying = [
            weight
            if flow.sbp.partial_sum in output.sbp or not output.nelement()
            else weight.to_global(self._placement, output.sbp)
            for output, weight in zip(outputs, weights, strict=True)
        ]
        return super().gradients(outputs, lying, inputs)
