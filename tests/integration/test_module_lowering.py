"""Lowering: the functions that a module's forward calls give the same bits, gradients and running statistics."""

from __future__ import annotations

import pytest
import torch as plain

from ci_autotest import torch
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.framework.mapping.module_lowering import lowered
from ci_autotest.backends.framework.mapping.table import MappingRow, MappingTable
from ci_autotest.backends.framework.mapping.translation import Translator
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, CALL_MODULE, PLACEHOLDER, Program
from tests.engine import record

nn = torch.nn


def tensor(*shape, requires_grad=True):
    return torch.linspace(-1.0, 1.3, plain.Size(shape).numel()).reshape(*shape).requires_grad_(requires_grad) * 1.0


def index(*shape, below=3):
    return torch.arange(plain.Size(shape).numel()).reshape(*shape) % below


def applied(make, *inputs):
    """Return a body that calls one module once."""
    return lambda: make()(*(give() for give in inputs))


def x(*shape):
    return lambda: tensor(*shape)


def i(*shape, below=3):
    return lambda: index(*shape, below=below)


MODULES = {
    "linear": applied(lambda: nn.Linear(3, 2), x(4, 3)),
    "linear_without_bias": applied(lambda: nn.Linear(3, 2, bias=False), x(4, 3)),
    "bilinear": applied(lambda: nn.Bilinear(3, 2, 4), x(5, 3), x(5, 2)),
    "conv1d": applied(lambda: nn.Conv1d(2, 4, 3, padding="same"), x(1, 2, 7)),
    "conv2d_reflected": applied(lambda: nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), x(1, 2, 5, 5)),
    "conv3d": applied(lambda: nn.Conv3d(1, 2, 2), x(1, 1, 3, 3, 3)),
    "conv_transpose2d": applied(lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), x(1, 2, 3, 3)),
    "batch_norm1d": applied(lambda: nn.BatchNorm1d(3), x(4, 3)),
    "batch_norm3d_affine_alone": applied(lambda: nn.BatchNorm3d(2, track_running_stats=False), x(2, 2, 2, 2, 2)),
    "layer_norm": applied(lambda: nn.LayerNorm((3,)), x(4, 3)),
    "rms_norm": applied(lambda: nn.RMSNorm((3,)), x(4, 3)),
    "group_norm": applied(lambda: nn.GroupNorm(2, 4), x(2, 4, 3)),
    "instance_norm2d": applied(lambda: nn.InstanceNorm2d(2, affine=True, track_running_stats=True), x(2, 2, 3, 3)),
    "local_response_norm": applied(lambda: nn.LocalResponseNorm(2), x(1, 4, 3, 3)),
    "max_pool2d": applied(lambda: nn.MaxPool2d(2), x(1, 1, 4, 4)),
    "max_pool1d_with_indices": applied(lambda: nn.MaxPool1d(2, return_indices=True), x(1, 1, 4)),
    "avg_pool2d": applied(lambda: nn.AvgPool2d(2, count_include_pad=False, padding=1), x(1, 1, 4, 4)),
    "lp_pool2d": applied(lambda: nn.LPPool2d(2.0, 2), x(1, 1, 4, 4)),
    "adaptive_avg_pool2d": applied(lambda: nn.AdaptiveAvgPool2d((2, None)), x(1, 1, 4, 4)),
    "adaptive_max_pool1d": applied(lambda: nn.AdaptiveMaxPool1d(2), x(1, 1, 5)),
    "relu_in_place": applied(lambda: nn.ReLU(inplace=True), x(3)),
    "prelu": applied(lambda: nn.PReLU(3), x(2, 3)),
    "softmax": applied(lambda: nn.Softmax(dim=1), x(2, 3)),
    "softmax2d": applied(lambda: nn.Softmax2d(), x(1, 2, 2, 2)),
    "log_softmax": applied(lambda: nn.LogSoftmax(dim=0), x(2, 3)),
    "gelu": applied(lambda: nn.GELU("tanh"), x(5)),
    "glu": applied(lambda: nn.GLU(), x(4)),
    "hardtanh": applied(lambda: nn.Hardtanh(-0.5, 0.5), x(5)),
    "softplus": applied(lambda: nn.Softplus(2.0), x(5)),
    "tanhshrink": applied(lambda: nn.Tanhshrink(), x(5)),
    "sigmoid": applied(lambda: nn.Sigmoid(), x(5)),
    "cross_entropy": applied(lambda: nn.CrossEntropyLoss(label_smoothing=0.1), x(4, 3), i(4)),
    "cross_entropy_with_weights": applied(lambda: nn.CrossEntropyLoss(weight=tensor(3, requires_grad=False) + 2), x(4, 3), i(4)),
    "nll_loss": applied(lambda: nn.NLLLoss(), x(4, 3), i(4)),
    "mse_loss": applied(lambda: nn.MSELoss(reduction="sum"), x(4), x(4)),
    "bce_with_logits": applied(lambda: nn.BCEWithLogitsLoss(), x(4), lambda: tensor(4, requires_grad=False).sigmoid()),
    "smooth_l1_loss": applied(lambda: nn.SmoothL1Loss(beta=0.3), x(4), x(4)),
    "kl_div": applied(lambda: nn.KLDivLoss(reduction="batchmean"), x(2, 3), lambda: tensor(2, 3).softmax(1)),
    "cosine_embedding_loss": applied(lambda: nn.CosineEmbeddingLoss(), x(2, 3), x(2, 3), lambda: torch.ones(2)),
    "triplet_margin_loss": applied(lambda: nn.TripletMarginLoss(), x(2, 3), x(2, 3), x(2, 3)),
    "embedding": applied(lambda: nn.Embedding(5, 2, padding_idx=1), i(2, 3)),
    "embedding_bag": applied(lambda: nn.EmbeddingBag(5, 2, mode="sum"), i(2, 3)),
    "rnn": applied(lambda: nn.RNN(3, 2, nonlinearity="relu"), x(4, 1, 3)),
    "lstm": applied(lambda: nn.LSTM(3, 2, num_layers=2, bidirectional=True, batch_first=True), x(2, 4, 3)),
    "gru_without_batch": applied(lambda: nn.GRU(3, 2), x(4, 3)),
    "rnn_cell": applied(lambda: nn.RNNCell(3, 2), x(1, 3)),
    "lstm_cell": applied(lambda: nn.LSTMCell(3, 2), x(1, 3)),
    "gru_cell": applied(lambda: nn.GRUCell(3, 2, bias=False), x(1, 3)),
    "multihead_attention": applied(lambda: nn.MultiheadAttention(4, 2), x(3, 1, 4), x(2, 1, 4), x(2, 1, 4)),
    "transformer_encoder_layer": applied(lambda: nn.TransformerEncoderLayer(4, 2, 3, dropout=0.0), x(3, 1, 4)),
    "transformer_decoder_layer": applied(lambda: nn.TransformerDecoderLayer(4, 2, 3, dropout=0.0), x(3, 1, 4), x(2, 1, 4)),
    "upsample": applied(lambda: nn.Upsample(scale_factor=2, mode="bilinear"), x(1, 1, 2, 2)),
    "pixel_shuffle": applied(lambda: nn.PixelShuffle(2), x(1, 4, 2, 2)),
    "pad": applied(lambda: nn.ReflectionPad2d(1), x(1, 1, 3, 3)),
    "flatten": applied(lambda: nn.Flatten(), x(2, 3, 2)),
    "unflatten": applied(lambda: nn.Unflatten(1, (3, 2)), x(2, 6)),
    "fold": applied(lambda: nn.Fold((3, 3), (2, 2)), x(1, 4, 4)),
    "identity": lambda: nn.Identity()(tensor(3)) * 2,
    "cosine_similarity": applied(lambda: nn.CosineSimilarity(), x(2, 3), x(2, 3)),
}  # fmt: skip


def batch_norm_used_twice():
    module = nn.BatchNorm2d(2, momentum=None)
    return module(module(tensor(2, 2, 2, 2)))


def batch_norm_evaluated():
    module = nn.BatchNorm2d(2)
    module.eval()
    return module(tensor(2, 2, 2, 2)), module.running_mean


def a_container_with_one_part_twice():
    shared = nn.Linear(3, 3)
    whole = nn.Sequential(shared, nn.Tanh(), shared)
    return whole(tensor(2, 3)), whole[0](tensor(2, 3)), whole.get_parameter("2.weight").sum()


def a_module_among_operators():
    module = nn.Linear(3, 2)
    hidden = module(tensor(2, 3).exp())
    with plain.no_grad():
        scale = module(tensor(1, 3)).abs()
    return (hidden / scale) @ module.weight


def parameters_that_require_no_gradient():
    module = nn.Linear(3, 2)
    module.requires_grad_(False)
    return module(tensor(2, 3))


def results_in_tuples():
    output, (hidden, cell) = nn.LSTM(3, 2)(tensor(4, 1, 3))
    return output.sum() + hidden.mean(), cell


BODIES = {
    **MODULES,
    **{
        body.__name__: body
        for body in (
            batch_norm_used_twice, batch_norm_evaluated, a_container_with_one_part_twice, a_module_among_operators,
            parameters_that_require_no_gradient, results_in_tuples,
        )
    },
}  # fmt: skip


def run(program, attempt):
    backend = TorchBackend()
    trace = backend.run(program, attempt.sources)
    assert trace.failure is None, trace.failure
    backend.backward(program, trace, attempt.cotangents)
    assert trace.backward_failure is None
    return trace


def bits(value):
    if isinstance(value, plain.Tensor):
        return value.dtype, tuple(value.shape), value.detach().numpy().tobytes(), value.requires_grad
    return value


def gradient(trace, key):
    found = trace.gradients.get(key)
    return None if found is None else bits(found)


@pytest.mark.parametrize("entered", [False, True], ids=["one function each", "entered as far as can be"])
@pytest.mark.parametrize("name", BODIES)
def test_lowered__each_module__gives_the_same_bits_gradients_and_state(name, entered):
    attempt = record(BODIES[name])
    found = lowered(attempt.program, lambda _: not entered, attempt.sources)
    assert not any(step.op == CALL_MODULE or step.in_setup for step in found.program.steps)
    ours, theirs = run(found.program, attempt), run(attempt.program, attempt)
    for index, place in enumerate(found.moved):
        if place >= 0:
            assert bits(ours.values[place]) == bits(theirs.values[index]), attempt.program.steps[index]
    modules = {
        i: v for i, v in enumerate(theirs.values) if isinstance(v, plain.nn.Module) and i < len(attempt.program.setup)
    }
    assert modules
    for index, module in modules.items():
        if attempt.program.steps[index].op == CALL_FUNCTION:
            assert {key for key in found.parameters if key[0] == index} == {
                (index, n) for n, _ in module.named_parameters()
            }
        for key, _ in module.named_parameters():
            if (index, key) in theirs.gradients:
                assert gradient(ours, found.parameters[index, key]) == gradient(theirs, (index, key))
        for key, buffer in module.named_buffers():
            if (index, key) in found.buffers:
                assert bits(ours.values[found.buffers[index, key]]) == bits(buffer)


def test_lowered__attention__is_one_function_or_what_it_is_made_of():
    attempt = record(MODULES["multihead_attention"])
    whole = [step.target for step in lowered(attempt.program, lambda _: True).program.body]
    parts = [step.target for step in lowered(attempt.program, lambda _: False).program.body]
    assert "torch.nn.functional.multi_head_attention_forward" in whole
    assert "torch.nn.functional.multi_head_attention_forward" not in parts
    assert {"torch.nn.functional.softmax", "torch.nn.functional.linear", "torch.bmm"} & {*parts} != set()


def test_lowered__without_data__has_the_same_steps():
    attempt = record(MODULES["conv2d_reflected"])
    assert lowered(attempt.program, lambda _: True) == lowered(attempt.program, lambda _: True, attempt.sources)


def changed():
    module = nn.Linear(3, 2)
    module.weight = nn.Parameter(tensor(2, 3))
    return module(tensor(4, 3))


def cast():
    module = nn.Linear(3, 2)
    module.double()
    return module(tensor(4, 3).double())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            changed,
            "builtins.setattr cannot be lowered to functions: it is changed by `builtins.setattr` after its construction.",
        ),
        (cast, "double cannot be lowered to functions: it is changed by `double` after its construction."),
    ],
)
def test_lowered__what_no_function_says__is_unsupported(body, message):
    with pytest.raises(UnsupportedError) as raised:
        lowered(record(body).program, lambda _: True)
    assert str(raised.value) == message


def test_translated__a_lowered_module__goes_by_the_rows_of_its_functions():
    rows = {"torch.nn.functional.linear": MappingRow(to="toy.linear"), "torch.tanh": MappingRow(to="toy.tanh")}
    attempt = record(lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh())(tensor(2, 3)))
    made_of = {"torch.linspace": MappingRow(to="toy.linspace"), "torch.reshape": MappingRow(to="toy.reshape"), "torch.mul": MappingRow(to="toy.mul"),
               "torch.Tensor.requires_grad": MappingRow(inplace="toy.requires_grad")}  # fmt: skip
    found = Translator(MappingTable("toy", "1", "toy", like_torch=False, rows={**rows, **made_of})).translated(
        attempt.program
    )
    assert [step.target for step in found.program.body if step.op not in {PLACEHOLDER, CALL_METHOD}][-3:] == [
        "toy.linear", "toy.tanh", "output",
    ]  # fmt: skip
    assert {name for _, name in found.parameters} == {"weight", "bias", "0.weight", "0.bias"}
    shapes = {name: found.program.body[place].args[0].shape for (_, name), place in found.parameters.items()}
    assert (shapes["weight"], shapes["0.bias"]) == ((2, 3), (2,))
    assert all(found.program.body[place].args[0].requires_grad for place in found.parameters.values())


def test_lowered__a_program_without_modules__is_as_it_was():
    program = record(lambda: (tensor(3) + 1).exp()).program
    assert lowered(program, lambda _: True).program == program


def without_biases(steps):
    return tuple(step._replace(args=step.args[:2]) if step.target.endswith(".linear") else step for step in steps)


def test_lowered__a_lost_bias__is_other_bits():
    """A planted fault: what the first test compares can say no."""
    attempt = record(MODULES["linear"])
    program = lowered(attempt.program, lambda _: True, attempt.sources).program
    broken = Program((), without_biases(program.body))
    outputs = [bits(run(each, attempt).values[-2]) for each in (program, broken)]
    assert program != broken
    assert outputs[0] != outputs[1]
