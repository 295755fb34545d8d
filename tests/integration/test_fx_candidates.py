"""Programs as torch.fx graphs: six opcodes, the same bits, shapes, and a user's pass as a candidate."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import pytest
import torch as real
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.recordings import to_recording
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.fx.backend import FxBackend
from ci_autotest.backends.fx.graph import to_graph_module
from ci_autotest.errors import UnavailableError
from ci_autotest.program.ir import PLACEHOLDER, output_refs
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
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
    return attempt, to_graph_module(program, trace.values, BACKEND.steps.constant), trace


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


class Block(nn.Module):
    """A class of the author's, with a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.act = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()
        self.register_buffer("scale", real.full((3, 1, 1), 2.0))

    def forward(self, x: Any) -> Any:
        return self.act(self.norm(self.convolution(x))) * self.scale


class Network(nn.Module):
    """A ``Sequential`` around such a class, dropout, a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(Block(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 1, bias=False))
        self.mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.drop, self.head, self.gain = nn.Dropout(0.3), nn.Linear(4, 2), nn.Parameter(real.tensor(1.5))
        self.features[0].norm.running_var.fill_(1e-3)
        self.features[0].norm.running_mean.copy_(real.tensor([-1.0, 1.0, -1.0]))

    def forward(self, x: Any) -> Any:
        return real.mean(self.head(self.drop(self.mean(self.features(x)))) * self.gain, 1)


NETWORK = Network()
EVALUATED = Network().eval()


def network() -> Any:
    return NETWORK(random_tensor(4, 2, 2, 6, 6))


def evaluated() -> Any:
    return EVALUATED(random_tensor(4, 2, 2, 6, 6))


def without_grad() -> Any:
    with real.no_grad():
        return EVALUATED(random_tensor(4, 2, 2, 6, 6))


def partly_without_grad() -> Any:
    x = random_tensor(4, 2, 2, 6, 6)
    with real.no_grad():
        weight = NETWORK(x).sum()
    return real.exp(x) * weight


def constructed() -> Any:
    inner = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    return torch.nn.Sequential(inner, torch.nn.Dropout(0.5))(random_tensor(2, 5, 3))


def layers(module: fx.GraphModule) -> list[tuple[str, type]]:
    return [(node.target, type(module.get_submodule(node.target))) for node in module.graph.nodes
            if node.op == "call_module"]  # fmt: skip


def traced_again_with_a_product(module: fx.GraphModule) -> Any:
    """Trace again, and write the last operator in another way that gives the same bits."""
    again = fx.symbolic_trace(module)
    (output,) = [node for node in again.graph.nodes if node.op == "output"]
    (value,) = output.args[0]
    with again.graph.inserting_before(output):
        output.args = ((again.graph.call_function(real.mul, (value, 1)),),)
    again.recompile()
    return again


def torch_fuse(module: fx.GraphModule) -> Any:
    """Fuse by torch's own pass, whose module warns of what it is made of when it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch.fx.experimental.optimization import fuse  # noqa: PLC0415
    return fuse(module)


def shapes_first(module: fx.GraphModule, example_inputs: Any) -> Any:
    ShapeProp(module).propagate(*example_inputs)
    assert all("tensor_meta" in node.meta for node in module.graph.nodes if node.op == "call_module")
    return torch_fuse(module)


def fuse_with_other_eps(module: fx.GraphModule) -> Any:
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eps = 1e-2
    return torch_fuse(module)


def leaky(module: fx.GraphModule) -> Any:
    """Replace each ``ReLU`` of the module tree."""
    for target, kind in layers(module):
        if kind is nn.ReLU:
            owner, _, name = target.rpartition(".")
            setattr(module.get_submodule(owner), name, nn.LeakyReLU())
    module.recompile()
    return module


def without_bias(module: fx.GraphModule) -> Any:
    module.get_submodule("head").bias = None
    return module


def written() -> Any:
    y = random_tensor(2, 3, 4).clone()
    y.mul_(3.0)
    return torch.exp(y).sum()


def without_unused(module: fx.GraphModule) -> Any:
    """Remove each call whose result nothing uses, and forget that a method may write."""
    for node in reversed(module.graph.nodes):
        if node.op == "call_method" and not node.users:
            module.graph.erase_node(node)
    module.recompile()
    return module


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


@pytest.mark.parametrize(("body", "module"), [(network, NETWORK), (evaluated, EVALUATED), (without_grad, EVALUATED)])
def test_to_graph_module__modules_of_the_author__are_called_as_in_symbolic_trace(body: Any, module: nn.Module):
    _, graph, _ = graph_of(body)
    assert layers(graph) == layers(fx.symbolic_trace(module))
    assert {node.target for node in graph.graph.nodes if node.op == "get_attr"} == {"features.0.scale", "gain"}


ELSEWHERE = nn.ReLU()


class Tied(nn.Module):
    """One layer under two names, and a call of a module that is no part of this one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.second = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.second(ELSEWHERE(self.first(x)))


def test_fx__tied_layers_and_a_module_of_elsewhere__are_aligned():
    tied = Tied()
    assert judged(record(lambda: tied(random_tensor(2, 3, 4))), backend(None)).verdict.outcome == "aligned"


def test_fx__batch_norm_that_counts_its_batches__is_aligned():
    norm = nn.BatchNorm1d(4, momentum=None)
    norm.num_batches_tracked.fill_(3)
    attempt = record(lambda: norm(random_tensor(2, 5, 4)))
    assert judged(attempt, backend(None)).verdict.outcome == "aligned"


LSTM = nn.LSTM(3, 4, batch_first=True)
GRU = nn.GRU(3, 4, num_layers=2, bidirectional=True, bias=False)
ATTENTION = nn.MultiheadAttention(4, 2, batch_first=True, bias=False, kdim=6, vdim=5)
SELF_ATTENTION = nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True).eval()
ENCODER = nn.TransformerEncoderLayer(4, 2, 8, activation="gelu", batch_first=True).eval()
DECODER = nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0)
BILINEAR, LOSS, CELL = nn.Bilinear(4, 2, 3), nn.CosineSimilarity(), nn.LSTMCell(3, 4)


def recurrent() -> Any:
    output, (h, c) = LSTM(random_tensor(3, 2, 5, 3))
    return output.sum() + h.sum() * c.sum()


def with_a_state() -> Any:
    output, (_, c) = LSTM(random_tensor(3, 2, 5, 3), (random_tensor(3, 1, 2, 4), random_tensor(3, 1, 2, 4)))
    return output.tanh(), c


def both_directions() -> Any:
    return GRU(random_tensor(3, 5, 2, 3))[0] + GRU(random_tensor(3, 5, 2, 3))[1].sum()


def attention() -> Any:
    found, weights = ATTENTION(random_tensor(3, 2, 3, 4), random_tensor(3, 2, 5, 6), value=random_tensor(3, 2, 5, 5))
    return found, weights


def self_attention() -> Any:
    x = random_tensor(3, 3, 2, 4)
    return SELF_ATTENTION(x, x, x, need_weights=False)[0].sum()


def encoder() -> Any:
    return ENCODER(random_tensor(3, 2, 3, 4)).sum()


def decoder() -> Any:
    return DECODER(random_tensor(3, 3, 2, 4), random_tensor(3, 5, 2, 4), tgt_mask=real.zeros(3, 3))


def several_inputs() -> Any:
    x = random_tensor(2, 3, 4)
    h, c = CELL(random_tensor(2, 3, 3), (x, x))
    return LOSS(BILINEAR(x, random_tensor(2, 3, 2)), h[:, :3]) + c.sum()


WHOLE = [
    (recurrent, [nn.LSTM]), (with_a_state, [nn.LSTM]), (both_directions, [nn.GRU, nn.GRU]),
    (attention, [nn.MultiheadAttention]), (self_attention, [nn.MultiheadAttention]),
    (encoder, [nn.TransformerEncoderLayer]), (decoder, [nn.TransformerDecoderLayer]),
    (several_inputs, [nn.LSTMCell, nn.Bilinear, nn.CosineSimilarity]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kinds"), WHOLE)
def test_fx__layer_of_several_steps_and_inputs__is_one_call(body: Any, kinds: list[type]):
    _, graph, _ = graph_of(body)
    assert [kind for _, kind in layers(graph)] == kinds
    assert {str(node.target) for node in graph.graph.nodes if node.op.startswith("call_f")} <= {
        str(operator.getitem), str(operator.add), str(operator.mul),
    }  # fmt: skip
    attempt = record(body)
    assert judged(attempt, backend(None)).verdict.outcome == "aligned"
    recording = to_recording(live_of(attempt))
    assert decode(encode_program(recording), encode_tensors(recording)) == recording


def doubled_weights(module: fx.GraphModule) -> Any:
    """Double the first parameter of each layer."""
    for node in list(module.graph.nodes):
        if node.op == "call_module":
            with real.no_grad():
                next(module.get_submodule(node.target).parameters()).mul_(2)
    return module


@pytest.mark.parametrize(
    ("body", "operator"),
    [
        (recurrent, "torch.lstm"),
        (attention, "torch.nn.functional.multi_head_attention_forward"),
        (encoder, "torch.nn.functional.layer_norm"),
    ],
)
def test_fx__wrong_layer_of_several_steps__is_named(body: Any, operator: str):
    verdict = judged(record(body), backend(doubled_weights)).verdict
    assert (verdict.outcome, verdict.operator) == ("misaligned", operator)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (lambda part: setattr(part.dropout1, "p", 0.5), []),
        (lambda part: setattr(part, "activation", real.tanh), []),
        (lambda part: part.norm1.register_forward_hook(lambda *_: None), []),
        (lambda part: part.norm1.train(), []),
        (lambda part: None, [nn.TransformerEncoderLayer]),
    ],
)
def test_to_graph_module__layer_that_its_class_does_not_describe__is_entered(change: Any, kinds: list[type]):
    layer = nn.TransformerEncoderLayer(4, 2, 8).eval()
    change(layer)
    attempt, graph, _ = graph_of(lambda: layer(random_tensor(3, 3, 2, 4)))
    assert [kind for _, kind in layers(graph) if kind is nn.TransformerEncoderLayer] == kinds
    assert judged(attempt, backend(None)).verdict.outcome == "aligned"


def test_to_graph_module__constructed_sequential__is_entered():
    _, graph, _ = graph_of(constructed)
    assert [(target.partition(".")[2], kind) for target, kind in layers(graph)] == [
        ("0.0", nn.Linear), ("0.1", nn.ReLU), ("1", nn.Dropout),
    ]  # fmt: skip


@pytest.mark.parametrize("body", [network, evaluated, without_grad, partly_without_grad, constructed])
@pytest.mark.parametrize("transform", [None, traced_again_with_a_product])
def test_fx__modules_of_the_author__are_aligned_and_can_be_traced_again(body: Any, transform: Any):
    assert judged(record(body), backend(transform)).verdict.outcome == "aligned"


@pytest.mark.parametrize("body", [evaluated, without_grad])
@pytest.mark.parametrize("transform", [torch_fuse, shapes_first])
def test_fx__right_passes_over_the_authors_modules__are_aligned(body: Any, transform: Any):
    assert judged(record(body), backend(transform)).verdict.outcome == "aligned"


@pytest.mark.parametrize(
    ("body", "transform", "operator"),
    [
        (evaluated, fuse_with_other_eps, "torch.nn.functional.batch_norm"),
        (without_grad, fuse_with_other_eps, "torch.nn.functional.batch_norm"),
        (evaluated, leaky, "torch.nn.functional.relu"),
        (evaluated, without_bias, "torch.nn.functional.linear"),
        (written, without_unused, "torch.mul"),
    ],
)
def test_fx__wrong_pass__names_what_it_replaced(body: Any, transform: Any, operator: str):
    verdict = judged(record(body), backend(transform)).verdict
    assert (verdict.outcome, verdict.operator, verdict.accumulated) == ("misaligned", operator, False)


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
