"""Candidates that are an export of the body: to ONNX Runtime, or by torch.export to a callable of the user's."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


class BodyToExport(torch.nn.Module):
    """The body as a module of tensors; an exported program returns tensors only, so other outputs stay torch's."""

    def __init__(self, function: Callable[..., Any], given: dict[str, Any]) -> None:
        super().__init__()
        outputs = list(function(*given.values()))
        self.function, self.given = function, given
        self.kept = [i for i, value in enumerate(outputs) if isinstance(value, torch.Tensor)]
        for name, value in given.items():
            if isinstance(value, torch.nn.Module):
                self.add_module(name, value)
        self.training = any(module.training for module in self.children())

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the tensors among the outputs."""
        names = iter(tensors)
        given = [next(names) if isinstance(value, torch.Tensor) else value for value in self.given.values()]
        outputs = self.function(*given)
        return tuple(outputs[i] for i in self.kept)


def tensors_in(given: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return copies of the tensors among what the body is given."""
    return {name: value.detach().clone() for name, value in given.items() if isinstance(value, torch.Tensor)}


def through_onnx(function: Callable[..., Any], inputs: Callable[[], dict[str, Any]], options: dict[str, Any]) -> Any:
    """Export the body to ONNX, and return what ONNX Runtime makes of it."""
    import onnxruntime

    outputs = list(function(*inputs().values()))
    body, tensors = BodyToExport(function, inputs()), tensors_in(inputs())
    file: Any = io.BytesIO()
    arrays = {name: value.clone(memory_format=torch.contiguous_format).numpy() for name, value in tensors.items()}
    mode = torch.onnx.TrainingMode.PRESERVE if body.training else torch.onnx.TrainingMode.EVAL
    target = None if options["dynamo"] else file
    program = torch.onnx.export(
        body, tuple(tensors.values()), target, input_names=list(tensors), training=mode, **options
    )
    if program is not None:
        program.save(file)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    found = session.run(None, {item.name: arrays[item.name] for item in session.get_inputs()})
    for place, array in zip(body.kept, found):
        outputs[place] = torch.from_numpy(array)
    return outputs


def through_export(
    function: Callable[..., Any], inputs: Callable[[], dict[str, Any]], made: Callable[..., Any], form: str
) -> Any:
    """Export the body, and return what a callable makes of it.

    Args:
        function: The body.
        inputs: Returns what it takes.
        made: Makes the callable, of the body and its inputs if `form` is "module", or of the exported program.
        form: Also whether the program is exported for all sizes: "dynamic", or "static".
    """
    outputs = list(function(*inputs().values()))
    body, tensors = BodyToExport(function, inputs()), tuple(tensors_in(inputs()).values())
    before = [tensor.clone() for tensor in tensors]
    with torch.no_grad():
        if form == "module":
            found = made(body, tensors)(*tensors)
        else:
            sizes = tuple(dict.fromkeys(range(each.dim()), torch.export.Dim.AUTO) for each in tensors)
            shapes: Any = {"dynamic_shapes": (sizes,)} if form == "dynamic" else {}
            found = made(torch.export.export(body, tensors, strict=False, **shapes))(*tensors)
    found = list(found.values()) if isinstance(found, dict) else found
    found = list(found) if isinstance(found, (tuple, list)) else [found]
    assert len(found) == len(body.kept), f"the callable returns {len(found)} values, the body {len(body.kept)}"
    torch.testing.assert_close(list(tensors), before, rtol=0, atol=0, equal_nan=True)  # it writes to no input
    for place, value in zip(body.kept, found):
        outputs[place] = value.detach()
    return outputs
