"""Export a body to ONNX with ``torch.onnx.export``; if the exporter refuses, give its reason in one sentence."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import UnsupportedError, error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

#: What the exporters append to a reason: requests to the user, and the place of the value in their own graph.
_APPENDED: Final = re.compile(r"\s*(?:Please |\[Caused by |⬆|\(node defined in ).*", re.DOTALL)


class Body(torch.nn.Module):
    """A body and its modules as one module, so that the exporter treats their parameters as the model's.

    Args:
        function: The body as a function of its modules and tensors.
        arguments: Its arguments in order; ``forward`` replaces the tensors by its own.
        kept: Positions of the outputs that are tensors.
    """

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any], kept: Sequence[int]) -> None:
        super().__init__()
        self._function = function
        self._arguments = [None if isinstance(value, torch.Tensor) else value for value in arguments]
        self._places = [i for i, value in enumerate(arguments) if isinstance(value, torch.Tensor)]
        self._kept = kept
        modules = [value for value in arguments if isinstance(value, torch.nn.Module)]
        for number, module in enumerate(modules):
            self.add_module(f"module_{number}", module)
        # The exporter only looks at the outermost module. Without a module in training, a body is exported for
        # inference.
        self.training = any(module.training for module in modules)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the body's outputs that are tensors."""
        arguments = list(self._arguments)
        for place, tensor in zip(self._places, tensors, strict=True):
            arguments[place] = tensor
        outputs = self._function(*arguments)
        return tuple(outputs[i] for i in self._kept)


def exported(body: Body, inputs: Mapping[str, torch.Tensor], options: Mapping[str, Any], called: str) -> bytes:
    """Return a body as an ONNX model.

    Args:
        body: The body.
        inputs: Its tensors in order, by their names in the model; the exporter may write to them.
        options: ``dynamo`` and ``opset_version`` of ``torch.onnx.export``.
        called: The operators that the body calls, in case the exporter's reason names none.

    Raises:
        UnsupportedError: The exporter cannot translate it.
    """
    mode = torch.onnx.TrainingMode
    file: Any = io.BytesIO()  # The exporters also accept file objects, although their annotations do not say so.
    try:
        with _quiet():
            program = torch.onnx.export(
                body, tuple(inputs.values()), None if options["dynamo"] else file, input_names=list(inputs),
                training=mode.PRESERVE if body.training else mode.EVAL, verbose=False, **options,
            )  # fmt: skip
            if program is not None:
                program.save(file)
    except FOREIGN as error:
        pass_interrupt(error)
        message = f"torch.onnx.export: {reason(error, called)}"
        raise UnsupportedError(message) from error
    data: bytes = file.getvalue()
    return data


def reason(error: BaseException, called: str) -> str:
    """Return why an exporter refused, in one line that names an operator.

    Args:
        error: The exporter's error. Its innermost cause is the most precise.
        called: The operators that the body calls.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    text = _APPENDED.sub("", error_text(error).strip()).strip()
    first = (text.splitlines() or [""])[0].rstrip(".")
    if isinstance(error, torch.onnx.OnnxExporterError) and first:
        return first  # It names the operator itself.
    return f"{type(error).__name__}{f': {first}' if first else ''} (the body calls {called})"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters' logs and warnings, because their errors contain what they refuse."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
