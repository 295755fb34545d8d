"""Packed sequences through recurrent layers: recorded as wholes, compared by their tensors, isolated and saved."""

from __future__ import annotations

from typing import Any

import pytest
import torch as real
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ci_autotest import oneof, random_tensor, torch
from ci_autotest.alignment.recordings import to_recording
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.program.codegen import function_text, inputs, names, setup_lines
from ci_autotest.program.ir import PLACEHOLDER
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from tests.engine import judged, record, substitute

BACKEND = TorchBackend()
RNN = torch.nn.utils.rnn


def x() -> Any:
    return random_tensor(3, 3, 4, 2)


def lstm() -> Any:
    layer = torch.nn.LSTM(2, 3, batch_first=True)
    packed, state = layer(RNN.pack_padded_sequence(x(), torch.tensor([4, 3, 1]), batch_first=True))
    return *RNN.pad_packed_sequence(packed, batch_first=True), state


def gru_of_unsorted_lengths() -> Any:
    layer = torch.nn.GRU(2, 3, batch_first=True, bidirectional=True)
    packed = RNN.pack_padded_sequence(x(), [1, 4, 2], batch_first=True, enforce_sorted=False)
    out, hidden = layer(packed)
    return out.data, hidden, out.unsorted_indices


def rnn_of_sequences() -> Any:
    layer = torch.nn.RNN(2, 3, nonlinearity=oneof("tanh", "relu"))
    out, _ = layer(RNN.pack_sequence([random_tensor(2, 3, 2), random_tensor(2, 1, 2)]))
    return RNN.unpack_sequence(out)


def moved() -> Any:
    layer = torch.nn.LSTM(2, 3).double()
    return layer(RNN.pack_padded_sequence(x(), [3, 3, 1, 1]).double())[0].data


def plain_layer() -> Any:
    layer = real.nn.LSTM(2, 3, batch_first=True)
    packed = pack_padded_sequence(x(), [4, 3, 1], batch_first=True)
    return pad_packed_sequence(layer(packed)[0], batch_first=True)


def plain_packing() -> Any:
    layer = torch.nn.LSTM(2, 3, batch_first=True)
    packed = pack_padded_sequence(x() * 2, real.tensor([2, 4, 3]), batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(layer(packed)[0], batch_first=True)[0]


BODIES = [lstm, gru_of_unsorted_lengths, rnn_of_sequences, moved, plain_layer, plain_packing]


@pytest.mark.parametrize("body", BODIES)
def test_packed__recorded__replays_and_is_saved(body: Any):
    attempt = record(body)
    assert attempt.refused is None, attempt.trace.failure
    recording = to_recording(live_of(attempt))
    assert decode(encode_program(recording), encode_tensors(recording)) == recording
    assert judged(attempt, BACKEND).verdict.outcome == "aligned"


@pytest.mark.parametrize("body", BODIES)
def test_packed__printed__is_code_that_gives_the_same_bits(body: Any):
    attempt = record(body)
    program, named = attempt.program, names(attempt.program)
    binding = BACKEND.steps.binding(attempt.sources)
    scope: dict[str, Any] = {"torch": real, "device": real.device("cpu")}
    scope |= {named[i]: binding.placeholder(step) for i, step in enumerate(program.steps) if step.op == PLACEHOLDER}
    exec("\n".join([*setup_lines(program), function_text(program)]), scope)  # noqa: S102 - the printed text, which must run
    outputs = scope["program"](*[scope[name] for name, _ in inputs(program)])
    expected = [attempt.trace.values[ref.index] for ref in program.body[-1].args]
    assert all(real.equal(left, right) for left, right in zip(outputs, expected, strict=True))


def test_packed__as_a_compiled_body__is_aligned():
    assert judged(record(lstm), CompileBackend({"backend": "eager"})).verdict.outcome == "aligned"


def test_packed__values__are_those_of_plain_torch():
    attempt = record(lstm)
    layer = real.nn.LSTM(2, 3, batch_first=True)
    state = [attempt.sources[step.target] for step in attempt.program.setup if step.op == PLACEHOLDER]
    layer.load_state_dict(dict(zip(layer.state_dict(), state, strict=True)))
    given = next(step.target for step in attempt.program.body if step.op == PLACEHOLDER)
    packed, (hidden, cell) = layer(pack_padded_sequence(attempt.sources[given], [4, 3, 1], batch_first=True))
    expected = (*pad_packed_sequence(packed, batch_first=True), hidden, cell)
    shown = [attempt.trace.values[ref.index] for ref in attempt.program.body[-1].args]
    assert all(real.equal(left, right) for left, right in zip(shown, expected, strict=True))


def off_by_one() -> TorchBackend:
    """Return a candidate whose LSTM is wrong in what it packs."""
    found = TorchBackend()
    found.steps._functions["torch.nn.LSTM"] = Wrong
    return found


class Wrong(real.nn.LSTM):
    def forward(self, given: Any, *state: Any) -> Any:
        out, last = super().forward(given, *state)
        return real.nn.utils.rnn.PackedSequence(out.data * 1.01, *out[1:]), last


def test_packed__layer_that_is_wrong__is_found_alone():
    judgement = judged(record(lstm), off_by_one())
    verdict = judgement.verdict
    assert (verdict.outcome, verdict.operator, verdict.kind) == ("misaligned", "torch.lstm", "value")
    assert not verdict.accumulated
    assert [step.target for _, step in judgement.live.program.calls] == [
        "torch.nn.utils.rnn.PackedSequence",
        "torch.nn.LSTM",
    ]


def test_packed__gradient_through_it_that_is_wrong__is_found():
    wrong = substitute(mul=lambda left, right: left.detach() * right + 1.01 * (left - left.detach()) * right)
    verdict = judged(record(plain_packing), wrong).verdict
    assert (verdict.outcome, verdict.operator, verdict.kind) == ("misaligned", "torch.mul", "gradient")
