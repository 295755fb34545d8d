"""Why an exporter refused, in one line that names an operator; the rest of the backend needs onnxruntime (end_to_end)."""

from __future__ import annotations

import pytest
import torch
from torch.onnx.errors import OnnxExporterError, UnsupportedOperatorError

from ci_autotest.backends.compilers.export import ExportBackend
from ci_autotest.backends.compilers.exported_body import ExportedBody
from ci_autotest.backends.compilers.onnx import reason
from ci_autotest.backends.compilers.user_exporter import UserExporter
from ci_autotest.errors import UnavailableError


def chained():
    """Return an error as the newer exporter raises it: the innermost says what is missing."""
    outer = RuntimeError("Failed to convert the exported program to an ONNX model.\nThis is step 3/3")
    outer.__cause__ = ValueError("No ONNX function found for aten.erfinv. Please file a report")
    return outer


REASONS = {
    "an operator": (
        UnsupportedOperatorError("aten::erfinv", 20, None),
        "Exporting the operator 'aten::erfinv' to ONNX opset version 20 is not supported",
    ),
    "a request after it": (
        OnnxExporterError("Unsupported: ONNX export of operator Sort, Out parameter. Please feel free to ask.\n  graph"),
        "Unsupported: ONNX export of operator Sort, Out parameter",
    ),
    "no operator in it": (IndexError("list index out of range"), "IndexError: list index out of range (the body calls torch.roll)"),
    "nothing in it": (AssertionError(), "AssertionError (the body calls torch.roll)"),
    "its cause": (chained(), "ValueError: No ONNX function found for aten.erfinv (the body calls torch.roll)"),
}  # fmt: skip


@pytest.mark.parametrize(("error", "told"), REASONS.values(), ids=REASONS)
def test_reason__of_an_exporter__is_one_line_that_names_an_operator(error, told):
    assert reason(error, "torch.roll") == told


def test_body__modules_and_tensors__are_put_where_the_function_takes_them():
    module = torch.nn.Linear(2, 3).train()
    body = ExportedBody(lambda x, layer, y: (layer(x), "no tensor", y), [torch.ones(2), module, torch.zeros(1)], [0, 2])
    found = body(torch.full((2,), 2.0), torch.full((1,), 5.0))
    assert torch.equal(found[0], module(torch.full((2,), 2.0)))
    assert found[1].item() == 5
    assert (body.training, len(list(body.parameters()))) == (True, 2)


def test_backend__on_another_device__is_not_available():
    with pytest.raises(UnavailableError, match="asks for device 'cuda': it runs on cpu"):
        ExportBackend(UserExporter(str, "str"), "cuda")
