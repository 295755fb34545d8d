"""Programs as torch.fx graphs: six opcodes, the same bits, shapes, and a user's pass as a candidate."""

from __future__ import annotations

from typing import Any

import pytest
import torch as real
from torch import fx
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ci_autotest import random_tensor, torch
from ci_autotest.backends.fx import FxBackend
from ci_autotest.backends.fx_graph import modules_of, to_graph_module
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.errors import UnavailableError
from ci_autotest.program.ir import PLACEHOLDER, output_refs
from tests.engine import judged, record

BACKEND = TorchBackend()


def every_opcode() -> Any:
    module = torch.nn.Linear(3, 4)
    x = random_tensor(2, 2, 3)
    y = module(x).relu()
    return torch.softmax(y, dim=1) + module.bias


def statements() -> Any:
    x = random_tensor(2, 4, 4).clone()
    x[0] = 2.0
    x *= 3
    with torch.no_grad():
        y = x[:, 1:3] > 0
    values, indices = torch.max(x, 1)
    return torch.cat([x[..., :2].T, values.unsqueeze(0).expand(2, -1)]).to(torch.float64), indices, y


def random_steps() -> Any:
    return torch.nn.functional.dropout(random_tensor(2, 5, 5), 0.5), torch.nn.Dropout(0.3)(random_tensor(1, 9))


def numbers() -> Any:
    x = random_tensor(2, 3, 5)
    return x.reshape(len(x) * x.shape[1]) * float(x[0, 0]) if bool(x.sum() * 0 == 0) else x


def branches() -> Any:
    x = random_tensor(2, 3, 5)
    return x * 2 if bool(x.sum() * 0 == 0) else x


def graph_of(body: Any) -> tuple[Any, fx.GraphModule, Any]:
    attempt = record(body)
    program = attempt.program
    trace = BACKEND.run(program, attempt.sources)
    return attempt, to_graph_module(program, modules_of(program, trace.values), BACKEND.steps.constant), trace


def placed(attempt: Any) -> list[Any]:
    fresh = BACKEND.run(attempt.program, attempt.sources).values
    return [fresh[i].detach().requires_grad_(fresh[i].requires_grad) for i, step in enumerate(attempt.program.steps)
            if step.op == PLACEHOLDER and not step.in_setup]  # fmt: skip


def test_to_graph__every_kind_of_step__has_the_six_opcodes():
    _, graph, _ = graph_of(every_opcode)
    assert {node.op for node in graph.graph.nodes} == {
        "placeholder", "call_module", "call_method", "call_function", "get_attr", "output",
    }  # fmt: skip


@pytest.mark.parametrize("body", [every_opcode, statements, random_steps, numbers])
def test_to_graph_module__generated_code__gives_the_same_bits(body: Any):
    attempt, graph, trace = graph_of(body)
    graph.graph.lint()
    outputs = graph(*placed(attempt))
    expected = [trace.values[ref.index] for ref in output_refs(attempt.program)]
    assert all(
        real.equal(left, right) and left.dtype is right.dtype for left, right in zip(outputs, expected, strict=True)
    )
    assert len(outputs) == len(expected) > 0


@pytest.mark.parametrize("body", [every_opcode, statements, numbers])
def test_to_graph_module__dead_code_pass__keeps_what_writes(body: Any):
    attempt, graph, trace = graph_of(body)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    found = graph(*placed(attempt))
    assert real.equal(found[0], trace.values[output_refs(attempt.program)[0].index])


@pytest.mark.parametrize("body", [every_opcode, statements, random_steps])
def test_shape_prop__over_a_program__finds_the_references_shapes(body: Any):
    attempt, graph, trace = graph_of(body)
    ShapeProp(graph).propagate(*placed(attempt))
    found = next(node for node in graph.graph.nodes if node.op == "output").meta["tensor_meta"]
    expected = [tuple(trace.values[ref.index].shape) for ref in output_refs(attempt.program)]
    assert [tuple(meta.shape) for meta in found] == expected


def convolution_and_norm() -> Any:
    convolution, norm = torch.nn.Conv2d(2, 3, 3).eval(), torch.nn.BatchNorm2d(3).eval()
    return norm(convolution(random_tensor(4, 2, 2, 5, 5))).relu()


def fuse(module: fx.GraphModule) -> Any:
    """Fold each batch-norm into the convolution before it."""
    for node in list(module.graph.nodes):
        if node.op == "call_module" and isinstance(module.get_submodule(node.target), real.nn.BatchNorm2d):
            before = node.args[0]
            convolution, norm = module.get_submodule(before.target), module.get_submodule(node.target)
            module.add_module(before.target, fuse_conv_bn_eval(convolution, norm))
            node.replace_all_uses_with(before)
            module.graph.erase_node(node)
    module.recompile()
    return module


def wrong_fuse(module: fx.GraphModule) -> Any:
    """Fuse, and forget the bias."""
    fused = fuse(module)
    for part in fused.modules():
        if isinstance(part, real.nn.Conv2d):
            with real.no_grad():
                part.bias += 0.5
    return fused


def doubled_relu(module: fx.GraphModule) -> Any:
    """Put a leaky rectifier in the place of relu: right forward where the input is positive, wrong elsewhere."""
    for node in module.graph.nodes:
        if node.op == "call_method" and node.target == "relu":
            node.op, node.target, node.kwargs = "call_function", real.nn.functional.leaky_relu, {}
    module.recompile()
    return module


def wrong_exp(module: fx.GraphModule) -> Any:
    """Replace exp by its first terms: the shape is right, and no element is."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is real.exp:
            node.target = real.expm1
    module.recompile()
    return module


def size_alone() -> Any:
    return torch.exp(random_tensor(2, 3, 5)).size(0)


def sizes_read_and_nothing_returned() -> None:
    y = torch.exp(random_tensor(2, 3, 5))
    assert (y.size(0), y.dim()) == (3, 2)


def size_beside_an_equal_number() -> Any:
    x = random_tensor(3, 3, 4, 5)
    size, rank = torch.exp(x).size(0), x.dim()
    return size if rank == size else None


def nothing_done(module: fx.GraphModule) -> Any:
    return module


def raises(module: fx.GraphModule) -> Any:
    message = "no pattern"
    raise ValueError(message)


def returns_text(module: fx.GraphModule) -> Any:
    return "done"


def backend(transform: Any) -> FxBackend:
    made = FxBackend("")
    made._transform, made._name = transform, getattr(transform, "__name__", "")
    return made


def test_fx__fused_convolution_and_norm__is_aligned():
    verdict = judged(record(convolution_and_norm), backend(fuse)).verdict
    assert verdict.outcome == "aligned"


def test_fx__without_a_pass__is_aligned_with_gradients_of_parameters():
    attempt = record(every_opcode)
    verdict = judged(attempt, backend(None)).verdict
    assert (verdict.outcome, len(attempt.trace.gradients) > 2) == ("aligned", True)


def test_fx__pass_that_forgets_a_bias__is_misaligned():
    verdict = judged(record(convolution_and_norm), backend(wrong_fuse)).verdict
    assert (verdict.outcome, verdict.kind, verdict.blame) == ("misaligned", "value", "candidate")


def test_fx__pass_that_replaces_one_operator__names_it():
    verdict = judged(record(every_opcode), backend(doubled_relu)).verdict
    assert (verdict.outcome, verdict.operator) == ("misaligned", "torch.nn.functional.relu")


@pytest.mark.parametrize("body", [size_alone, sizes_read_and_nothing_returned, size_beside_an_equal_number])
def test_fx__wrong_tensor_of_which_the_body_reads_only_a_size__is_misaligned(body: Any):
    assert judged(record(body), backend(None)).verdict.outcome == "aligned"
    verdict = judged(record(body), backend(wrong_exp)).verdict
    assert (verdict.outcome, verdict.operator, verdict.kind) == ("misaligned", "torch.exp", "value")


def test_output__number_that_two_steps_gave__is_both_of_them():
    program = record(size_beside_an_equal_number).program
    assert [program.steps[ref.index].target for ref in output_refs(program)] == ["size", "dim", "torch.exp"]


def test_fx__pass_that_does_nothing__is_no_test():
    verdict = judged(record(every_opcode), backend(nothing_done)).verdict
    assert (verdict.outcome, verdict.oracle) == (
        "unsupported", "nothing_done left the graph unchanged, so nothing of it was tested",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (raises, "ValueError: no pattern (test_fx_candidates.py, line"),
        (returns_text, "TypeError: returns_text returned a str, not the transformed module"),
    ],
)
def test_fx__pass_that_fails__is_an_error_of_the_candidate(transform: Any, says: str):
    verdict = judged(record(every_opcode), backend(transform)).verdict
    assert (verdict.outcome, verdict.kind) == ("misaligned", "error")
    assert verdict.misalignment is not None
    assert says in verdict.misalignment.detail


def traced_anew(module: fx.GraphModule) -> Any:
    return fx.symbolic_trace(module)


def test_fx__pass_traces_what_branches__is_unsupported_and_no_misalignment():
    verdict = judged(record(branches), backend(traced_anew)).verdict
    assert verdict.outcome == "unsupported"
    assert verdict.oracle.startswith("torch.fx cannot trace this body: ")


def test_fx__pass_that_cannot_be_imported__says_so():
    with pytest.raises(UnavailableError, match=r"transform 'nopasses\.fuse' cannot be imported"):
        FxBackend("nopasses.fuse")
