"""Backward passes of a body: the calls that run one, and the gradients that are compared afterwards.

If a body runs a backward pass of its own, there is no automatic one, because a second pass over the same graph raises.
The exception is ``torch.autograd.grad`` with a kept graph. Instead, the last steps of the program read the ``.grad`` of
every leaf, and these values are compared like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.program.backward_passes import PASSES
from ci_autotest.program.ir import CALL_FUNCTION, Ref
from ci_autotest.record.values import RecordedTensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ci_autotest.program.ir import Step
    from ci_autotest.record.recorder import Recorder

#: Options of ``torch.autograd.grad`` that keep the graph.
_KEEPING: Final = ("retain_graph", "create_graph")


def ends_the_graph(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return true if a call frees the graph, or leaves gradients to which an automatic backward pass would add."""
    if target == "torch.autograd.grad":
        return not any(args[PASSES[target] :][: len(_KEEPING)]) and not any(kwargs.get(name) for name in _KEEPING)
    return target in PASSES


def unread(recorder: Recorder) -> Iterator[RecordedTensor]:
    """Yield the leaves and module parameters that require grad, except leaves whose ``.grad`` the body has read."""
    read = {step.args[0] for step in recorder.steps if _reads_grad(step)}
    for index, facts in enumerate(list(recorder.trace.facts)):
        if facts is not None and facts[:2] == (True, True) and Ref(index) not in read:
            yield RecordedTensor(recorder.trace.values[index], Ref(index), recorder)
    for module in recorder.modules:
        for name, parameter in module.real.named_parameters():
            if parameter.requires_grad and isinstance(parameter, torch.Tensor):
                yield module.get_parameter(name)


def _reads_grad(step: Step) -> bool:
    return step.op == CALL_FUNCTION and step.target == "builtins.getattr" and step.args[1:] == ("grad",)
